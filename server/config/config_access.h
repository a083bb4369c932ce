// SPDX-License-Identifier: Apache-2.0
// Rules of the configuration about access: [tls], [auth] and the addresses where the daemon listens.
#ifndef HPVMD_SERVER_CONFIG_CONFIG_ACCESS_H_
#define HPVMD_SERVER_CONFIG_CONFIG_ACCESS_H_

#include <vector>

#include "base/diagnostic.h"
#include "server/config/address.h"
#include "server/config/config.h"

namespace hpvm::server {

// Adds the violations. Reads no file.
void CheckAccess(const Config& config, const std::vector<ListenAddress>& addresses, Diagnostics* out);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CONFIG_CONFIG_ACCESS_H_
