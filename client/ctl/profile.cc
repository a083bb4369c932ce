// SPDX-License-Identifier: Apache-2.0
#include "hpvm/profile.h"

#include <cstdlib>

#include "client/ctl/command.h"

#include "base/status.h"

namespace hpvm::ctl {
namespace {

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

bool IsSet(const char* name) { return !Variable(name).empty(); }

void Fill(std::string* option, const std::string& value) {
  if (option->empty()) {
    *option = value;
  }
}

// Fills fields that no option set. With `yields` the environment takes precedence.
void Apply(const Profile& profile, bool yields, Globals* globals) {
  const auto fill = [yields](std::string* option, const std::string& value, const char* variable) {
    if (!yields || !IsSet(variable)) {
      Fill(option, value);
    }
  };
  fill(&globals->server, profile.server, "HPVM_SERVER");
  fill(&globals->tenant, profile.tenant, "HPVM_TENANT");
  if (!yields || !IsSet("HPVM_TOKEN")) {
    fill(&globals->token_file, profile.credentials.token_file, "HPVM_TOKEN_FILE");
  }
  if (!globals->server.starts_with("unix:")) {  // For a Unix socket, TLS files are meant for another server.
    fill(&globals->ca_file, profile.credentials.ca_file, "HPVM_CA");
    fill(&globals->certificate_file, profile.credentials.certificate_file, "HPVM_CERT");
    fill(&globals->key_file, profile.credentials.key_file, "HPVM_KEY");
    fill(&globals->server_name, profile.credentials.server_name, "HPVM_SERVER_NAME");
  }
}

}  // namespace

void FindPlace(Globals* globals) {
  const bool is_named = !globals->profile.empty();
  const std::string name = is_named ? globals->profile : Variable("HPVM_PROFILE");
  if (!name.empty() || (globals->server.empty() && !IsSet("HPVM_SERVER"))) {
    const StatusOr<std::optional<Profile>> profile = LoadProfile(name);
    globals->found_place = profile.status();
    if (profile.ok() && profile->has_value()) {
      Apply(**profile, !is_named, globals);
    }
  }
  Fill(&globals->server, Variable("HPVM_SERVER"));
  Fill(&globals->tenant, Variable("HPVM_TENANT"));
}

}  // namespace hpvm::ctl
