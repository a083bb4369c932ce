// SPDX-License-Identifier: Apache-2.0
// Compares a configuration with the machine: with the daemon that runs on it, or with the addresses that a daemon
// would need.
#ifndef HPVMD_SERVER_CHECK_ONLINE_H_
#define HPVMD_SERVER_CHECK_ONLINE_H_

#include <string>
#include <vector>

#include "server/config/config.h"

namespace hpvm::server {

struct OnlineCheck {
  std::vector<std::string> lines;  // Sentences for people.
  bool is_ready = true;            // A reload, or a start, would put the file into effect.
};

// Asks the daemon on the first Unix socket or loopback address of server.listen for its configuration; takes up to
// five seconds. Reports, key by key, what a reload would change and what waits for a restart. Without a daemon, tries
// to bind each address. Warns when tls.certificate expires within 14 days. `config` must have passed CheckConfig.
OnlineCheck CheckOnline(const Config& config);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CHECK_ONLINE_H_
