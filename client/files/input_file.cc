// SPDX-License-Identifier: Apache-2.0
#include "client/files/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace hpvm {
namespace {

// With O_NONBLOCK, opening a named pipe or a device does not block; with O_NOCTTY a terminal does not become the
// controlling terminal.
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

std::string Quoted(const std::string& path) { return "\"" + path + "\""; }

Status CannotOpen(const std::string& path, int error) {
  const Status said = FromErrno(error, "Opening " + Quoted(path));
  return error == ENOENT || error == ENOTDIR ? NotFound(Message(said)) : InvalidArgument(Message(said));
}

// Returns true for names of descriptors that this program was started with.
bool NamesDescriptor(std::string_view path) {
  return path == "/dev/stdin" || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

const char* KindName(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISFIFO(mode) ? "a named pipe"
         : S_ISSOCK(mode) ? "a socket"
         : S_ISCHR(mode)  ? "a device"
         : S_ISBLK(mode)  ? "a block device"
                          : "not a regular file";
}

// Must be called before anything is read from `fd`.
Status CheckKind(int fd, const std::string& path) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0) {
    return InvalidArgument(Message(FromErrno(errno, "Looking at " + Quoted(path))));
  }
  const bool is_given_pipe = S_ISFIFO(facts.st_mode) && NamesDescriptor(path);
  if (!S_ISREG(facts.st_mode) && !is_given_pipe) {
    return InvalidArgument("The file " + Quoted(path) + " is " + KindName(facts.st_mode) +
                           "; only regular files are read.");
  }
  if (is_given_pipe && fcntl(fd, F_SETFL, O_RDONLY) != 0) {  // Makes reads wait for the writer.
    return InvalidArgument(Message(FromErrno(errno, "Looking at " + Quoted(path))));
  }
  return absl::OkStatus();
}

StatusOr<std::vector<uint8_t>> ReadAll(int fd, const std::string& path, uint64_t bytes_max) {
  const auto too_large = [&](const std::string& size) {
    return InvalidArgument("The file " + Quoted(path) + " has " + size + " bytes; at most " +
                           std::to_string(bytes_max) + " are read here.");
  };
  struct stat facts {};
  const bool is_regular = fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
  if (is_regular && static_cast<uint64_t>(facts.st_size) > bytes_max) {
    return too_large(std::to_string(facts.st_size));
  }
  constexpr size_t kPiece = 64 * 1024;
  std::vector<uint8_t> bytes;
  bytes.reserve(is_regular ? static_cast<size_t>(facts.st_size) + 1 : kPiece);
  while (true) {
    const size_t filled = bytes.size();
    bytes.resize(std::max(bytes.capacity(), filled + kPiece));
    const ssize_t got = read(fd, bytes.data() + filled, bytes.size() - filled);
    const int error = errno;
    bytes.resize(filled + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && error != EINTR) {
      return InvalidArgument(Message(FromErrno(error, "Reading " + Quoted(path))));
    }
    if (bytes.size() > bytes_max) {
      return too_large("more than " + std::to_string(bytes_max));
    }
    if (got == 0) {
      return bytes;
    }
  }
}

Status LeadsOut(const std::string& folder, const std::string& file) {
  return MakeStatus(absl::StatusCode::kPermissionDenied,
                    "The file " + Quoted(file) + " does not lie in the folder " + Quoted(folder) + " or below it.");
}

StatusOr<UniqueFd> OpenFolder(const std::string& folder) {
  UniqueFd fd(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) {
    return CannotOpen(folder, errno);
  }
  return fd;
}

// Splits the path at slashes. Returns nothing for an absolute path.
std::optional<std::vector<std::string>> Steps(const std::string& file) {
  if (file.empty() || file.front() == '/') {
    return std::nullopt;
  }
  std::vector<std::string> steps;
  for (size_t at = 0; at <= file.size();) {
    const size_t end = std::min(file.find('/', at), file.size());
    if (std::string step = file.substr(at, end - at); !step.empty() && step != ".") {
      steps.push_back(std::move(step));
    }
    at = end + 1;
  }
  return steps;
}

