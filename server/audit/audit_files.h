// SPDX-License-Identifier: Apache-2.0
// The audit's files on a disk that fails: groups of lines that are there wholly or are written again. One thread; Read
// is for any.
#ifndef HPVMD_SERVER_AUDIT_AUDIT_FILES_H_
#define HPVMD_SERVER_AUDIT_AUDIT_FILES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/io/disk.h"
#include "base/status.h"
#include "server/audit/audit_chain.h"

namespace hpvm::server {

// What is written between two syncs at most, so that what lies further up is no crash's doing.
inline constexpr size_t kAuditGroupBytesMax = 65'536;

class AuditFiles {
 public:
  // Where the record goes on, and, in a sentence, what of it was damaged; empty: nothing.
  struct Start {
    AuditHead head;
    std::string damage;
  };

  AuditFiles(Disk& disk, std::string folder) : disk_(disk), folder_(std::move(folder)) {}

  // Once, before the others. Sets aside what a crash tore.
  StatusOr<Start> Open();

  // Whole lines behind those that were written, the first of which has that number; at most kAuditGroupBytesMax until
  // Sync. After a failure of either nothing since the last Sync counts: it has to be written again, from there.
  Status Write(uint64_t first_sequence, std::string_view lines);
  // What was written is on disk when it returns OK.
  Status Sync();
  // The next Write begins a new file. After Sync.
  void Rotate() { file_.reset(); }
  // The oldest file goes, unless it is the last one, when all of them have more than `bytes_max` (0: any number), or
  // when its last record is older than `before` (a time as records have it; empty: none is).
  struct Removed {
    AuditHead head;  // Of what went; no hash: its last record was damaged.
    std::string name;
    bool for_bytes = false;
  };
  StatusOr<std::optional<Removed>> RemoveOldest(uint64_t bytes_max, std::string_view before);
  uint64_t file_bytes() const { return file_ == nullptr ? 0 : bytes_; }

  // Copies what there is at this moment into the folder `to`, which is made: whole lines of the last file, the others
  // as they are. Returns how many files there were. The daemon may go on writing.
  static StatusOr<uint64_t> Copy(Disk& disk, const std::string& folder, const std::string& to);

  // Lines numbered `from` to `to` of the files that are there, and those that are none. See AuditLog::Read.
  static Status Read(Disk& disk, const std::string& folder, uint64_t from, uint64_t to,
                     const std::function<bool(std::string_view line)>& each);

 private:
  using Names = std::map<uint64_t, std::string>;  // By first sequence.
  struct Scan;

  static StatusOr<Names> List(Disk& disk, const std::string& folder);
  static StatusOr<Scan> ScanFrom(uint64_t offset, const std::string& name, DiskFile& file);
  static StatusOr<Scan> ScanEnd(const std::string& name, DiskFile& file);
  Status SetAside(DiskFile& file, uint64_t from, uint64_t to, uint64_t sequence);
  Status OpenFile(uint64_t first_sequence);

  Disk& disk_;
  const std::string folder_;
  std::unique_ptr<DiskFile> file_;  // Null: Write makes one.
  uint64_t bytes_ = 0;              // Of it, whole and synced.
  uint64_t unsynced_bytes_ = 0;     // Written behind those.
  bool is_dirty_ = false;           // There may be more than both.
  bool is_name_doubtful_ = false;   // Of the file to make.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_AUDIT_AUDIT_FILES_H_
