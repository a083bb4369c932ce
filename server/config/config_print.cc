// SPDX-License-Identifier: Apache-2.0
#include "server/config/config_print.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/hash.h"

namespace hpvm::server {
namespace {

// Formats a TOML basic string.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += std::string("\\") + c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(c));
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// Permissions are printed in octal.
std::string NumberText(const ConfigKey& key, uint64_t value) {
  if (key.name != "server.socket_mode") {
    return std::to_string(value);
  }
  char octal[32];
  std::snprintf(octal, sizeof(octal), "0o%03llo", static_cast<unsigned long long>(value));
  return octal;
}

std::string ValueText(const Config& config, const ConfigKey& key) {
  if (const auto* text = std::get_if<std::string Config::*>(&key.member)) {
    return Quoted(config.**text);
  }
  if (const auto* number = std::get_if<uint64_t Config::*>(&key.member)) {
    return NumberText(key, config.**number);
  }
  return config.*std::get<bool Config::*>(key.member) ? "true" : "false";
}

bool IsDefault(const Config& config, const ConfigKey& key) {
  static const Config* defaults = new Config();
  return std::visit([&](auto member) { return config.*member == defaults->*member; }, key.member);
}

std::string_view OriginText(const Config& config, const ConfigKey& key, const ConfigOrigin& origin) {
  if (std::find(origin.by_command.begin(), origin.by_command.end(), key.name) != origin.by_command.end()) {
    return "from the command line";
  }
  return IsDefault(config, key) ? "default" : "from the file";
}

}  // namespace

std::string PrintConfig(const Config& config, const ConfigOrigin& origin) {
  // Keys of a section need not be adjacent in the table; in TOML they must be.
  std::vector<std::string_view> sections;
  for (const ConfigKey& key : ConfigKeys()) {
    if (std::find(sections.begin(), sections.end(), key.section()) == sections.end()) {
      sections.push_back(key.section());
    }
  }
  std::string text;
  for (const std::string_view section : sections) {
    text += (text.empty() ? "[" : "\n[") + std::string(section) + "]\n";
    for (const ConfigKey& key : ConfigKeys()) {
      if (key.section() == section) {
        text += std::string(key.name_in_section()) + " = " + ValueText(config, key) + "  # " +
                std::string(OriginText(config, key, origin)) + "\n";
      }
    }
  }
  return text;
}

void ConfigInForce::Set(const Config& config, const ConfigOrigin& origin, int64_t loaded_unix_ns,
                        std::vector<std::string> awaiting_restart) {
  ConfigFacts facts;
  facts.toml = PrintConfig(config, origin);
  facts.sha256 = ToHex(HashOf(facts.toml));
  facts.file = origin.file;
  facts.loaded_unix_ns = loaded_unix_ns;
  facts.awaiting_restart = std::move(awaiting_restart);
  std::lock_guard lock(mutex_);
  facts_ = std::move(facts);
}

ConfigFacts ConfigInForce::Get() const {
  std::lock_guard lock(mutex_);
  return facts_;
}

}  // namespace hpvm::server
