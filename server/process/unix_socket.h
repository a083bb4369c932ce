// SPDX-License-Identifier: Apache-2.0
// Unix sockets that the daemon listens on.
#ifndef HPVMD_SERVER_PROCESS_UNIX_SOCKET_H_
#define HPVMD_SERVER_PROCESS_UNIX_SOCKET_H_

#include <sys/types.h>

#include <string>

#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm::server {

// A socket file that nobody answers on is left over from a daemon that was killed, and goes; one that answers is
// another daemon's (kUnavailable). What is no socket stays (kFailedPrecondition).
Status ClearSocketPath(const std::string& path);

// Listens, without blocking, on a socket file that is made with at most these permissions and never has wider ones.
// Changes the process's umask for a moment: at the daemon's start.
StatusOr<UniqueFd> ListenUnix(const std::string& path, mode_t mode);

// The same for datagrams.
StatusOr<UniqueFd> BindDatagramUnix(const std::string& path, mode_t mode);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_UNIX_SOCKET_H_
