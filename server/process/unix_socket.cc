// SPDX-License-Identifier: Apache-2.0
#include "server/process/unix_socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace hpvm::server {
namespace {

constexpr int kBacklog = 128;

StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return InvalidArgument("The socket path \"" + path + "\" has " + std::to_string(path.size()) +
                           " bytes; the limit is " + std::to_string(sizeof(address.sun_path) - 1) + ".");
  }
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

// Returns true when a process answers on the socket file, of either kind.
bool IsAnswered(const sockaddr_un& address) {
  for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
    const UniqueFd probe(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      return true;
    }
  }
  return false;
}

StatusOr<UniqueFd> BindUnix(const std::string& path, mode_t mode, int type) {
  HPVMD_RETURN_IF_ERROR(ClearSocketPath(path));
  HPVMD_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  UniqueFd made(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made.get() < 0) {
    return FromErrno(errno, "Creating a Unix socket");
  }
  const mode_t old_mask = umask(0777 & ~mode);
  const int bound = bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int bind_error = errno;
  umask(old_mask);
  if (bound != 0) {
    return FromErrno(bind_error, "Listening on \"unix:" + path + "\"");
  }
  // The umask only removes permissions; this sets the mode.
  if (chmod(path.c_str(), mode) != 0 || (type == SOCK_STREAM && listen(made.get(), kBacklog) != 0)) {
    const int error = errno;
    unlink(path.c_str());
    return FromErrno(error, "Listening on \"unix:" + path + "\"");
  }
  return made;
}

}  // namespace

Status ClearSocketPath(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : FromErrno(errno, "Looking at \"" + path + "\"");
  }
  if (!S_ISSOCK(info.st_mode)) {
    return FailedPrecondition("The listen path \"" + path + "\" exists and is not a socket.");
  }
  HPVMD_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  if (IsAnswered(address)) {
    return Unavailable("Another daemon serves on the socket \"" + path + "\".");
  }
  return unlink(path.c_str()) == 0 ? absl::OkStatus() : FromErrno(errno, "Removing the old socket \"" + path + "\"");
}

StatusOr<UniqueFd> ListenUnix(const std::string& path, mode_t mode) { return BindUnix(path, mode, SOCK_STREAM); }

StatusOr<UniqueFd> BindDatagramUnix(const std::string& path, mode_t mode) { return BindUnix(path, mode, SOCK_DGRAM); }

}  // namespace hpvm::server
