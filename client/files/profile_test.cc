// SPDX-License-Identifier: Apache-2.0
#include "hpvm/profile.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

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
    EXPECT_EQ((*profile)->credentials.server_name, "~/n");  // No file.
  }
  EXPECT_EQ((*LoadProfile("other"))->server, "");
}

TEST_F(ProfileTest, NothingThere) {
  EXPECT_EQ(*LoadProfile(""), std::nullopt);
  EXPECT_THAT(Message(LoadProfile("lab").status()), HasSubstr("profiles.toml"));
  Write("[profile.lab]\n");
  EXPECT_EQ(*LoadProfile(""), std::nullopt);  // No default.
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
  EXPECT_THAT(Refusal("profile = 3"), HasSubstr("there are: none"));
  EXPECT_THAT(Refusal("profile.lab = 3"), HasSubstr("no profile \"lab\""));
  EXPECT_THAT(Refusal("default = \"gone\"", ""), HasSubstr("no profile \"gone\""));
  EXPECT_THAT(Refusal("[profile.lab]\nsever = \"x\""), HasSubstr("unknown key \"sever\"; keys are server, tenant"));
  EXPECT_THAT(Refusal("[profile.lab]\nserver = 3"), HasSubstr("\"server\" has to be a text"));
  EXPECT_THAT(Refusal("= 3"), HasSubstr("are not TOML: line 1"));
  EXPECT_THAT(Refusal("a = \x01"), HasSubstr("control character"));
}

}  // namespace
}  // namespace hpvm
