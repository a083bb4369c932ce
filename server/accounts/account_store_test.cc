// SPDX-License-Identifier: Apache-2.0
// Tests of accounts on a disk that loses power and fails.
#include "server/accounts/account_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "server/jobs/testing/disk_vfs.h"
#include "server/testing/sim_disk.h"

namespace hpvm::server {
namespace {

constexpr char kPath[] = "/s/accounts.sqlite";

struct World {
  explicit World(uint64_t seed) : rng(seed), disk(seed) {
    disk.AddFolder("/s");
    vfs = *DiskVfs::Register(disk, clock, rng);
  }
  StatusOr<std::unique_ptr<AccountStore>> Open() { return AccountStore::Open(kPath, disk, vfs->name()); }
  // Formats "20/ann:1 20/bob:2", with the runs.
  std::string Text(const AccountQuery& query = {"", 0, 1'000'000, {}, 1'000}) {
    const auto found = ReadAccounts(kPath, query, disk, vfs->name());
    if (!found.ok()) {
      return found.status().ToString();
    }
    std::string text;
    for (const auto& [key, use] : *found) {
      text +=
          (text.empty() ? "" : " ") + std::to_string(key.first) + "/" + key.second + ":" + std::to_string(use[kRuns]);
    }
    return text;
  }

  ManualClock clock;
  SeededRng rng;
  SimDisk disk;
  std::unique_ptr<DiskVfs> vfs;
};

AccountUse Runs(uint64_t count) {
  AccountUse use{};
  use[kRuns] = count;
  return use;
}

TEST(AccountStoreTest, AddsToWhatThereIs) {
  World world(1);
  EXPECT_EQ(world.Text(), "");  // There is no file.
  auto store = world.Open();
  ASSERT_TRUE(store.ok()) << store.status();
  AccountUse use;
  for (size_t i = 0; i < kAccountFields; ++i) {
    use[i] = i + 1;
  }
  ASSERT_TRUE((*store)->Add({{{20, "ann"}, use}, {{20, "bob"}, Runs(2)}}).ok());
  ASSERT_TRUE((*store)->Add({{{20, "ann"}, use}, {{21, "ann"}, Runs(5)}}).ok());
  EXPECT_EQ((*store)->batches(), 2u);
  EXPECT_EQ(world.Text(), "20/ann:16 20/bob:2 21/ann:5");
  const auto found = ReadAccounts(kPath, {"ann", 20, 20, {}, 10}, world.disk, world.vfs->name());
  ASSERT_TRUE(found.ok() && found->size() == 1);
  EXPECT_THAT(found->front().second, testing::ElementsAre(2, 4, 6, 8, 10, 12, 14, 16));
}

// Implausibly large amounts neither wrap nor become fractions.
TEST(AccountStoreTest, HugeAmountsStayIntegers) {
  World world(1);
  auto store = world.Open();
  ASSERT_TRUE(store.ok());
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE((*store)->Add({{{20, "ann"}, Runs(std::numeric_limits<uint64_t>::max())}}).ok());
  }
  EXPECT_EQ(world.Text(), "20/ann:" + std::to_string(uint64_t{1} << 61));
}

TEST(AccountStoreTest, ReadsByDayAndTenantInPages) {
  World world(1);
  auto store = world.Open();
  ASSERT_TRUE(store.ok());
  AccountUses uses;
  for (uint32_t day = 20; day < 23; ++day) {
    uses[{day, "ann"}] = uses[{day, "bob"}] = Runs(day);
  }
  ASSERT_TRUE((*store)->Add(uses).ok());
  EXPECT_EQ(world.Text({"", 21, 21, {}, 10}), "21/ann:21 21/bob:21");
  EXPECT_EQ(world.Text({"", 20, 30, {}, 3}), "20/ann:20 20/bob:20 21/ann:21");
  EXPECT_EQ(world.Text({"", 20, 30, {21, "ann"}, 3}), "21/bob:21 22/ann:22 22/bob:22");
  EXPECT_EQ(world.Text({"", 22, 30, {20, "ann"}, 9}), "22/ann:22 22/bob:22");  // The token of another query.
  EXPECT_EQ(world.Text({"bob", 0, 30, {}, 2}), "20/bob:20 21/bob:21");
  EXPECT_EQ(world.Text({"bob", 0, 30, {21, "bob"}, 2}), "22/bob:22");
  EXPECT_EQ(world.Text({"eve", 0, 30, {}, 2}), "");
}

// A day that a wrong clock made takes the place of one day; it does not make all others old.
TEST(AccountStoreTest, PrunesByDaysThatHaveEntries) {
  World world(1);
  auto store = world.Open();
  ASSERT_TRUE(store.ok());
  AccountUses uses;
  for (const uint32_t day : {20, 21, 22, 40'000}) {
    uses[{day, "ann"}] = uses[{day, "bob"}] = Runs(1);
  }
  ASSERT_TRUE((*store)->Add(uses).ok());
  ASSERT_TRUE((*store)->Prune(4).ok());
  EXPECT_THAT(world.Text(), testing::StartsWith("20/ann"));
  ASSERT_TRUE((*store)->Prune(3).ok());
  EXPECT_EQ(world.Text(), "21/ann:1 21/bob:1 22/ann:1 22/bob:1 40000/ann:1 40000/bob:1");
  ASSERT_TRUE((*store)->Prune(3, 3).ok());
  EXPECT_EQ(world.Text(), "22/bob:1 40000/ann:1 40000/bob:1");
  EXPECT_EQ((*store)->batches(), 1u);
}

// Loses power after every change of the disk: acknowledged batches are there, the batch in doubt is there completely
// or not at all, and the count of batches says which.
TEST(AccountStoreTest, PowerIsLostAfterEveryChange) {
  constexpr uint64_t kBatches = 4;
  bool reached_end = false;
  uint64_t crashes = 0, in_doubt = 0;
  for (uint64_t after = 0; !reached_end; ++after) {
    SCOPED_TRACE("power lost after " + std::to_string(after) + " changes");
    World world(after + 1);
    world.disk.PowerOffAfter(after);
    uint64_t acknowledged = 0;
    {
      auto store = world.Open();
      while (store.ok() && acknowledged < kBatches &&
             (*store)->Add({{{20, "ann"}, Runs(1)}, {{20, "bob"}, Runs(1)}}).ok()) {
        ++acknowledged;
      }
      reached_end = !world.disk.is_off();
      world.disk.PowerOffAfter(0);
    }
    world.disk.Crash(world.rng, after % 2 == 0 ? SimDisk::Keep::kAnything : SimDisk::Keep::kEverything);
    ++crashes;
    auto store = world.Open();
    ASSERT_TRUE(store.ok()) << store.status();
    const uint64_t batches = (*store)->batches();
    in_doubt += batches - acknowledged;
    EXPECT_GE(batches, acknowledged);
    EXPECT_LE(batches, acknowledged + 1);
    const std::string count = std::to_string(batches);
    EXPECT_EQ(world.Text(), batches == 0 ? "" : "20/ann:" + count + " 20/bob:" + count);
  }
  EXPECT_GT(crashes, 20u);
  EXPECT_GT(in_doubt, 0u);
}

TEST(AccountStoreTest, AnothersFileIsRefused) {
  World world(1);
  {
    const auto file = world.disk.Open(kPath, Disk::Mode::kOpenOrCreate);
    ASSERT_TRUE(file.ok());
    const std::string text(4096, 'x');
    ASSERT_TRUE((*file)->WriteAt(0, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}).ok());
  }
  EXPECT_FALSE(world.Open().ok());
  EXPECT_FALSE(ReadAccounts(kPath, {"", 0, 9, {}, 9}, world.disk, world.vfs->name()).ok());
}

}  // namespace
}  // namespace hpvm::server
