// SPDX-License-Identifier: Apache-2.0
// What a reload makes of a changed configuration file: all of it, or nothing.
#ifndef HPVMD_SERVER_CONFIG_CONFIG_RELOAD_H_
#define HPVMD_SERVER_CONFIG_CONFIG_RELOAD_H_

#include <string>
#include <vector>

#include "server/config/config.h"

namespace hpvm::server {

struct ConfigReload {
  Config config;                     // What is to be in force.
  std::vector<std::string> changed;  // Keys ("jobs.running_max") that have a new value there.
  std::vector<std::string> kept;     // Keys whose new value waits for a restart.
};

// `next` was read and checked. Keys that need a restart keep the value of `current`; kInvalidArgument when what comes
// of that breaks a rule that joins several keys.
StatusOr<ConfigReload> MergeReload(const Config& current, const Config& next);

// "jobs.running_max 64 -> 8": for the log.
std::string DescribeChange(const Config& from, const Config& to, const std::string& key);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CONFIG_CONFIG_RELOAD_H_
