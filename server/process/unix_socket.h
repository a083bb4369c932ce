// SPDX-License-Identifier: Apache-2.0
// Unix sockets that the daemon listens on.
#ifndef HPVMD_SERVER_PROCESS_UNIX_SOCKET_H_
#define HPVMD_SERVER_PROCESS_UNIX_SOCKET_H_

#include <sys/types.h>

#include <string>

#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm::server {

// Removes a socket file on which nobody answers, left over from a daemon that was killed. kUnavailable when another
// daemon answers; kFailedPrecondition when the file is not a socket.
Status ClearSocketPath(const std::string& path);

// Listens, non-blocking, on a socket file that never has wider permissions than `mode`. Changes the process's umask
// for a moment, at the daemon's start.
StatusOr<UniqueFd> ListenUnix(const std::string& path, mode_t mode);

// Like ListenUnix, for datagrams.
StatusOr<UniqueFd> BindDatagramUnix(const std::string& path, mode_t mode);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_UNIX_SOCKET_H_
