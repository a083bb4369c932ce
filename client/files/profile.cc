// SPDX-License-Identifier: Apache-2.0
#include "hpvm/profile.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#define TOML_EXCEPTIONS 0
#include "client/files/input_file.h"
#include <toml++/toml.h>

#include "base/io/toml_text.h"
#include "base/status.h"

namespace hpvm {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

struct Key {
  std::string_view name;
  bool is_file;
  std::string& (*of)(Profile&);
};
constexpr Key kKeys[] = {
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
  for (const Key& key : kKeys) {
    names += (names.empty() ? "" : ", ") + std::string(key.name);
  }
  return names;
}

std::string Expand(std::string file) {
  const std::string home = Variable("HOME");
  return file.starts_with("~/") && !home.empty() ? home + file.substr(1) : file;
}

StatusOr<toml::table> Parse(const std::string& path) {
  HPVMD_ASSIGN_OR_RETURN(const std::string text,
                         While(ReadInputText(path, kFileBytesMax), "reading the profiles \"" + path + "\""));
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

StatusOr<Profile> Read(const toml::table& table, const std::string& name, const std::string& path) {
  Profile profile;
  const std::string where = "Profile \"" + name + "\" in \"" + path + "\"";
  for (const auto& [key, node] : table) {
    const Key* known = nullptr;
    for (const Key& one : kKeys) {
      known = one.name == key.str() ? &one : known;
    }
    if (known == nullptr) {
      return InvalidArgument(where + " has the unknown key \"" + std::string(key.str()) + "\"; keys are " +
                             KnownKeys() + ".");
    }
    const std::optional<std::string> value = node.value_exact<std::string>();
    if (!value.has_value()) {
      return InvalidArgument(where + ": \"" + std::string(key.str()) + "\" has to be a text.");
    }
    known->of(profile) = known->is_file ? Expand(*value) : *value;
  }
  return profile;
}

}  // namespace

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

StatusOr<std::optional<Profile>> LoadProfile(const std::string& name) {
  const std::string path = ProfileFile();
  if (name.empty() && (path.empty() || access(path.c_str(), F_OK) != 0)) {
    return std::nullopt;
  }
  HPVMD_ASSIGN_OR_RETURN(const toml::table document, Parse(path));
  const std::string wanted = name.empty() ? document["default"].value_or(std::string()) : name;
  if (wanted.empty()) {
    return std::nullopt;
  }
  const toml::table* profiles = document["profile"].as_table();
  const toml::node* found = profiles == nullptr ? nullptr : profiles->get(wanted);
  if (found == nullptr || !found->is_table()) {
    std::string known;
    for (const auto& entry : profiles == nullptr ? toml::table() : *profiles) {
      known += (known.empty() ? "" : ", ") + std::string(entry.first.str());
    }
    return InvalidArgument("The profiles \"" + path + "\" have no profile \"" + wanted +
                           "\"; there are: " + (known.empty() ? "none" : known) + ".");
  }
  HPVMD_ASSIGN_OR_RETURN(Profile profile, Read(*found->as_table(), wanted, path));
  return profile;
}

}  // namespace hpvm
