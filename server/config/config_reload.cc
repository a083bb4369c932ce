// SPDX-License-Identifier: Apache-2.0
#include "server/config/config_reload.h"

#include <variant>

namespace hpvm::server {
namespace {

std::string ValueOf(const Config& config, const ConfigKey& key) {
  if (const auto* text = std::get_if<std::string Config::*>(&key.member)) {
    return "\"" + config.**text + "\"";
  }
  if (const auto* number = std::get_if<uint64_t Config::*>(&key.member)) {
    return std::to_string(config.**number);
  }
  return config.*std::get<bool Config::*>(key.member) ? "true" : "false";
}

}  // namespace

StatusOr<ConfigReload> MergeReload(const Config& current, const Config& next) {
  ConfigReload reload;
  reload.config = next;
  for (const ConfigKey& key : ConfigKeys()) {
    std::visit(
        [&](auto member) {
          if (current.*member == next.*member) {
            return;
          }
          if (key.needs_restart) {
            reload.config.*member = current.*member;
          }
          (key.needs_restart ? reload.kept : reload.changed).emplace_back(key.name);
        },
        key.member);
  }
  HPVMD_RETURN_IF_ERROR(
      While(ToStatus(CheckConfig(reload.config)), "keeping the values of the keys that need a restart"));
  return reload;
}

std::string DescribeChange(const Config& from, const Config& to, const std::string& key) {
  const ConfigKey* found = FindConfigKey(key);
  return found == nullptr ? key : key + " " + ValueOf(from, *found) + " -> " + ValueOf(to, *found);
}

}  // namespace hpvm::server
