// SPDX-License-Identifier: Apache-2.0
#include "server/process/spent_file.h"

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hpvm::server {
namespace {

using scheduler::Resource;
using ::testing::HasSubstr;

class SpentFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hpvm-spent-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/spent.json";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static TenantSpent Of(uint64_t used, uint64_t missing, int64_t unix_ns) {
    TenantSpent tenant{.unix_ns = unix_ns};
    tenant.spent[static_cast<size_t>(Resource::kDeviceTime)] = {used, missing};
    return tenant;
  }
  static uint64_t UsedOf(const SpentByTenant& spent, const std::string& name) {
    return spent.at(name).spent[static_cast<size_t>(Resource::kDeviceTime)].used;
  }

  std::string folder_, path_;
};

TEST_F(SpentFileTest, IsReadAsItWasWritten) {
  EXPECT_TRUE(ReadSpent(path_)->empty());
  ASSERT_EQ(WriteSpent(path_, {{"ann", Of(~uint64_t{0}, 3, 17)}, {"bob", Of(1, 0, -5)}}), absl::OkStatus());
  ASSERT_EQ(WriteSpent(path_, {{"ann", Of(~uint64_t{0}, 3, 17)}, {"bob", Of(2, 0, 18)}}), absl::OkStatus());
  const StatusOr<SpentByTenant> read = ReadSpent(path_);
  ASSERT_TRUE(read.ok()) << Message(read.status());
  EXPECT_EQ(read->size(), 2u);
  EXPECT_EQ(UsedOf(*read, "ann"), ~uint64_t{0});
  EXPECT_EQ(read->at("ann").spent[static_cast<size_t>(Resource::kDeviceTime)].missing, 3u);
  EXPECT_EQ(UsedOf(*read, "bob"), 2u);
  EXPECT_EQ(read->at("bob").unix_ns, 18);
  struct stat facts {};
  ASSERT_EQ(stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

// Every prefix of a file, and a few other damages; none is accepted as less consumption.
TEST_F(SpentFileTest, DamagedFilesAreRefused) {
  ASSERT_EQ(WriteSpent(path_, {{"ann", Of(7, 3, 17)}}), absl::OkStatus());
  std::string text;
  std::getline(std::ifstream(path_), text, '\0');
  ASSERT_FALSE(text.empty());
  const auto refused = [&](const std::string& damaged) {
    std::ofstream(path_) << damaged;
    const StatusOr<SpentByTenant> read = ReadSpent(path_);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << damaged;
    EXPECT_THAT(Message(read.status()), HasSubstr(path_));
  };
  for (size_t bytes = 0; bytes < text.size(); ++bytes) {
    refused(text.substr(0, bytes));
  }
  for (const char* bad : {"[]", "{\"version\":2,\"tenants\":{}}", "{\"version\":1,\"tenants\":[]}",
                          "{\"version\":1,\"tenants\":{\"ann\":3}}", "{\"version\":1,\"tenants\":{\"ann\":{}}}",
                          "{\"version\":1,\"tenants\":{\"ann\":{\"unix_ns\":1,\"device-seconds\":{\"used\":-1}}}}"}) {
    refused(bad);
  }
}

// Tenants that were not seen since the start keep their values; the file is written when there is something new.
TEST_F(SpentFileTest, KeeperAddsWhatIsNew) {
  std::atomic<uint64_t> used{0};
  const auto look = [&] { return SpentByTenant{{"ann", Of(used, 0, 100)}}; };
  { SpentKeeper keeper(path_, {{"bob", Of(9, 4, 50)}}, look); }
  EXPECT_FALSE(std::filesystem::exists(path_));  // Nothing was consumed.
  {
    SpentKeeper keeper(path_, {{"bob", Of(9, 4, 50)}}, look);
    used = 5;
  }
  const StatusOr<SpentByTenant> read = ReadSpent(path_);
  ASSERT_TRUE(read.ok()) << Message(read.status());
  EXPECT_EQ(UsedOf(*read, "ann"), 5u);
  EXPECT_EQ(UsedOf(*read, "bob"), 9u);
  EXPECT_EQ(read->at("bob").unix_ns, 50);
}

TEST_F(SpentFileTest, TheOldestAreLeftOut) {
  SpentByTenant known;
  for (size_t i = 0; i < kSpentTenantsMax; ++i) {
    known.emplace("t" + std::to_string(i), Of(1, 0, static_cast<int64_t>(100 + i)));
  }
  {
    SpentKeeper keeper(path_, std::move(known), [&] { return SpentByTenant{{"new", Of(1, 0, 99'999'999)}}; });
  }
  const StatusOr<SpentByTenant> read = ReadSpent(path_);
  ASSERT_TRUE(read.ok()) << Message(read.status());
  EXPECT_EQ(read->size(), kSpentTenantsMax);
  EXPECT_EQ(read->count("t0"), 0u);
  EXPECT_EQ(read->count("new"), 1u);
}

}  // namespace
}  // namespace hpvm::server
