// SPDX-License-Identifier: Apache-2.0
#include "hpvm/profile.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#define TOML_EXCEPTIONS 0
#include "client/files/input_file.h"
#include "client/files/profiles.h"
#include <toml++/toml.h>

#include "base/edit_distance.h"
#include "base/io/secret_file.h"
#include "base/io/toml_text.h"
#include "base/status.h"

namespace hpvm {
namespace {

constexpr size_t kFileBytesMax = 1 << 20, kNameBytesMax = 64;
// Heading that WriteProfiles itself writes; not a comment of the file's owner.
constexpr std::string_view kHeading = "# Written by `hpvmctl profile`, which keeps no comments.\n";

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

constexpr ProfileKey kKeys[] = {
    {"server", false, [](Profile& p) -> std::string& { return p.server; }},
    {"tenant", false, [](Profile& p) -> std::string& { return p.tenant; }},
    {"token_file", true, [](Profile& p) -> std::string& { return p.credentials.token_file; }},
    {"ca_file", true, [](Profile& p) -> std::string& { return p.credentials.ca_file; }},
    {"certificate_file", true, [](Profile& p) -> std::string& { return p.credentials.certificate_file; }},
    {"key_file", true, [](Profile& p) -> std::string& { return p.credentials.key_file; }},
    {"server_name", false, [](Profile& p) -> std::string& { return p.credentials.server_name; }},
};

std::string KnownKeys() {
  std::string names;
  for (const ProfileKey& key : kKeys) {
    names += (names.empty() ? "" : ", ") + std::string(key.name);
  }
  return names;
}

std::string LineOf(const toml::node& node) { return "line " + std::to_string(node.source().begin.line); }

std::string Expand(std::string file) {
  const std::string home = Variable("HOME");
  return file.starts_with("~/") && !home.empty() ? home + file.substr(1) : file;
}

StatusOr<toml::table> Parse(const std::string& path, const std::string& text) {
  if (FindBadTomlCharacter(text) != text.size()) {
    return InvalidArgument("The profiles \"" + path +
                           "\" are not TOML: they have a control character, or one beyond ASCII outside of comments "
                           "and of strings that are a key's value.");
  }
  toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    return InvalidArgument("The profiles \"" + path + "\" are not TOML: line " +
                           std::to_string(parsed.error().source().begin.line) + ": " +
                           std::string(parsed.error().description()) + ".");
  }
  return std::move(parsed).table();
}

StatusOr<std::string> TextOf(const toml::node& node, std::string_view key, const std::string& where) {
  const std::optional<std::string> value = node.value_exact<std::string>();
  if (!value.has_value()) {
    return InvalidArgument(where + ": \"" + std::string(key) + "\" has to be a string (" + LineOf(node) + ").");
  }
  return *value;
}

StatusOr<Profile> Read(const toml::table& table, const std::string& name, const std::string& path) {
  Profile profile;
  const std::string where = "Profile \"" + name + "\" in \"" + path + "\"";
  for (const auto& [key, node] : table) {
    const ProfileKey* known = nullptr;
    NearMiss near_miss(key.str());
    for (const ProfileKey& one : kKeys) {
      known = one.name == key.str() ? &one : known;
      near_miss.Offer(one.name);
    }
    if (known == nullptr) {
      return InvalidArgument(where + " has the unknown key \"" + std::string(key.str()) + "\" (" + LineOf(node) +
                             "); " + (near_miss.best().empty() ? "" : "did you mean \"" + near_miss.best() + "\"? ") +
                             "keys are " + KnownKeys() + ".");
    }
    HPVMD_ASSIGN_OR_RETURN(known->of(profile), TextOf(node, key.str(), where));
  }
  return profile;
}

// Finds a "#" outside of strings. A "#" in a multi-line string also counts, which causes a needless warning.
bool HasComments(std::string_view text) {
  text.remove_prefix(text.starts_with(kHeading) ? kHeading.size() : 0);
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      quote = 0;
    } else if (quote != 0) {
      i += c == '\\' && quote == '"' ? 1 : 0;
      quote = c == quote ? 0 : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      return true;
    }
  }
  return false;
}

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      constexpr char kDigits[] = "0123456789abcdef";
      out += std::string("\\u00") + kDigits[static_cast<unsigned char>(c) >> 4] + kDigits[c & 15];
    } else {
      out += (c == '"' || c == '\\' ? "\\" : "") + std::string(1, c);
    }
  }
  return out + "\"";
}

std::string ToToml(Profiles profiles) {
  std::string text(kHeading);
  if (!profiles.default_name.empty()) {
    text += "default = " + Quoted(profiles.default_name) + "\n";
  }
  for (auto& [name, profile] : profiles.profiles) {
    text += "\n[profile." + (CheckProfileName(name).ok() ? name : Quoted(name)) + "]\n";
    for (const ProfileKey& key : kKeys) {
      const std::string& value = key.of(profile);
      text += value.empty() ? "" : std::string(key.name) + " = " + Quoted(value) + "\n";
    }
  }
  return text;
}

}  // namespace

