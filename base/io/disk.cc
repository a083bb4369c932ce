// SPDX-License-Identifier: Apache-2.0
#include "base/io/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <utility>

#include "base/io/fd.h"

namespace hpvm {
namespace {

constexpr mode_t kFileMode = 0600;
constexpr mode_t kFolderMode = 0700;

Status DiskError(int error_number, std::string_view doing, const std::string& path) {
  absl::StatusCode code = absl::StatusCode::kDataLoss;
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      code = absl::StatusCode::kNotFound;
      break;
    case EEXIST:
      code = absl::StatusCode::kAlreadyExists;
      break;
    case ENOSPC:
    case EDQUOT:
    // No data was lost, and descriptors or memory may become available.
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      code = absl::StatusCode::kResourceExhausted;
      break;
    case EACCES:
    case EPERM:
    case ELOOP:  // A symbolic link, which O_NOFOLLOW refuses.
      code = absl::StatusCode::kPermissionDenied;
      break;
    default:
      break;
  }
  return MakeStatus(code, Message(FromErrno(error_number, std::string(doing) + " \"" + path + "\"")));
}

// Repeats the call as long as a signal interrupts it.
template <typename Call>
auto Retry(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

StatusOr<off_t> Offset(uint64_t offset, uint64_t bytes, const std::string& path) {
  constexpr uint64_t kMax = std::numeric_limits<off_t>::max();
  if (offset > kMax || bytes > kMax - offset) {
    return InvalidArgument("The range at " + std::to_string(offset) + " of " + std::to_string(bytes) + " bytes in \"" +
                           path + "\" is beyond the largest size of a file.");
  }
  return static_cast<off_t>(offset);
}

class RealFile final : public DiskFile {
 public:
  RealFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  StatusOr<size_t> ReadAt(uint64_t offset, std::span<uint8_t> into) override {
    HPVMD_ASSIGN_OR_RETURN(off_t at, Offset(offset, into.size(), path_));
    size_t done = 0;
    while (done < into.size()) {
      ssize_t got = Retry([&] { return pread(fd_.get(), into.data() + done, into.size() - done, at + done); });
      if (got < 0) {
        return DiskError(errno, "Reading", path_);
      }
      if (got == 0) {
        break;
      }
      done += static_cast<size_t>(got);
    }
    return done;
  }

  Status WriteAt(uint64_t offset, std::span<const uint8_t> from) override {
    HPVMD_ASSIGN_OR_RETURN(off_t at, Offset(offset, from.size(), path_));
    size_t done = 0;
    while (done < from.size()) {
      ssize_t put = Retry([&] { return pwrite(fd_.get(), from.data() + done, from.size() - done, at + done); });
      if (put <= 0) {
        return DiskError(put == 0 ? ENOSPC : errno, "Writing", path_);
      }
      done += static_cast<size_t>(put);
    }
    return absl::OkStatus();
  }

  Status Truncate(uint64_t size_bytes) override {
    HPVMD_ASSIGN_OR_RETURN(off_t size, Offset(size_bytes, 0, path_));
    if (Retry([&] { return ftruncate(fd_.get(), size); }) != 0) {
      return DiskError(errno, "Truncating", path_);
    }
    return absl::OkStatus();
  }

  Status Allocate(uint64_t size_bytes) override {
    HPVMD_ASSIGN_OR_RETURN(off_t size, Offset(size_bytes, 0, path_));
    int error_number = 0;
    do {
      error_number = size == 0 ? 0 : posix_fallocate(fd_.get(), 0, size);
    } while (error_number == EINTR);
    return error_number == 0 ? absl::OkStatus() : DiskError(error_number, "Allocating", path_);
  }

  StatusOr<uint64_t> Size() override {
    struct stat status;
    if (fstat(fd_.get(), &status) != 0) {
      return DiskError(errno, "Looking at", path_);
    }
    return static_cast<uint64_t>(status.st_size);
  }

  Status Sync() override {
    // Syncs the data, and only that metadata which is needed to read it back.
    if (Retry([&] { return fdatasync(fd_.get()); }) != 0) {
      return DiskError(errno, "Syncing", path_);
    }
    return absl::OkStatus();
  }

  int fd() const override { return fd_.get(); }

 private:
  UniqueFd fd_;
  const std::string path_;
};

int OpenFlags(Disk::Mode mode) {
  switch (mode) {
    case Disk::Mode::kRead:
      return O_RDONLY;
    case Disk::Mode::kReadWrite:
      return O_RDWR;
    case Disk::Mode::kCreate:
      return O_RDWR | O_CREAT | O_EXCL;
    case Disk::Mode::kOpenOrCreate:
      return O_RDWR | O_CREAT;
  }
  return O_RDONLY;
}

class RealDiskImpl final : public Disk {
 public:
  StatusOr<std::unique_ptr<DiskFile>> Open(const std::string& path, Mode mode) override {
    // O_NONBLOCK: opening a pipe of that name must not block.
    const int flags = OpenFlags(mode) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    UniqueFd fd(Retry([&] { return open(path.c_str(), flags, kFileMode); }));
    if (!fd.valid()) {
      return DiskError(errno, "Opening", path);
    }
    struct stat status;
    if (fstat(fd.get(), &status) != 0) {
      return DiskError(errno, "Looking at", path);
    }
    if (!S_ISREG(status.st_mode)) {
      return MakeStatus(absl::StatusCode::kPermissionDenied, "\"" + path + "\" is not a regular file.");
    }
    return std::make_unique<RealFile>(std::move(fd), path);
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) != 0) {
      return DiskError(errno, "Renaming to \"" + to + "\" the file", from);
    }
    return absl::OkStatus();
  }

