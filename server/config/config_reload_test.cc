// SPDX-License-Identifier: Apache-2.0
#include "server/config/config_reload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hpvm::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Sets another value that is valid for the key alone.
void Alter(const ConfigKey& key, Config& config) {
  if (const auto* text = std::get_if<std::string Config::*>(&key.member)) {
    std::string& value = config.**text;
    const std::string old = value;
    for (const std::string_view choice : key.choices) {
      value = old == value ? std::string(choice) : value;
    }
    const std::string name = std::string(key.name);
    value = !key.choices.empty()         ? value
            : name == "server.listen"    ? "127.0.0.1:7000"
            : name == "devices.backends" ? "cpu"
            : name == "tenants.default"  ? "ann"
            : name == "metrics.listen"   ? "127.0.0.1:7001"
            : name == "tracing.endpoint" ? "http://127.0.0.1:7002"
            : name == "cluster.database" ? "sqlite:/elsewhere"
                                         : "/elsewhere";
  } else if (const auto* number = std::get_if<uint64_t Config::*>(&key.member)) {
    uint64_t& value = config.**number;
    value = value > key.min ? value - 1 : value + 1;
  } else {
    bool& flag = config.*std::get<bool Config::*>(key.member);
    flag = !flag;
  }
}

// Each changed key either has the new value, or is named and keeps the old one; the others do not change.
TEST(ConfigReloadTest, EachKeyChangesOrIsNamed) {
  const Config current;
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string name = std::string(key.name);
    SCOPED_TRACE(name);
    Config next;
    Alter(key, next);
    const StatusOr<ConfigReload> reload = MergeReload(current, next);
    ASSERT_TRUE(reload.ok()) << reload.status();
    const std::vector<std::string> only = {name};
    EXPECT_EQ(reload->kept, key.needs_restart ? only : std::vector<std::string>());
    EXPECT_EQ(reload->changed, key.needs_restart ? std::vector<std::string>() : only);
    const Config& expected = key.needs_restart ? current : next;
    for (const ConfigKey& other : ConfigKeys()) {
      std::visit([&](auto member) { EXPECT_EQ(reload->config.*member, expected.*member) << other.name; }, other.member);
    }
  }
}

// Without changes no key is named.
TEST(ConfigReloadTest, SameFileChangesNothing) {
  const StatusOr<ConfigReload> reload = MergeReload(Config(), Config());
  ASSERT_TRUE(reload.ok());
  EXPECT_THAT(reload->changed, IsEmpty());
  EXPECT_THAT(reload->kept, IsEmpty());
}

// Many keys of both kinds at once.
TEST(ConfigReloadTest, MixesBothKinds) {
  Config next;
  next.jobs_running_max = 32;
  next.executor_cpu_threads = 3;
  next.log_level = "debug";
  const StatusOr<ConfigReload> reload = MergeReload(Config(), next);
  ASSERT_TRUE(reload.ok());
  EXPECT_THAT(reload->changed, ElementsAre("log.level", "jobs.running_max"));
  EXPECT_THAT(reload->kept, ElementsAre("executor.cpu_threads"));
  EXPECT_EQ(DescribeChange(Config(), next, "jobs.running_max"), "jobs.running_max 64 -> 32");
  EXPECT_EQ(DescribeChange(Config(), next, "log.level"), "log.level \"info\" -> \"debug\"");
}

// A value that is wrong only together with one that waits for a restart is refused with the whole file, naming key,
// value and limit.
TEST(ConfigReloadTest, ChecksTheMixture) {
  Config next;
  next.tenants_default = "not a name";
  const StatusOr<ConfigReload> reload = MergeReload(Config(), next);
  EXPECT_EQ(reload.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(reload.status()), HasSubstr("tenants.default: The name (\"not a name\")"));
}

}  // namespace
}  // namespace hpvm::server
