// SPDX-License-Identifier: Apache-2.0
// hpvmctl profile: manages the named servers in the user's file.
#include "client/files/profiles.h"

#include <stdio.h>

#include <filesystem>
#include <memory>

#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/text.h"
#include <nlohmann/json.hpp>

#include "base/edit_distance.h"

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string name;
  Profile given;
  std::vector<std::string> unset;
};

StatusOr<Profile*> Find(Profiles& profiles, const std::string& name) {
  NearMiss near_miss(name);
  std::string known;
  for (auto& [one, profile] : profiles.profiles) {
    if (one == name) {
      return &profile;
    }
    near_miss.Offer(one);
    known += (known.empty() ? "" : ", ") + one;
  }
  return NotFound("The profiles \"" + ProfileFile() + "\" have no profile \"" + name + "\"" +
                  (near_miss.best().empty() ? "; there are: " + (known.empty() ? std::string("none") : known) + "."
                                            : "; did you mean \"" + near_miss.best() + "\"?"));
}

Json ToJson(const std::string& name, Profile profile, const Profiles& profiles) {
  Json json = {{"name", name}, {"default", name == profiles.default_name}};
  for (const ProfileKey& key : ProfileKeys()) {
    json[key.name] = key.of(profile);
  }
  return json;
}

Status Change(const Profiles& profiles) {
  HPVMD_RETURN_IF_ERROR(WriteProfiles(ProfileFile(), profiles));
  if (profiles.has_comments) {
    fprintf(stderr, "hpvmctl: the comments in \"%s\" are lost.\n", Printable(ProfileFile()).c_str());
  }
  return absl::OkStatus();
}

Status List(const Globals& globals, const Options&) {
  HPVMD_ASSIGN_OR_RETURN(const Profiles profiles, ReadProfiles(ProfileFile()));
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {{"", "PROFILE", "SERVER", "TENANT", "TOKEN"}};
  std::string names;
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  for (const auto& [name, profile] : profiles.profiles) {
    list.push_back(ToJson(name, profile, profiles));
    rows.push_back({name == profiles.default_name ? "*" : "", name, or_dash(profile.server), or_dash(profile.tenant),
                    or_dash(profile.credentials.token_file)});
    names += Printable(name) + "\n";
  }
  if (globals.format == Format::kJson) {
    PrintData(list, globals.format);
  } else {
    fputs((globals.format == Format::kName ? names : Table(rows)).c_str(), stdout);
  }
  if (profiles.profiles.empty()) {
    fputs("hpvmctl: there are no profiles; `hpvmctl profile set NAME --server ADDRESS` makes one.\n", stderr);
  }
  return absl::OkStatus();
}

Status Show(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(Profiles profiles, ReadProfiles(ProfileFile()));
  const std::string name = options.name.empty() ? profiles.default_name : options.name;
  if (name.empty()) {
    return NotFound("No profile is the default; name one, or choose it with `hpvmctl profile use NAME`.");
  }
  HPVMD_ASSIGN_OR_RETURN(Profile* const profile, Find(profiles, name));
  if (globals.format == Format::kJson) {
    PrintData(ToJson(name, *profile, profiles), globals.format);
    return absl::OkStatus();
  }
  if (globals.format == Format::kName) {
    puts(Printable(name).c_str());
    return absl::OkStatus();
  }
  std::vector<std::vector<std::string>> rows = {
      {"profile", name + (name == profiles.default_name ? " (the default)" : "")}};
  for (const ProfileKey& key : ProfileKeys()) {
    if (!key.of(*profile).empty()) {
      rows.push_back({std::string(key.name), key.of(*profile)});
    }
  }
  fputs(Table(rows).c_str(), stdout);
  return absl::OkStatus();
}

Status Use(const Globals&, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(Profiles profiles, ReadProfiles(ProfileFile()));
  HPVMD_RETURN_IF_ERROR(Find(profiles, options.name).status());
  profiles.default_name = options.name;
  return Change(profiles);
}

// Makes the path absolute, because commands read the file from any folder.
std::string Absolute(const std::string& file) {
  return file.starts_with("~/") ? file : std::filesystem::absolute(file).lexically_normal().string();
}