  Status Remove(const std::string& path) override {
    if (unlink(path.c_str()) != 0) {
      return DiskError(errno, "Removing", path);
    }
    return absl::OkStatus();
  }

  Status MakeFolder(const std::string& path) override {
    if (mkdir(path.c_str(), kFolderMode) == 0) {
      return absl::OkStatus();
    }
    const int error_number = errno;
    struct stat status;
    if (error_number == EEXIST && lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
      return absl::OkStatus();
    }
    return DiskError(error_number, "Creating the folder", path);
  }

  Status SyncFolder(const std::string& path) override {
    HPVMD_ASSIGN_OR_RETURN(UniqueFd fd, OpenFolder(path));
    if (Retry([&] { return fsync(fd.get()); }) != 0) {
      return DiskError(errno, "Syncing the folder", path);
    }
    return absl::OkStatus();
  }

  StatusOr<std::vector<DiskEntry>> List(const std::string& path) override {
    HPVMD_ASSIGN_OR_RETURN(UniqueFd fd, OpenFolder(path));
    std::unique_ptr<DIR, int (*)(DIR*)> folder(fdopendir(fd.get()), closedir);
    if (folder == nullptr) {
      return DiskError(errno, "Reading the folder", path);
    }
    fd.release();  // closedir closes it.
    std::vector<DiskEntry> entries;
    for (;;) {
      errno = 0;
      const dirent* entry = readdir(folder.get());
      if (entry == nullptr) {
        break;
      }
      const std::string_view name = entry->d_name;
      struct stat status;
      if (name == "." || name == "..") {
        continue;
      }
      if (fstatat(dirfd(folder.get()), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) {  // Removed in the meantime.
          continue;
        }
        return DiskError(errno, "Looking at", path + "/" + std::string(name));
      }
      entries.push_back({std::string(name), S_ISDIR(status.st_mode), static_cast<uint64_t>(status.st_size)});
    }
    if (errno != 0) {
      return DiskError(errno, "Reading the folder", path);
    }
    return entries;
  }

  StatusOr<DiskSpace> Space(const std::string& folder) override {
    struct statvfs facts {};
    if (Retry([&] { return statvfs(folder.c_str(), &facts); }) != 0) {
      return DiskError(errno, "Reading the free space of the disk of", folder);
    }
    return DiskSpace{uint64_t{facts.f_blocks} * facts.f_frsize, uint64_t{facts.f_bavail} * facts.f_frsize};
  }

 private:
  StatusOr<UniqueFd> OpenFolder(const std::string& path) {
    UniqueFd fd(Retry([&] { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
    if (!fd.valid()) {
      return DiskError(errno, "Opening the folder", path);
    }
    return fd;
  }
};

}  // namespace

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

Disk& RealDisk() {
  static RealDiskImpl disk;
  return disk;
}

}  // namespace hpvm
