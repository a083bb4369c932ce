// SPDX-License-Identifier: Apache-2.0
// The file of profiles as a whole, for those who change it.
#ifndef HPVMD_CLIENT_FILES_PROFILES_H_
#define HPVMD_CLIENT_FILES_PROFILES_H_

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "hpvm/profile.h"

namespace hpvm {

// The keys that can stand in a profile.
struct ProfileKey {
  std::string_view name;
  bool is_file;  // Its value may begin with "~/".
  std::string& (*of)(Profile&);
};
std::span<const ProfileKey> ProfileKeys();

struct Profiles {
  std::string default_name;                 // Empty: none is.
  std::map<std::string, Profile> profiles;  // Names of files as they are written, "~/" and all.
  bool has_comments = false;                // WriteProfiles would lose them.
};

// kInvalidArgument for a file that is no TOML, at most 1 MiB, and for one with an unknown key, whose line and nearest
// neighbour are named. A file that is not there has no profiles.
StatusOr<Profiles> ReadProfiles(const std::string& path);

// A name of letters, digits, "-" and "_", at most 64 bytes.
Status CheckProfileName(const std::string& name);

// Replaces the file in one step by one that its owner alone may read; makes its folder when there is none. A link
// stays, and what it leads to is replaced.
Status WriteProfiles(const std::string& path, const Profiles& profiles);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_FILES_PROFILES_H_
