// SPDX-License-Identifier: Apache-2.0
// The functions below those that server/front/io_hooks.cc interposes: system calls, through a sanitizer if there is
// one. A sanitizer interposes the same functions and has to see the calls: ThreadSanitizer learns from them which
// descriptors are new and which threads synchronise.
#ifndef HPVMD_SERVER_FRONT_LIBC_CALLS_H_
#define HPVMD_SERVER_FRONT_LIBC_CALLS_H_

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

// The sanitizers' own functions; weak, because most programs have none. gcc's come from a shared library, clang's are
// in the program: a program's own function replaces only the plain name.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
__attribute__((weak)) ssize_t __interceptor_recvmsg(int fd, msghdr* message, int flags);
__attribute__((weak)) ssize_t __interceptor_sendmsg(int fd, const msghdr* message, int flags);
__attribute__((weak)) int __interceptor_close(int fd);
__attribute__((weak)) int __interceptor_getpeername(int fd, sockaddr* address, socklen_t* size);
// NOLINTEND(bugprone-reserved-identifier)
}

namespace hpvm::server {

inline ssize_t PlainReceive(int fd, msghdr* message, int flags) {
  return __interceptor_recvmsg != nullptr ? __interceptor_recvmsg(fd, message, flags)
                                          : syscall(SYS_recvmsg, fd, message, flags);
}

inline ssize_t PlainSend(int fd, const msghdr* message, int flags) {
  return __interceptor_sendmsg != nullptr ? __interceptor_sendmsg(fd, message, flags)
                                          : syscall(SYS_sendmsg, fd, message, flags);
}

inline int PlainClose(int fd) {
  return __interceptor_close != nullptr ? __interceptor_close(fd) : static_cast<int>(syscall(SYS_close, fd));
}

inline int PlainGetPeerName(int fd, sockaddr* address, socklen_t* size) {
  return __interceptor_getpeername != nullptr ? __interceptor_getpeername(fd, address, size)
                                              : static_cast<int>(syscall(SYS_getpeername, fd, address, size));
}

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_LIBC_CALLS_H_
