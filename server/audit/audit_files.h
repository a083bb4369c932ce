// SPDX-License-Identifier: Apache-2.0
// AuditFiles keeps the audit's files on a disk that may fail: groups of lines are there completely or are written
// again. Not thread-safe, except Read.
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

// Maximum number of bytes written between two syncs, so that damage further from the end cannot come from a crash.
inline constexpr size_t kAuditGroupBytesMax = 65'536;

class AuditFiles {
 public:
  // The position where the log continues, and a sentence about its damage; empty when there is none.
  struct Start {
    AuditHead head;
    std::string damage;
  };

  AuditFiles(Disk& disk, std::string folder) : disk_(disk), folder_(std::move(folder)) {}

  // Called once, before the others. Sets aside bytes that a crash tore.
  StatusOr<Start> Open();

  // Writes whole lines after those already written; the first has number `first_sequence`. At most
  // kAuditGroupBytesMax until Sync. After a failure of Write or Sync everything since the last successful Sync has to
  // be written again.
  Status Write(uint64_t first_sequence, std::string_view lines);
  // The written lines are on disk when it returns OK.
  Status Sync();
  // Makes the next Write begin a new file. Call after Sync.
  void Rotate() { file_.reset(); }
  // Removes the oldest file, unless it is the only one, when all files together exceed `bytes_max` (0: no limit), or
  // when its last record is older than `before` (a time as in records; empty: never).
  struct Removed {
    AuditHead head;  // Head of the removed file; without a hash when its last record was damaged.
    std::string name;
    bool for_bytes = false;
  };
  StatusOr<std::optional<Removed>> RemoveOldest(uint64_t bytes_max, std::string_view before);
  uint64_t file_bytes() const { return file_ == nullptr ? 0 : bytes_; }

  // Copies the current files into the folder `to`, which is created: whole lines of the last file, the others
  // unchanged. Returns the number of files. The daemon may keep writing.
  static StatusOr<uint64_t> Copy(Disk& disk, const std::string& folder, const std::string& to);

  // Reads the lines numbered `from` to `to`, and lines without a number. See AuditLog::Read.
  static Status Read(Disk& disk, const std::string& folder, uint64_t from, uint64_t to,
                     const std::function<bool(std::string_view line)>& each);

 private:
  using Names = std::map<uint64_t, std::string>;  // Keyed by first sequence number.
  struct Scan;

  static StatusOr<Names> List(Disk& disk, const std::string& folder);
  static StatusOr<Scan> ScanFrom(uint64_t offset, const std::string& name, DiskFile& file);
  static StatusOr<Scan> ScanEnd(const std::string& name, DiskFile& file);
  Status SetAside(DiskFile& file, uint64_t from, uint64_t to, uint64_t sequence);
  Status OpenFile(uint64_t first_sequence);

  Disk& disk_;
  const std::string folder_;
  std::unique_ptr<DiskFile> file_;  // Null when Write has to make one.
  uint64_t bytes_ = 0;              // Whole and synced bytes of it.
  uint64_t unsynced_bytes_ = 0;     // Bytes written after those.
  bool is_dirty_ = false;           // The file may hold more than both.
  bool is_name_doubtful_ = false;   // Applies to the file to be made.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_AUDIT_AUDIT_FILES_H_
