// SPDX-License-Identifier: Apache-2.0
// Tests of which usage is counted on which day, over restarts, failures and clocks that jump.
#include "server/accounts/accounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/state/run_outcome.h"
#include "server/jobs/testing/disk_vfs.h"
#include "server/testing/sim_disk.h"

namespace hpvm::server {
namespace {

using scheduler::Resource;

constexpr char kPath[] = "/s/accounts.sqlite";
constexpr int64_t kDayNs = 86'400'000'000'000;

class AccountsTest : public ::testing::Test {
 protected:
  AccountsTest() : rng_(1), disk_(1) {
    disk_.AddFolder("/s");
    vfs_ = *DiskVfs::Register(disk_, clock_, rng_);
    clock_.JumpWall(20 * kDayNs - clock_.WallNs());
    Start();
  }

  void Start() {
    AccountsOptions options;
    options.path = kPath;
    options.clock = &clock_;
    options.keep_days = [this] { return keep_days_; };
    options.spent = spent_;
    options.disk = &disk_;
    options.vfs = vfs_->name();
    accounts_ = std::make_unique<Accounts>(std::move(options));
  }
  void Spend(const std::string& tenant, Resource resource, uint64_t amount) {
    spent_[tenant].spent[static_cast<size_t>(resource)].used += amount;
  }
  void EndJob(const std::string& tenant, v1::JobState state) {
    v1::Job job;
    job.set_state(state);
    accounts_->On(events::JobChanged{.tenant = tenant, .job = job});
  }
  void EndRun(const std::string& tenant, const std::string& job_id = "") {
    const RunOutcome outcome;
    accounts_->On(
        events::RunEnded{.tenant = tenant, .job_id = job_id, .graph = "", .traceparent = "", .outcome = outcome});
  }
  void Keep() { accounts_->Keep(spent_); }
  // Adds a batch that only the number in the file reveals.
  void AddBatchBehindTheBack() {
    auto store = AccountStore::Open(kPath, disk_, vfs_->name());
    ASSERT_TRUE(store.ok()) << store.status();
    AccountUse use{};
    use[kRuns] = 1;
    ASSERT_TRUE((*store)->Add({{{20, "ann"}, use}}).ok());
  }
  // Returns the usage of one day and tenant.
  std::vector<uint64_t> Use(uint32_t day, const std::string& tenant) {
    const auto found = ReadAccounts(kPath, {tenant, day, day, {}, 1}, disk_, vfs_->name());
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() && !found->empty()
               ? std::vector<uint64_t>(found->front().second.begin(), found->front().second.end())
               : std::vector<uint64_t>();
  }

