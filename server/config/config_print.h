// SPDX-License-Identifier: Apache-2.0
// The configuration that is in force, as a file that gives it again.
#ifndef HPVMD_SERVER_CONFIG_CONFIG_PRINT_H_
#define HPVMD_SERVER_CONFIG_CONFIG_PRINT_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "server/config/config.h"

namespace hpvm::server {

// Where values that are not defaults come from.
struct ConfigOrigin {
  std::string file;                     // Empty: none was read.
  std::vector<std::string> by_command;  // Keys, "section.key", that the command line sets.
};

// Every key as TOML, each with a comment that says where its value comes from. ParseConfig makes the same configuration
// of it. Secrets are not in it: the configuration names their files only.
std::string PrintConfig(const Config& config, const ConfigOrigin& origin);

// What a server says of its configuration.
struct ConfigFacts {
  std::string toml;    // PrintConfig's.
  std::string sha256;  // Of it, in hexadecimal.
  std::string file;    // ConfigOrigin's.
  int64_t loaded_unix_ns = 0;
  std::vector<std::string> awaiting_restart;  // Keys whose values in the file wait for a restart.
};

// Any thread.
class ConfigInForce {
 public:
  // It is in force since then.
  void Set(const Config& config, const ConfigOrigin& origin, int64_t loaded_unix_ns,
           std::vector<std::string> awaiting_restart);
  ConfigFacts Get() const;

 private:
  mutable std::mutex mutex_;
  ConfigFacts facts_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CONFIG_CONFIG_PRINT_H_