std::span<const ProfileKey> ProfileKeys() { return kKeys; }

std::string ProfileFile() {
  if (const std::string named = Variable("HPVM_PROFILES"); !named.empty()) {
    return named;
  }
  const std::string config = Variable("XDG_CONFIG_HOME"), home = Variable("HOME");
  if (config.empty() && home.empty()) {
    return "";
  }
  return (config.empty() ? home + "/.config" : config) + "/hpvm/profiles.toml";
}

StatusOr<Profiles> ReadProfiles(const std::string& path) {
  Profiles profiles;
  if (access(path.c_str(), F_OK) != 0) {
    return profiles;
  }
  HPVMD_ASSIGN_OR_RETURN(const std::string text,
                         While(ReadInputText(path, kFileBytesMax), "reading the profiles \"" + path + "\""));
  HPVMD_ASSIGN_OR_RETURN(const toml::table document, Parse(path, text));
  profiles.has_comments = HasComments(text);
  const std::string where = "The profiles \"" + path + "\"";
  for (const auto& [key, node] : document) {
    if (key.str() == "default") {
      HPVMD_ASSIGN_OR_RETURN(profiles.default_name, TextOf(node, key.str(), where));
      continue;
    }
    if (key.str() != "profile" || !node.is_table()) {
      NearMiss near_miss(key.str());
      near_miss.Offer("default");
      near_miss.Offer("profile");
      return InvalidArgument(where + " have \"" + std::string(key.str()) + "\" (" + LineOf(node) + ")" +
                             (near_miss.best().empty() || near_miss.best() == key.str()
                                  ? ""
                                  : "; did you mean \"" + near_miss.best() + "\"?") +
                             ", but only default = \"NAME\" and tables [profile.NAME] can stand there.");
    }
    for (const auto& [name, table] : *node.as_table()) {
      if (!table.is_table()) {
        return InvalidArgument(where + ": profile \"" + std::string(name.str()) + "\" is not a table (" +
                               LineOf(table) + "); a profile begins with [profile." + std::string(name.str()) + "].");
      }
      HPVMD_ASSIGN_OR_RETURN(profiles.profiles[std::string(name.str())],
                             Read(*table.as_table(), std::string(name.str()), path));
    }
  }
  return profiles;
}

Status CheckProfileName(const std::string& name) {
  const auto fits = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  if (name.empty() || name.size() > kNameBytesMax || !std::all_of(name.begin(), name.end(), fits)) {
    return InvalidArgument("\"" + name.substr(0, kNameBytesMax) +
                           "\" cannot name a profile: names are letters, digits, \"-\" and \"_\", at most " +
                           std::to_string(kNameBytesMax) + " of them.");
  }
  return absl::OkStatus();
}

Status WriteProfiles(const std::string& path, const Profiles& profiles) {
  if (path.empty()) {
    return NotFound("There is no place for profiles: neither $HPVM_PROFILES nor $HOME is set.");
  }
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::exists(folder, error)) {
    std::filesystem::create_directories(folder, error);
    if (error) {
      return NotFound("The folder \"" + folder.string() + "\" cannot be made: " + error.message() + ".");
    }
    chmod(folder.c_str(), 0700);
  }
  const std::filesystem::path led_to = std::filesystem::canonical(path, error);
  SecretFile file(error ? path : led_to.string(), /*may_replace=*/true);
  HPVMD_RETURN_IF_ERROR(file.Open());
  std::string text = ToToml(profiles);
  // A key that needs quotes allows no letter beyond ASCII after it (FindBadTomlCharacter).
  HPVMD_RETURN_IF_ERROR(While(Parse(path, text).status(), "writing the profiles, which stay as they were"));
  text.pop_back();  // Finish ends the last line.
  return file.Finish(text);
}

StatusOr<std::optional<Profile>> LoadProfile(const std::string& name) {
  const std::string path = ProfileFile();
  if (name.empty() && (path.empty() || access(path.c_str(), F_OK) != 0)) {
    return std::nullopt;
  }
  HPVMD_ASSIGN_OR_RETURN(const Profiles profiles, ReadProfiles(path));
  const std::string wanted = name.empty() ? profiles.default_name : name;
  if (wanted.empty()) {
    return std::nullopt;
  }
  const auto found = profiles.profiles.find(wanted);
  if (found == profiles.profiles.end()) {
    std::string known;
    for (const auto& [one, profile] : profiles.profiles) {
      known += (known.empty() ? "" : ", ") + one;
    }
    return InvalidArgument("The profiles \"" + path + "\" have no profile \"" + wanted +
                           "\"; there are: " + (known.empty() ? "none" : known) + ".");
  }
  Profile profile = found->second;
  for (const ProfileKey& key : kKeys) {
    std::string& value = key.of(profile);
    value = key.is_file ? Expand(value) : value;
  }
  return profile;
}

}  // namespace hpvm
