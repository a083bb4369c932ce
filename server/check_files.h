// SPDX-License-Identifier: Apache-2.0
// Checks the configuration's requirements on the machine: readable files, writable folders, programs.
#ifndef HPVMD_SERVER_CHECK_FILES_H_
#define HPVMD_SERVER_CHECK_FILES_H_

#include "base/diagnostic.h"
#include "server/config/config.h"

namespace hpvm::server {

// Returns every obstacle that keeps a daemon of this process's user from starting with `config`, under the keys'
// names: TLS files, the state folder and its contents, the executor's programs, the paths of Unix sockets. Creates
// and binds nothing, so a daemon may be running; free addresses are not checked. A missing folder of a Unix socket is
// accepted, because systemd creates it at the start.
Diagnostics CheckFiles(const Config& config);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CHECK_FILES_H_