// Opens folder after folder and keeps each open, so that a folder that is moved meanwhile leads nowhere else.
StatusOr<UniqueFd> WalkBelow(const std::string& folder, const std::string& file) {
  const std::optional<std::vector<std::string>> steps = Steps(file);
  if (!steps.has_value() || steps->empty()) {
    return LeadsOut(folder, file);
  }
  std::vector<UniqueFd> way;
  HPVMD_ASSIGN_OR_RETURN(UniqueFd start, OpenFolder(folder));
  way.push_back(std::move(start));
  for (size_t i = 0; i < steps->size(); ++i) {
    if ((*steps)[i] == "..") {
      way.pop_back();
      if (way.empty()) {
        return LeadsOut(folder, file);
      }
      continue;
    }
    const bool is_last = i + 1 == steps->size();
    const int flags = is_last ? kOpenFlags : O_PATH | O_DIRECTORY | O_CLOEXEC;
    UniqueFd next(openat(way.back().get(), (*steps)[i].c_str(), flags | O_NOFOLLOW));
    if (!next.valid()) {
      const int error = errno;
      struct stat facts {};
      const bool is_link =
          fstatat(way.back().get(), (*steps)[i].c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(facts.st_mode);
      return is_link ? LeadsOut(folder, file) : CannotOpen(folder + "/" + file, error);
    }
    way.push_back(std::move(next));
  }
  return std::move(way.back());
}

StatusOr<UniqueFd> OpenBelow(const std::string& folder, const std::string& file, WayBelow way) {
  HPVMD_ASSIGN_OR_RETURN(const UniqueFd start, OpenFolder(folder));
  open_how how{};
  how.flags = kOpenFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  constexpr int kTriesMax = 16;  // The kernel gives up with EAGAIN when a folder on the path is renamed meanwhile.
  for (int i = 0; way == WayBelow::kAny && i < kTriesMax; ++i) {
    UniqueFd fd(static_cast<int>(syscall(SYS_openat2, start.get(), file.c_str(), &how, sizeof(how))));
    if (fd.valid()) {
      return fd;
    }
    if (errno == ENOSYS || errno == EPERM) {  // An old kernel, or a sandbox that does not know the call.
      break;
    }
    if (errno == EXDEV || errno == ELOOP) {
      return LeadsOut(folder, file);
    }
    if (errno != EAGAIN && errno != EINTR) {
      return CannotOpen(folder + "/" + file, errno);
    }
  }
  return WalkBelow(folder, file);
}

std::string ToText(const std::vector<uint8_t>& bytes) { return std::string(bytes.begin(), bytes.end()); }

}  // namespace

StatusOr<UniqueFd> OpenInputFile(const std::string& path) {
  UniqueFd fd(open(path.c_str(), kOpenFlags));
  if (!fd.valid()) {
    return CannotOpen(path, errno);
  }
  HPVMD_RETURN_IF_ERROR(CheckKind(fd.get(), path));
  return fd;
}

StatusOr<std::vector<uint8_t>> ReadInputFile(const std::string& path, uint64_t bytes_max) {
  HPVMD_ASSIGN_OR_RETURN(const UniqueFd fd, OpenInputFile(path));
  return ReadAll(fd.get(), path, bytes_max);
}

StatusOr<std::string> ReadInputText(const std::string& path, uint64_t bytes_max) {
  HPVMD_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadInputFile(path, bytes_max));
  return ToText(bytes);
}

StatusOr<std::string> ReadStandardInput(uint64_t bytes_max) {
  HPVMD_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadAll(STDIN_FILENO, "-", bytes_max));
  return ToText(bytes);
}

StatusOr<std::vector<uint8_t>> ReadFileBelow(const std::string& folder, const std::string& file, uint64_t bytes_max,
                                             WayBelow way) {
  const std::string start = folder.empty() ? "." : folder;
  HPVMD_ASSIGN_OR_RETURN(const UniqueFd fd, OpenBelow(start, file, way));
  const std::string path = folder.empty() ? file : folder + "/" + file;
  HPVMD_RETURN_IF_ERROR(CheckKind(fd.get(), path));
  return ReadAll(fd.get(), path, bytes_max);
}

}  // namespace hpvm
