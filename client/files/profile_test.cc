// SPDX-License-Identifier: Apache-2.0
#include "hpvm/profile.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "client/files/profiles.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "base/status.h"

namespace hpvm {
namespace {

using ::testing::HasSubstr;

class ProfileTest : public ::testing::Test {
 protected:
  ProfileTest() : folder_(::testing::TempDir() + "/profile_test." + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_ / "hpvm");
    unsetenv("HPVM_PROFILES");
    setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
    setenv("HOME", "/home/ann", 1);
  }
  ~ProfileTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& text) { std::ofstream(folder_ / "hpvm/profiles.toml") << text; }
  std::string Refusal(const std::string& text, const std::string& name = "lab") {
    Write(text);
    return Message(LoadProfile(name).status());
  }

  const std::filesystem::path folder_;
};

TEST_F(ProfileTest, NamedAndDefault) {
  Write(
      "default = \"lab\"\n[profile.lab]\nserver = \"https://gpu:1\"\ntenant = \"bob\"\ntoken_file = \"~/token\"\n"
      "ca_file = \"/ca\"\ncertificate_file = \"~x\"\nkey_file = \"k\"\nserver_name = \"~/n\"\n[profile.other]\n");
  for (const char* name : {"lab", ""}) {
    const StatusOr<std::optional<Profile>> profile = LoadProfile(name);
    ASSERT_TRUE(profile.ok() && profile->has_value()) << profile.status();
    EXPECT_EQ((*profile)->server, "https://gpu:1");
    EXPECT_EQ((*profile)->tenant, "bob");
    EXPECT_EQ((*profile)->credentials.token_file, "/home/ann/token");
    EXPECT_EQ((*profile)->credentials.ca_file, "/ca");
    EXPECT_EQ((*profile)->credentials.certificate_file, "~x");
    EXPECT_EQ((*profile)->credentials.server_name, "~/n");  // Not a file.
  }
  EXPECT_EQ((*LoadProfile("other"))->server, "");
}

TEST_F(ProfileTest, NothingThere) {
  EXPECT_EQ(*LoadProfile(""), std::nullopt);
  EXPECT_THAT(Message(LoadProfile("lab").status()), HasSubstr("profiles.toml"));
  Write("[profile.lab]\n");
  EXPECT_EQ(*LoadProfile(""), std::nullopt);  // There is no default.
  setenv("HPVM_PROFILES", (folder_ / "none").c_str(), 1);
  EXPECT_EQ(ProfileFile(), (folder_ / "none").string());
  unsetenv("HPVM_PROFILES");
  unsetenv("XDG_CONFIG_HOME");
  EXPECT_EQ(ProfileFile(), "/home/ann/.config/hpvm/profiles.toml");
  unsetenv("HOME");
  EXPECT_EQ(ProfileFile(), "");
  EXPECT_EQ(*LoadProfile(""), std::nullopt);
}

TEST_F(ProfileTest, WrongFiles) {
  EXPECT_THAT(Refusal("[profile.a]\n[profile.b]\n"), HasSubstr("have no profile \"lab\"; there are: a, b."));
  EXPECT_THAT(Refusal(""), HasSubstr("there are: none"));
  EXPECT_THAT(Refusal("profile = 3"), HasSubstr("only default = \"NAME\" and tables [profile.NAME]"));
  EXPECT_THAT(Refusal("\nprofile.lab = 3"), HasSubstr("\"lab\" is not a table (line 2)"));
  EXPECT_THAT(Refusal("\n\ndefalt = \"lab\"\n"), HasSubstr("\"defalt\" (line 3); did you mean \"default\"?"));
  EXPECT_THAT(Refusal("[profile.lab]\n[profile.other]\nca = \"x\""), HasSubstr("\"other\""));
  EXPECT_THAT(Refusal("default = \"gone\"", ""), HasSubstr("no profile \"gone\""));
  EXPECT_THAT(Refusal("[profile.lab]\nsever = \"x\""),
              HasSubstr("unknown key \"sever\" (line 2); did you mean \"server\"? keys are server, tenant"));
  EXPECT_THAT(Refusal("[profile.lab]\nserver = 3"), HasSubstr("\"server\" has to be a string"));
  EXPECT_THAT(Refusal("= 3"), HasSubstr("are not TOML: line 1"));
  EXPECT_THAT(Refusal("a = \x01"), HasSubstr("control character"));
}

TEST_F(ProfileTest, WritingAndReading) {
  const std::filesystem::path file = folder_ / "new/profiles.toml";
  Profiles profiles;
  profiles.default_name = "lab-2";
  profiles.profiles["lab-2"].server = "unix:/a \"b\"\\c\n\x7f\u00fc";
  profiles.profiles["lab-2"].credentials.token_file = "~/token";
  profiles.profiles["empty"] = {};
  ASSERT_TRUE(WriteProfiles(file, profiles).ok());
  const StatusOr<Profiles> read = ReadProfiles(file);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->default_name, "lab-2");
  EXPECT_EQ(read->profiles.size(), 2u);
  EXPECT_EQ(read->profiles.at("lab-2").server, profiles.profiles["lab-2"].server);
  EXPECT_EQ(read->profiles.at("lab-2").credentials.token_file, "~/token");  // Not expanded.
  EXPECT_FALSE(read->has_comments);
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(file).permissions(), perms::owner_read | perms::owner_write);
  EXPECT_EQ(std::filesystem::status(file.parent_path()).permissions(), perms::owner_all);
  // No temporary file remains.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file.parent_path()), {}), 1);
}

TEST_F(ProfileTest, WritingKeepsALink) {
  Write("default = \"lab\" # mine\n[profile.lab]\nserver = '#'\n");
  const std::filesystem::path link = folder_ / "link.toml";
  std::filesystem::create_symlink("hpvm/profiles.toml", link);
  StatusOr<Profiles> read = ReadProfiles(link);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->has_comments);
  read->profiles.erase("lab");
  ASSERT_TRUE(WriteProfiles(link, *read).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(ReadProfiles(folder_ / "hpvm/profiles.toml")->profiles.empty());
  Write("[profile.lab]\nserver = '#'\ntenant = \"\\\"#\"\n");
  EXPECT_FALSE(ReadProfiles(link)->has_comments);
}

TEST_F(ProfileTest, Names) {
  for (const std::string& name : {std::string("lab"), std::string("Lab-2_y"), std::string(64, 'a')}) {
    EXPECT_TRUE(CheckProfileName(name).ok()) << name;
  }
  for (const std::string& name : {std::string(), std::string("a b"), std::string("a]"), std::string("a.b"),
                                  std::string("\u00fc"), std::string(65, 'a')}) {
    EXPECT_FALSE(CheckProfileName(name).ok()) << name;
  }
  EXPECT_FALSE(WriteProfiles("", {}).ok());
}

// Names that the user wrote with quotes are kept; a name that could not be read again is not written.
TEST_F(ProfileTest, QuotedNames) {
  Write("[profile.\"a b\"]\nserver = \"x\"\n");
  const std::filesystem::path file = folder_ / "hpvm/profiles.toml";
  Profiles profiles = *ReadProfiles(file);
  ASSERT_TRUE(WriteProfiles(file, profiles).ok());
  EXPECT_EQ(ReadProfiles(file)->profiles.at("a b").server, "x");
  profiles.profiles["lab"].server = "\u00fc";
  EXPECT_FALSE(WriteProfiles(file, profiles).ok());
  EXPECT_EQ(ReadProfiles(file)->profiles.size(), 1u);
}

}  // namespace
}  // namespace hpvm
