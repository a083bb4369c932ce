// SPDX-License-Identifier: Apache-2.0
// Tests that a printed configuration reads back unchanged.
#include "server/config/config_print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/hash.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string FileText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns "section.key" of each key that differs.
std::vector<std::string> Differences(const Config& one, const Config& other) {
  std::vector<std::string> keys;
  for (const ConfigKey& key : ConfigKeys()) {
    std::visit(
        [&](auto member) {
          if (one.*member != other.*member) {
            keys.emplace_back(key.name);
          }
        },
        key.member);
  }
  return keys;
}

// Changes each key once from its default, as far as its limits and choices allow.
TEST(ConfigPrintTest, EveryKeyIsReadBack) {
  Config config;
  for (const ConfigKey& key : ConfigKeys()) {
    if (const auto* text = std::get_if<std::string Config::*>(&key.member)) {
      config.** text = key.choices.empty() ? "a \"quoted\" \\ word\t\x01 \xce\xbb # of " + std::string(key.name)
                                           : std::string(key.choices.back());
    } else if (const auto* number = std::get_if<uint64_t Config::*>(&key.member)) {
      config.** number = config.**number == key.max ? key.max - 1 : key.max;
    } else {
      config.*std::get<bool Config::*>(key.member) ^= true;
    }
  }
  EXPECT_GT(Differences(config, Config()).size(), ConfigKeys().size() - 5);
  const std::string printed = PrintConfig(config, {});
  EXPECT_THAT(Differences(ParseConfig(printed).config, config), testing::IsEmpty()) << printed;
}

TEST(ConfigPrintTest, FileWithEveryKeyIsReadBack) {
  const ConfigOutcome all = ParseConfig(FileText(HPVMD_SOURCE_DIR "/tests/fuzz/config/all.toml"));
  ASSERT_FALSE(HasErrors(all.diagnostics));
  const ConfigOutcome again = ParseConfig(PrintConfig(all.config, {"/etc/hpvm/hpvmd.toml", {}}));
  EXPECT_FALSE(HasErrors(again.diagnostics));
  EXPECT_THAT(Differences(again.config, all.config), testing::IsEmpty());
}

TEST(ConfigPrintTest, SaysWhereValuesComeFrom) {
  Config config;
  config.jobs_running_max = 17;
  const std::string printed = PrintConfig(config, {"/f", {"server.listen"}});
  EXPECT_THAT(printed, HasSubstr("running_max = 17  # from the file\n"));
  EXPECT_THAT(printed, HasSubstr("listen = \"unix:/run/hpvmd/hpvmd.sock\"  # from the command line\n"));
  EXPECT_THAT(printed, HasSubstr("socket_mode = 0o600  # default\n"));
  EXPECT_THAT(printed, Not(HasSubstr("/f")));  // The output is the same on every machine.
}

TEST(ConfigPrintTest, InForceHasTheHashOfItsText) {
  ConfigInForce in_force;
  in_force.Set(Config(), {"/f", {}}, 7, {"server.listen"});
  const ConfigFacts facts = in_force.Get();
  EXPECT_EQ(facts.sha256, ToHex(HashOf(facts.toml)));
  EXPECT_EQ(facts.file, "/f");
  EXPECT_EQ(facts.loaded_unix_ns, 7);
  EXPECT_THAT(facts.awaiting_restart, testing::ElementsAre("server.listen"));
}

}  // namespace
}  // namespace hpvm::server