  ManualClock clock_;
  SeededRng rng_;
  SimDisk disk_;
  std::unique_ptr<DiskVfs> vfs_;
  uint64_t keep_days_ = 400;
  SpentByTenant spent_;  // Totals of the ledger.
  std::unique_ptr<Accounts> accounts_;
};

TEST_F(AccountsTest, CountsEverythingOnItsDay) {
  Spend("ann", Resource::kDeviceTime, 100);
  Spend("ann", Resource::kCompileTime, 10);
  Spend("ann", Resource::kRequests, 3);
  Spend("ann", Resource::kRequestBytes, 4096);
  Spend("ann", Resource::kDeviceBytes, 7);  // Held, not spent.
  EndJob("ann", v1::JOB_STATE_QUEUED);
  EndJob("ann", v1::JOB_STATE_RUNNING);
  EndJob("ann", v1::JOB_STATE_SUCCEEDED);
  EndJob("ann", v1::JOB_STATE_FAILED);
  EndJob("ann", v1::JOB_STATE_DEAD);
  EndJob("ann", v1::JOB_STATE_EXPIRED);
  EndJob("ann", v1::JOB_STATE_CANCELLED);
  EndRun("ann");
  EndRun("ann", "job-1");  // An attempt of a job.
  EndRun("bob");
  Keep();
  EXPECT_THAT(Use(20, "ann"), testing::ElementsAre(100, 10, 3, 4096, 1, 3, 1, 1));
  EXPECT_THAT(Use(20, "bob"), testing::ElementsAre(0, 0, 0, 0, 0, 0, 0, 1));
  clock_.Advance(Duration(kDayNs));
  Spend("ann", Resource::kDeviceTime, 5);
  Keep();
  EXPECT_THAT(Use(20, "ann"), testing::ElementsAre(100, 10, 3, 4096, 1, 3, 1, 1));
  EXPECT_THAT(Use(21, "ann"), testing::ElementsAre(5, 0, 0, 0, 0, 0, 0, 0));
}

// The ledger's totals from before the process are in the file already, or were lost with the previous process.
TEST_F(AccountsTest, ARestartCountsNothingTwice) {
  Spend("ann", Resource::kDeviceTime, 100);
  Keep();
  Start();
  Keep();
  Spend("ann", Resource::kDeviceTime, 1);
  EndRun("ann");
  Keep();
  EXPECT_THAT(Use(20, "ann"), testing::ElementsAre(101, 0, 0, 0, 0, 0, 0, 1));
}

// A tenant whose past the daemon forgot begins at zero; the difference must not wrap to 2^64.
TEST_F(AccountsTest, ATotalThatShrinksCountsNothing) {
  Spend("ann", Resource::kDeviceTime, 100);
  Keep();
  spent_["ann"] = TenantSpent();
  Keep();
  Spend("ann", Resource::kDeviceTime, 7);
  Keep();
  EXPECT_EQ(Use(20, "ann").at(kDeviceNs), 107u);
}

TEST_F(AccountsTest, AClockThatJumpsTakesNothingAway) {
  keep_days_ = 3;
  EndRun("ann");
  Keep();
  clock_.JumpWall(10'000 * kDayNs);
  EndRun("ann");
  Keep();
  clock_.JumpWall(-10'000 * kDayNs);
  EndRun("ann");
  Keep();
  clock_.JumpWall(-30 * kDayNs);  // Before 1970.
  EndRun("ann");
  Keep();
  EXPECT_EQ(Use(20, "ann").at(kRuns), 2u);
  EXPECT_EQ(Use(10'020, "ann").at(kRuns), 1u);
  EXPECT_EQ(Use(0, "ann").at(kRuns), 1u);
}

TEST_F(AccountsTest, OldDaysGo) {
  keep_days_ = 2;
  for (uint32_t day = 20; day < 24; ++day) {
    EndRun("ann");
    Keep();
    clock_.Advance(Duration(kDayNs));
  }
  EXPECT_TRUE(Use(21, "ann").empty());
  EXPECT_FALSE(Use(22, "ann").empty());
  keep_days_ = 1;  // Set by a reload.
  Keep();
  EXPECT_TRUE(Use(22, "ann").empty());
  EXPECT_FALSE(Use(23, "ann").empty());
}

// While the disk accepts nothing, the amounts wait, each with its day.
TEST_F(AccountsTest, WhatCannotBeWrittenWaits) {
  Keep();
  disk_.FailNth(SimDisk::Op::kWrite, 1, {.code = absl::StatusCode::kResourceExhausted, .for_ever = true});
  EndRun("ann");
  Spend("ann", Resource::kRequests, 2);
  Keep();
  clock_.Advance(Duration(kDayNs));
  EndRun("ann");
  Keep();
  disk_.ClearFaults();
  Keep();
  EXPECT_THAT(Use(20, "ann"), testing::ElementsAre(0, 0, 2, 0, 0, 0, 0, 1));
  EXPECT_THAT(Use(21, "ann"), testing::ElementsAre(0, 0, 0, 0, 0, 0, 0, 1));
}

// The outcome of a failed commit is unknown; the reopened file tells it. Each operation fails once.
TEST_F(AccountsTest, AnUnknownOutcomeCountsOnce) {
  for (uint64_t nth = 1; nth < 12; ++nth) {
    for (const SimDisk::Op op : {SimDisk::Op::kSync, SimDisk::Op::kWrite, SimDisk::Op::kRead}) {
      SCOPED_TRACE("operation " + std::to_string(nth));
      const std::string tenant = "t" + std::to_string(nth) + "-" + std::to_string(static_cast<int>(op));
      disk_.FailNth(op, nth, {});
      for (int i = 0; i < 3; ++i) {
        EndRun(tenant);
        Keep();
      }
      disk_.ClearFaults();
      Keep();
      EXPECT_EQ(Use(20, tenant), std::vector<uint64_t>({0, 0, 0, 0, 0, 0, 0, 3}));
    }
  }
}

// A batch that is in the file although writing it failed is not written again.
TEST_F(AccountsTest, ABatchThatArrivedIsNotSentAgain) {
  EndRun("ann");
  Keep();
  disk_.FailNth(SimDisk::Op::kWrite, 1, {.for_ever = true});
  EndRun("ann");
  Keep();
  disk_.ClearFaults();
  AddBatchBehindTheBack();  // It stands for the second batch.
  EndRun("ann");
  Keep();
  EXPECT_EQ(Use(20, "ann").at(kRuns), 3u);
}

TEST(DayOfTest, BeginsAtMidnight) {
  EXPECT_EQ(DayOf(-5), 0u);
  EXPECT_EQ(DayOf(20 * kDayNs - 1), 19u);
  EXPECT_EQ(DayOf(20 * kDayNs), 20u);
}

}  // namespace
}  // namespace hpvm::server