Status Set(const Globals&, const Options& options) {
  HPVMD_RETURN_IF_ERROR(CheckProfileName(options.name));
  HPVMD_ASSIGN_OR_RETURN(Profiles profiles, ReadProfiles(ProfileFile()));
  Profile& profile = profiles.profiles[options.name];
  Profile given = options.given;
  bool is_changed = false;
  for (const ProfileKey& key : ProfileKeys()) {
    if (const std::string& value = key.of(given); !value.empty()) {
      key.of(profile) = key.is_file ? Absolute(value) : value;
      is_changed = true;
    }
    for (const std::string& name : options.unset) {
      if (name == key.name) {
        key.of(profile).clear();
        is_changed = true;
      }
    }
  }
  if (!is_changed) {
    return InvalidArgument("Nothing is set: give --server or another option, behind `profile set`.");
  }
  HPVMD_RETURN_IF_ERROR(Change(profiles));
  if (profiles.default_name.empty()) {
    fprintf(stderr, "hpvmctl: --profile %s uses the profile; `hpvmctl profile use %s` makes it the default.\n",
            options.name.c_str(), options.name.c_str());
  }
  return absl::OkStatus();
}

Status Remove(const Globals&, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(Profiles profiles, ReadProfiles(ProfileFile()));
  HPVMD_RETURN_IF_ERROR(Find(profiles, options.name).status());
  profiles.profiles.erase(options.name);
  const bool was_default = profiles.default_name == options.name;
  if (was_default) {
    profiles.default_name.clear();
  }
  HPVMD_RETURN_IF_ERROR(Change(profiles));
  if (was_default) {
    fputs("hpvmctl: the profile was the default; now there is no default.\n", stderr);
  }
  return absl::OkStatus();
}

void AddSet(Commands commands, CLI::App& profile) {
  CLI::App& set = AddCommand(profile, "set", "Make a profile, or change the given values of a profile",
                             "Names of files are kept as whole paths; a name that begins with ~/ stays so.\n"
                             "Examples:\n"
                             "  hpvmctl profile set lab --server https://gpu.example.org:50061 --token-file lab.token\n"
                             "  hpvmctl profile set lab --tenant blur --unset server_name");
  Options& options = SetWork(commands, set, Set);
  set.add_option("profile", options.name, "Name of the profile: letters, digits, - and _")->required();
  Credentials& credentials = options.given.credentials;
  AddWord(set, "-s,--server", options.given.server, "unix:/path, host:port or https://host:port");
  AddWord(set, "--tenant", options.given.tenant, "Tenant to act for");
  AddWord(set, "--token-file", credentials.token_file, "File with the token that identifies you to the server");
  AddWord(set, "--ca", credentials.ca_file, "File of the authority that signed the server's certificate (PEM)");
  AddWord(set, "--cert", credentials.certificate_file, "File with your certificate (PEM); needs --key");
  AddWord(set, "--key", credentials.key_file, "File with the private key of --cert (PEM)");
  AddWord(set, "--server-name", credentials.server_name,
          "Name in the server's certificate, if it is not the host of the address");
  std::vector<std::string> keys;
  std::string text;
  for (const ProfileKey& key : ProfileKeys()) {
    keys.emplace_back(key.name);
    text += (text.empty() ? "" : "|") + keys.back();
  }
  AddEach(set, "--unset", options.unset, "Remove this value from the profile; may be repeated")
      ->check(CLI::IsMember(keys))
      ->option_text(text);
}

}  // namespace

void AddProfile(Commands commands) {
  CLI::App& profile = AddCommand(commands.app, "profile", "Manage profiles: servers and credentials that have names",
                                 "Profiles are kept in ~/.config/hpvm/profiles.toml (or $HPVM_PROFILES). A change "
                                 "rewrites the whole file; it says so\n"
                                 "when comments are lost.\n"
                                 "Examples:\n"
                                 "  hpvmctl profile set lab --server https://gpu.example.org:50061\n"
                                 "  hpvmctl profile use lab\n"
                                 "  hpvmctl profile list");
  profile.require_subcommand(1);
  SetWork(commands,
          AddCommand(profile, "list", "List profiles; * marks the default", "Example:\n  hpvmctl profile list"), List);
  CLI::App& use = AddCommand(profile, "use", "Make a profile the default, for commands that name no server",
                             "Example:\n  hpvmctl profile use lab");
  use.add_option("profile", SetWork(commands, use, Use).name, "A profile")->required();
  CLI::App& show = AddCommand(profile, "show", "Show a profile, or the default",
                              "Examples:\n  hpvmctl profile show\n  hpvmctl profile show lab -o yaml");
  show.add_option("profile", SetWork(commands, show, Show).name, "Name of a profile; default: the default profile");
  AddSet(commands, profile);
  CLI::App& remove = AddCommand(profile, "remove", "Remove one", "Example:\n  hpvmctl profile remove lab");
  remove.add_option("profile", SetWork(commands, remove, Remove).name, "A profile")->required();
}

}  // namespace hpvm::ctl
