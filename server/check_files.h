// SPDX-License-Identifier: Apache-2.0
// Checks what a configuration needs of the machine: files that can be read, folders that can be written, programs.
#ifndef HPVMD_SERVER_CHECK_FILES_H_
#define HPVMD_SERVER_CHECK_FILES_H_

#include "base/diagnostic.h"
#include "server/config/config.h"

namespace hpvm::server {

// Everything that keeps a daemon of this process's user from starting with `config`, under the keys' names: TLS files,
// the state folder and what lies in it, the executor's programs, the places of Unix sockets. Makes and binds nothing,
// so a daemon may be running; whether addresses are free is not asked. A folder of a Unix socket that is missing is no
// fault: systemd makes it at the start.
Diagnostics CheckFiles(const Config& config);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CHECK_FILES_H_
