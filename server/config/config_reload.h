// SPDX-License-Identifier: Apache-2.0
// Merges a changed configuration file on reload: completely, or not at all.
#ifndef HPVMD_SERVER_CONFIG_CONFIG_RELOAD_H_
#define HPVMD_SERVER_CONFIG_CONFIG_RELOAD_H_

#include <string>
#include <vector>

#include "server/config/config.h"

namespace hpvm::server {

struct ConfigReload {
  Config config;                     // The configuration to put in force.
  std::vector<std::string> changed;  // Keys ("jobs.running_max") with a new value in it.
  std::vector<std::string> kept;     // Keys whose new value takes effect after a restart.
};

// `next` must have been read and checked. Keys that need a restart keep the value of `current`; kInvalidArgument when
// the result violates a rule about several keys.
StatusOr<ConfigReload> MergeReload(const Config& current, const Config& next);

// Returns "jobs.running_max 64 -> 8" for the log.
std::string DescribeChange(const Config& from, const Config& to, const std::string& key);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CONFIG_CONFIG_RELOAD_H_
