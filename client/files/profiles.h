// SPDX-License-Identifier: Apache-2.0
// The whole file of profiles, for code that changes it.
#ifndef HPVMD_CLIENT_FILES_PROFILES_H_
#define HPVMD_CLIENT_FILES_PROFILES_H_

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "hpvm/profile.h"

namespace hpvm {

// ProfileKey is one of the keys that a profile may have.
struct ProfileKey {
  std::string_view name;
  bool is_file;  // The value is a path that may begin with "~/".
  std::string& (*of)(Profile&);
};
std::span<const ProfileKey> ProfileKeys();

struct Profiles {
  std::string default_name;                 // Empty when there is no default.
  std::map<std::string, Profile> profiles;  // Paths as they are written, "~/" included.
  bool has_comments = false;                // WriteProfiles would lose them.
};

// Returns the file's profiles, none when the file is missing. kInvalidArgument for a file that is not TOML or exceeds
// 1 MiB, and for a file with an unknown key; the error names its line and the most similar key.
StatusOr<Profiles> ReadProfiles(const std::string& path);

// Accepts names of letters, digits, "-" and "_", at most 64 bytes.
Status CheckProfileName(const std::string& name);

// Replaces the file atomically by one that only its owner may read; creates its folder if necessary. A symbolic link
// stays, and its target is replaced.
Status WriteProfiles(const std::string& path, const Profiles& profiles);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_FILES_PROFILES_H_
