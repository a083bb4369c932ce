// SPDX-License-Identifier: Apache-2.0
// Prints the configuration in force as a file that reproduces it.
#ifndef HPVMD_SERVER_CONFIG_CONFIG_PRINT_H_
#define HPVMD_SERVER_CONFIG_CONFIG_PRINT_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "server/config/config.h"

namespace hpvm::server {

// Sources of the values that are not defaults.
struct ConfigOrigin {
  std::string file;                     // Empty when no file was read.
  std::vector<std::string> by_command;  // Keys, "section.key", that the command line set.
};

// Prints every key as TOML, each with a comment that names the source of its value. ParseConfig reads the same
// configuration back. Contains no secrets: the configuration only names their files.
std::string PrintConfig(const Config& config, const ConfigOrigin& origin);

// The server's information about its configuration.
struct ConfigFacts {
  std::string toml;    // From PrintConfig.
  std::string sha256;  // Hash of `toml`, in hexadecimal.
  std::string file;    // From ConfigOrigin.
  int64_t loaded_unix_ns = 0;
  std::vector<std::string> awaiting_restart;  // Keys whose values in the file take effect after a restart.
};

// Thread-safe.
class ConfigInForce {
 public:
  // Sets the configuration that is in force since `loaded_unix_ns`.
  void Set(const Config& config, const ConfigOrigin& origin, int64_t loaded_unix_ns,
           std::vector<std::string> awaiting_restart);
  ConfigFacts Get() const;

 private:
  mutable std::mutex mutex_;
  ConfigFacts facts_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CONFIG_CONFIG_PRINT_H_
