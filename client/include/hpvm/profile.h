// SPDX-License-Identifier: Apache-2.0
// Profiles: servers and credentials by name, as hpvmctl and the Python client read them.
//
//   default = "lab"
//
//   [profile.lab]
//   server = "https://gpu.example.org:50061"
//   token_file = "~/.config/hpvm/lab.token"
//   ca_file = "~/.config/hpvm/ca.pem"
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_PROFILE_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_PROFILE_H_

#include <optional>
#include <string>

#include "hpvm/credentials.h"
#include "hpvm/types.h"

namespace hpvm {

// Empty fields are not set in the profile.
struct Profile {
  std::string server, tenant;
  Credentials credentials;
};

// Returns $HPVM_PROFILES, else $XDG_CONFIG_HOME/hpvm/profiles.toml, else ~/.config/hpvm/profiles.toml; empty when
// there is no home.
std::string ProfileFile();

// Returns the named profile; for an empty name the file's default, or nothing when it has none or the file is
// missing. kInvalidArgument, naming the file, for a missing profile and for a malformed file. Paths in it may begin
// with "~/".
StatusOr<std::optional<Profile>> LoadProfile(const std::string& name);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_PROFILE_H_
