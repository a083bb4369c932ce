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

// What is empty the profile does not say.
struct Profile {
  std::string server, tenant;
  Credentials credentials;
};

// $HPVM_PROFILES, else $XDG_CONFIG_HOME/hpvm/profiles.toml, else ~/.config/hpvm/profiles.toml. Empty: there is no home.
std::string ProfileFile();

// The profile of that name; of an empty name the file's default, and nothing where it has none or there is no file.
// kInvalidArgument, naming the file, for a profile that is not there and for a file that is wrong. Files may begin
// with "~/".
StatusOr<std::optional<Profile>> LoadProfile(const std::string& name);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_PROFILE_H_
