// SPDX-License-Identifier: Apache-2.0
// Files as a parameter, so that a simulation can lose power between a write and its sync.
//
// The rules are POSIX's at their worst: after a crash, data that was written but not synced may be present, partly
// present or absent; a new name, a rename or a removal is durable only after SyncFolder of its folder; after a failed
// sync the state of the written data is unknown, and a second sync proves nothing. Errors: kNotFound, kAlreadyExists
// (kCreate), kResourceExhausted (ENOSPC, EDQUOT; out of descriptors or memory), kPermissionDenied (also for links and
// other files that are not regular), otherwise kDataLoss (EIO and all others).
#ifndef HPVMD_BASE_IO_DISK_H_
#define HPVMD_BASE_IO_DISK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hpvm {

// One open file. Used by one thread at a time. Closing does not sync.
class DiskFile {
 public:
  virtual ~DiskFile() = default;
  // Returns fewer bytes than requested only at the end of the file.
  virtual StatusOr<size_t> ReadAt(uint64_t offset, std::span<uint8_t> into) = 0;
  // Writes everything or returns an error, after which any part may have been written.
  virtual Status WriteAt(uint64_t offset, std::span<const uint8_t> from) = 0;
  virtual Status Truncate(uint64_t size_bytes) = 0;
  // Reserves room for that many bytes, and extends the file to at least that length. Not undone when it fails.
  virtual Status Allocate(uint64_t size_bytes) = 0;
  virtual StatusOr<uint64_t> Size() = 0;
  virtual Status Sync() = 0;
  // For sendfile and memory maps; -1 when it is not a file of the kernel.
  virtual int fd() const { return -1; }
};

struct DiskEntry {
  std::string name;
  bool is_folder = false;
  uint64_t size_bytes = 0;
};

// Size and free space of a file system, as far as this process may use it.
struct DiskSpace {
  uint64_t size_bytes = 0, free_bytes = 0;
};

// Thread-safe. Paths are absolute.
class Disk {
 public:
  // All modes but kRead may write; kCreate requires that the file does not exist.
  enum class Mode : uint8_t { kRead, kReadWrite, kCreate, kOpenOrCreate };

  virtual ~Disk() = default;
  virtual StatusOr<std::unique_ptr<DiskFile>> Open(const std::string& path, Mode mode) = 0;
  // Replaces `to` atomically.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status Remove(const std::string& path) = 0;
  // Uses mode 0700. Returns OK when the folder already exists.
  virtual Status MakeFolder(const std::string& path) = 0;
  virtual Status SyncFolder(const std::string& path) = 0;
  virtual StatusOr<std::vector<DiskEntry>> List(const std::string& path) = 0;
  // Describes the disk that holds `folder`.
  virtual StatusOr<DiskSpace> Space(const std::string& folder) = 0;
};

// Returns the machine's file systems; never destroyed.
Disk& RealDisk();
// Returns the folder that contains `path`, which is absolute.
std::string FolderOf(const std::string& path);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_DISK_H_
