// SPDX-License-Identifier: Apache-2.0
// The store with its threads on a file of SQLite, and hosts with threads of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "server/cluster/sql/cluster_calls.h"
#include "server/cluster/sql/sql_call.h"
#include "server/cluster/sql/sql_cluster_store.h"
#include "server/cluster/sqlite/sqlite_session.h"
#include "server/cluster/testing/live_hosts.h"
#include "server/jobs/testing/temporary_folder.h"

namespace hpvm::server::cluster {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<NewJob> Jobs(int first, int count) {
  std::vector<NewJob> jobs;
  for (int i = first; i < first + count; ++i) {
    jobs.push_back({.tenant = "t" + std::to_string(i % 2), .id = "j" + std::to_string(i), .request = "r"});
    jobs.back().attempts_max = 5;
  }
  return jobs;
}

// Needs that take too many bytes, which is found out when the job is on its way into the tables.
Needs LongNeeds() {
  Needs needs;
  for (char c = 'a'; c <= 'z'; ++c) {
    needs.prefers.insert(std::string(100, c));
  }
  return needs;
}

class LiveStoreTest : public ::testing::Test {
 protected:
  SqlClusterStore::Connect Connect() {
    return [this]() -> StatusOr<std::unique_ptr<SqlSession>> {
      ++connects_;
      if (is_down_) {
        return Unavailable("The disk is away.");
      }
      return SqliteSession::Open(folder_.path() + "/cluster.db", RealDisk(), RealClock());
    };
  }
  std::unique_ptr<SqlClusterStore> Open(SqlClusterStoreOptions options = {}) {
    auto store = SqlClusterStore::Open(options, Connect());
    HPVMD_CHECK(store.ok());
    return *std::move(store);
  }
  static std::vector<JobView> Ends(ClusterStore& store, int count) {
    std::vector<JobView> ends;
    for (int i = 0; i < count; ++i) {
      const auto more =
          WaitForEnds(store, "t" + std::to_string(i % 2), {"j" + std::to_string(i)}, std::chrono::seconds(60));
      ends.insert(ends.end(), more.begin(), more.end());
    }
    return ends;
  }

  TemporaryFolder folder_;
  std::atomic<int> connects_ = 0;
  std::atomic<bool> is_down_ = false;
};

TEST_F(LiveStoreTest, EachJobRunsOnce) {
  const std::unique_ptr<SqlClusterStore> store = Open();
  RunLedger ledger;
  LiveHost one("one", "p1", {}, *store, ledger), two("two", "p2", {}, *store, ledger);
  for (int first = 0; first < 200; first += 50) {
    ASSERT_TRUE(SubmitAndWait(*store, Jobs(first, 50)).ok());
  }
  EXPECT_THAT(Ends(*store, 200), Each(Field(&JobView::state, JobState::kSucceeded)));
  EXPECT_EQ(ledger.starts(), 200u);
  EXPECT_THAT(ledger.doubles(), IsEmpty());
}

// A host that ends without a word is replaced when its lease ends; what it ran is tried again.
TEST_F(LiveStoreTest, JobsOfALostHostRunElsewhere) {
  SqlClusterStoreOptions options;
  options.store.lease = std::chrono::seconds(1);
  options.store.retry_after = std::chrono::milliseconds(1);
  const std::unique_ptr<SqlClusterStore> store = Open(options);
  RunLedger ledger;
  auto lost =
      std::make_unique<LiveHost>("one", "p1", LiveHostOptions{.run_time = std::chrono::hours(1)}, *store, ledger);
  ASSERT_TRUE(SubmitAndWait(*store, Jobs(0, 20)).ok());
  while (ledger.starts() < 8) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  lost = nullptr;
  LiveHost two("two", "p2", {}, *store, ledger);
  EXPECT_THAT(Ends(*store, 20), Each(Field(&JobView::state, JobState::kSucceeded)));
  EXPECT_EQ(ledger.starts(), 28u);
  EXPECT_THAT(ledger.doubles(), IsEmpty());
}

TEST_F(LiveStoreTest, DrainedHostsGiveTheirJobsBack) {
  const std::unique_ptr<SqlClusterStore> store = Open();
  RunLedger ledger;
  LiveHost one("one", "p1", {.run_time = std::chrono::hours(1)}, *store, ledger);
  ASSERT_TRUE(SubmitAndWait(*store, Jobs(0, 4)).ok());
  while (ledger.starts() < 4) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  one.loop().Drain(/*gives_back=*/true);
  EXPECT_TRUE(one.loop().WaitUntilLeft(std::chrono::seconds(20)));
  const JobView view = *GetAndWait(*store, "t0", "j0");
  EXPECT_EQ(view.state, JobState::kWaiting);
  EXPECT_EQ(view.attempts, 0u);
}

TEST_F(LiveStoreTest, JobsSurviveTheStore) {
  {
    const std::unique_ptr<SqlClusterStore> store = Open();
    ASSERT_TRUE(SubmitAndWait(*store, Jobs(0, 1)).ok());
  }
  EXPECT_EQ(GetAndWait(*Open(), "t0", "j0")->state, JobState::kWaiting);
}

TEST_F(LiveStoreTest, CallsAreRefusedBeforeTheQueueIsEndless) {
  const std::unique_ptr<SqlClusterStore> store = Open({.queue_max = 0});
  const Status refused = GetAndWait(*store, "t0", "j0").status();
  EXPECT_TRUE(absl::IsUnavailable(refused));
  EXPECT_THAT(Message(refused), HasSubstr("which is the limit"));
}

TEST_F(LiveStoreTest, AFileOfAnotherProgramIsRefused) {
  ASSERT_TRUE(SqliteConnection::Open(folder_.path() + "/cluster.db", "", SqliteConnection::Mode::kWriter)
                  .value()
                  ->Execute("CREATE TABLE other(x)")
                  .ok());
  const Status refused = SqlClusterStore::Open({}, Connect()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(Message(refused), HasSubstr("not a job database of a cluster"));
}

// One submit of a group is refused, and the others are stored.
TEST_F(LiveStoreTest, GroupsKeepTheirMembersApart) {
  const std::unique_ptr<SqlClusterStore> store = Open();
  std::atomic<int> stored = 0, refused = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<NewJob> jobs = Jobs(i, 1);
    if (i % 3 == 0) {
      jobs[0].after = {{"nobody", Dependency::Condition::kEnded}};
    }
    store->Submit(jobs, [&](const auto& views) { ++(views.ok() ? stored : refused); });
  }
  while (stored + refused < 200) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(refused, 67);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(GetAndWait(*store, "t" + std::to_string(i % 2), "j" + std::to_string(i)).ok(), i % 3 != 0) << i;
  }
}

