// SPDX-License-Identifier: Apache-2.0
// Rules of the configuration about who may come in: [tls], [auth] and where the daemon listens.
#ifndef HPVMD_SERVER_CONFIG_CONFIG_ACCESS_H_
#define HPVMD_SERVER_CONFIG_CONFIG_ACCESS_H_

#include <vector>

#include "base/diagnostic.h"
#include "server/config/address.h"
#include "server/config/config.h"

namespace hpvm::server {

// Adds what is wrong. Looks at no file.
void CheckAccess(const Config& config, const std::vector<ListenAddress>& addresses, Diagnostics* out);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CONFIG_CONFIG_ACCESS_H_
