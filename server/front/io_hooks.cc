// SPDX-License-Identifier: Apache-2.0
// Four calls of the C library, taken in this program's name.
//
// A program's own function comes before a library's of that name, for the libraries that it loads too: this is how
// the dynamic linker resolves names (and how allocators are replaced). gRPC has no place where bytes could be looked at
// between the socket and its HTTP/2, so it is here that they are; docs/decisions/0014-connections.md says what was
// tried instead. Whatever is not a client's connection is passed on at once: so it is in programs that have no front,
// before main, and in children of a fork. Only gRPC's own calls of these are meant; those of the C library for itself
// (posix_spawn's child, fclose) do not come here.
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
  // The queue of errors is not the client's doing.
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

// Here, so that whoever uses the table has the hooks.
Status SessionTable::Check() {
  if (getauxval(AT_BASE) == 0) {
    return absl::OkStatus();  // Linked statically: there are no libraries to ask, and the linker took ours or failed.
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
      return Internal("Connections cannot be limited: the libraries that this program loads do not get its own " +
                      std::string(hook.name) + ".");
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