// The second job of a batch is refused when the first one is in the tables already.
TEST_F(LiveStoreTest, ARefusedBatchLeavesNothing) {
  const std::unique_ptr<SqlClusterStore> store = Open();
  store->SetLimits("t0", {.waiting_max = 1}, [](const auto&) {});
  std::vector<NewJob> jobs = Jobs(0, 2);
  jobs[1].needs = LongNeeds();
  EXPECT_TRUE(absl::IsInvalidArgument(SubmitAndWait(*store, jobs).status()));
  EXPECT_TRUE(absl::IsNotFound(GetAndWait(*store, "t0", "j0").status()));
  EXPECT_TRUE(SubmitAndWait(*store, Jobs(0, 1)).ok());
}

// Calls share a transaction: what a refused one has found out is forgotten.
TEST_F(LiveStoreTest, ARefusedCallLeavesNothingToTheNext) {
  std::vector<NewJob> refused = Jobs(0, 1), good = Jobs(0, 1);
  refused[0].needs.host = good[0].needs.host = "one";
  refused.push_back(Jobs(2, 1)[0]);
  refused[1].needs = LongNeeds();
  std::vector<std::unique_ptr<SqlCall>> calls;
  calls.push_back(SubmitCall(refused, [](const auto& views) { EXPECT_FALSE(views.ok()); }));
  calls.push_back(SubmitCall(good, [](const auto& views) { EXPECT_TRUE(views.ok()); }));
  const std::unique_ptr<SqlClusterStore> store = Open();  // It makes the tables.
  ASSERT_TRUE(RunCalls(**Connect()(), {}, nullptr, calls).ok());
  RunLedger ledger;
  LiveHost one("one", "p1", {}, *store, ledger);
  EXPECT_THAT(Ends(*store, 1), Each(Field(&JobView::state, JobState::kSucceeded)));
}

// A list of claims that was read without a lock may be old when the lock is there.
TEST_F(LiveStoreTest, EndedJobsAreNotTakenBack) {
  const std::unique_ptr<SqlClusterStore> store = Open();
  RunLedger ledger;
  LiveHost one("one", "p1", {}, *store, ledger);
  ASSERT_TRUE(SubmitAndWait(*store, Jobs(0, 1)).ok());
  Ends(*store, 1);
  const std::unique_ptr<SqlSession> session = *Connect()();
  const ClusterStoreOptions options;
  ClusterTransaction transaction(*session, options, nullptr);
  ASSERT_TRUE(transaction.Begin().ok());
  const HostRow host = **transaction.LockHost("one");
  ASSERT_TRUE(TakeBackClaims(transaction, host, {{"t0", "j0"}}, /*counts=*/true).ok());
  EXPECT_EQ((*transaction.FindJob("t0", "j0"))->view.state, JobState::kSucceeded);
}

}  // namespace
}  // namespace hpvm::server::cluster
