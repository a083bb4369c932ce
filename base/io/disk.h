// SPDX-License-Identifier: Apache-2.0
// Files as a parameter, so that a simulation can lose power between a write and its sync.
//
// The rules are POSIX's at their worst: what was written and not synced may be there after a crash, wholly, partly or
// not at all; a new name, a rename or a removal lasts only after SyncFolder of its folder; after a failed sync the
// state of what was written is unknown and a second sync proves nothing. Errors: kNotFound, kAlreadyExists (kCreate),
// kResourceExhausted (ENOSPC, EDQUOT; no descriptor or memory left), kPermissionDenied (links and whatever else is no
// plain file too), else kDataLoss (EIO and all others).
#ifndef HPVMD_BASE_IO_DISK_H_
#define HPVMD_BASE_IO_DISK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hpvm {

// One open file. One thread at a time. Closing does not sync.
class DiskFile {
 public:
  virtual ~DiskFile() = default;
  // Fewer bytes than asked for only at the end of the file.
  virtual StatusOr<size_t> ReadAt(uint64_t offset, std::span<uint8_t> into) = 0;
  // All or an error, after which any part may have been written.
  virtual Status WriteAt(uint64_t offset, std::span<const uint8_t> from) = 0;
  virtual Status Truncate(uint64_t size_bytes) = 0;
  // Makes sure of room for that many bytes, and makes the file as long at least. Not undone when it fails.
  virtual Status Allocate(uint64_t size_bytes) = 0;
  virtual StatusOr<uint64_t> Size() = 0;
  virtual Status Sync() = 0;
  // For sendfile and memory maps; -1 when it is no file of the kernel's.
  virtual int fd() const { return -1; }
};

struct DiskEntry {
  std::string name;
  bool is_folder = false;
  uint64_t size_bytes = 0;
};

// The room on a file system, as far as this process may use it.
struct DiskSpace {
  uint64_t size_bytes = 0, free_bytes = 0;
};

// Any thread. Paths are absolute.
class Disk {
 public:
  // All but kRead may write; kCreate: new only.
  enum class Mode : uint8_t { kRead, kReadWrite, kCreate, kOpenOrCreate };

  virtual ~Disk() = default;
  virtual StatusOr<std::unique_ptr<DiskFile>> Open(const std::string& path, Mode mode) = 0;
  // Replaces `to` in one step.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status Remove(const std::string& path) = 0;
  // Mode 0700. OK when it is there already.
  virtual Status MakeFolder(const std::string& path) = 0;
  virtual Status SyncFolder(const std::string& path) = 0;
  virtual StatusOr<std::vector<DiskEntry>> List(const std::string& path) = 0;
  // Answers for the disk that `folder` is on.
  virtual StatusOr<DiskSpace> Space(const std::string& folder) = 0;
};

// The machine's file systems. Lives for ever.
Disk& RealDisk();
// The folder that `path` is in, which is absolute.
std::string FolderOf(const std::string& path);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_DISK_H_
