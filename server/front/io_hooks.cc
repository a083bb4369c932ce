// SPDX-License-Identifier: Apache-2.0
// Interposes four functions of the C library in this program.
//
// A program's own function takes precedence over a library's of the same name, also for the libraries that it loads:
// the dynamic linker resolves names this way (allocators are replaced like this too). gRPC has no place where bytes
// could be examined between the socket and its HTTP/2 layer, so they are examined here;
// docs/decisions/0014-connections.md lists the alternatives that were tried. Calls on descriptors that are not a
// client's connection are passed on at once, as in programs without a front, before main, and in children of a fork.
// Only gRPC's own calls are meant; the C library's internal calls (posix_spawn's child, fclose) do not come here.
#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/socket.h>

#include "server/front/libc_calls.h"
#include "server/front/session_table.h"

using hpvm::server::Session;
using hpvm::server::SessionTable;

extern "C" {

__attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr* message, int flags) {
  Session* session = SessionTable::At(fd);
  // The error queue is not filled by the client.
  return session != nullptr && (flags & MSG_ERRQUEUE) == 0 ? session->Receive(message, flags)
                                                           : hpvm::server::PlainReceive(fd, message, flags);
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  Session* session = SessionTable::At(fd);
  return session != nullptr ? session->Send(message, flags) : hpvm::server::PlainSend(fd, message, flags);
}

__attribute__((visibility("default"))) int close(int fd) {
  return SessionTable::At(fd) != nullptr ? SessionTable::Get().Close(fd) : hpvm::server::PlainClose(fd);
}

__attribute__((visibility("default"))) int getpeername(int fd, sockaddr* address, socklen_t* size) noexcept {
  return SessionTable::At(fd) != nullptr ? SessionTable::Get().NamePeer(fd, address, size)
                                         : hpvm::server::PlainGetPeerName(fd, address, size);
}

}  // extern "C"

namespace hpvm::server {

// Defined here, so that any program that uses the table also links the hooks.
Status SessionTable::Check() {
  if (getauxval(AT_BASE) == 0) {
    // Statically linked: there are no libraries to ask, and the linker used our functions or failed.
    return absl::OkStatus();
  }
  const struct {
    const char* name;
    void* ours;
  } hooks[] = {{"recvmsg", reinterpret_cast<void*>(&::recvmsg)},
               {"sendmsg", reinterpret_cast<void*>(&::sendmsg)},
               {"close", reinterpret_cast<void*>(&::close)},
               {"getpeername", reinterpret_cast<void*>(&::getpeername)}};
  for (const auto& hook : hooks) {
    if (dlsym(RTLD_DEFAULT, hook.name) != hook.ours) {
      return Internal(
          "Connections cannot be limited: the libraries that this program loads do not call this program's own " +
          std::string(hook.name) + ".");
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
