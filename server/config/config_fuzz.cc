// SPDX-License-Identifier: Apache-2.0
// Fuzzes configuration files. Accepted values are within every limit, and a reload is taken completely or refused;
// refusals state the reason.
#include <stddef.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <variant>

#include "server/config/config.h"
#include "server/config/config_reload.h"

namespace hpvm::server {
namespace {

void CheckValues(const Config& config) {
  for (const ConfigKey& key : ConfigKeys()) {
    if (const auto* number = std::get_if<uint64_t Config::*>(&key.member)) {
      HPVMD_CHECK(config.**number >= key.min && config.**number <= key.max);
    } else if (const auto* text = std::get_if<std::string Config::*>(&key.member); text != nullptr) {
      HPVMD_CHECK(key.choices.empty() ||
                  std::find(key.choices.begin(), key.choices.end(), config.**text) != key.choices.end());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ConfigOutcome outcome = ParseConfig(std::string_view(reinterpret_cast<const char*>(data), size));
  for (const Diagnostic& diagnostic : outcome.diagnostics) {
    HPVMD_CHECK(!diagnostic.message.empty());
  }
  if (!outcome.diagnostics.empty()) {
    return 0;
  }
  CheckValues(outcome.config);
  ParseListen(outcome.config.server_listen).status().IgnoreError();
  const StatusOr<ConfigReload> reload = MergeReload(Config(), outcome.config);
  if (reload.ok()) {
    CheckValues(reload->config);
    for (const std::string& key : reload->changed) {
      HPVMD_CHECK(DescribeChange(Config(), reload->config, key).starts_with(key));
    }
  }
  return 0;
}

}  // namespace hpvm::server
