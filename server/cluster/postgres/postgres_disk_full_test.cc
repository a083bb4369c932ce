// SPDX-License-Identifier: Apache-2.0
// The cluster's store on a PostgreSQL whose disk is full for a while. It needs root, for a disk in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "server/cluster/postgres/postgres_session.h"
#include "server/cluster/postgres/testing/postgres_server.h"
#include "server/cluster/sql/sql_cluster_store.h"
#include "server/cluster/testing/live_hosts.h"

namespace hpvm::server::cluster {
namespace {

constexpr uint64_t kDiskBytes = 80 << 20;
constexpr size_t kFilledBytes = 2 << 20;
constexpr size_t kRequestBytes = 64 << 10;
constexpr Duration kFullFor = std::chrono::seconds(3);
constexpr Duration kEndMax = std::chrono::seconds(60);

// Takes more of the disk, or what is left of it, as another program would.
void FillDisk(const std::string& file) {
  std::ofstream filler(file, std::ios::app | std::ios::binary);
  for (const size_t bytes : {kFilledBytes, size_t{64} << 10, size_t{512}}) {
    const std::string block(bytes, 'x');
    bool has_room = true;
    for (size_t written = 0; has_room && written < kFilledBytes; written += bytes) {
      has_room = filler.write(block.data(), static_cast<std::streamsize>(bytes)).flush().good();
    }
    if (has_room) {
      return;
    }
    filler.clear();
  }
}

// A job with a request that PostgreSQL cannot make shorter.
NewJob LargeJob(int number) {
  std::minstd_rand random(static_cast<uint32_t>(number) + 1);
  NewJob job;
  job.tenant = "t";
  job.id = "large" + std::to_string(number);
  job.attempts_max = 20;
  job.request.resize(kRequestBytes);
  std::ranges::generate(job.request, [&] { return static_cast<char>(random()); });
  return job;
}

// The parameter says whether the server's log needs room too, and not only its tables: the server ends all its sessions
// then, starts anew, and ends when it still finds no room.
class PostgresDiskFullTest : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Logs, PostgresDiskFullTest, ::testing::Bool());

TEST_P(PostgresDiskFullTest, NothingAcknowledgedIsLost) {
  const auto made = PostgresServer::Make(
      {.has_fsync = true, .settings = {{"min_wal_size", "16MB"}, {"max_wal_size", "32MB"}}, .disk_bytes = kDiskBytes});
  if (absl::IsFailedPrecondition(made.status())) {
    GTEST_SKIP() << Message(made.status());
  }
  ASSERT_TRUE(made.ok()) << Message(made.status());
  PostgresServer& server = **made;
  PostgresOptions database;
  database.dsn = server.dsn();
  SqlClusterStoreOptions options{.store = {}, .connections = 2};
  options.store.lease = std::chrono::seconds(2);
  options.store.retry_after = std::chrono::milliseconds(1);
  const auto opened = SqlClusterStore::Open(
      options, [&]() -> StatusOr<std::unique_ptr<SqlSession>> { return PostgresSession::Open(database); });
  ASSERT_TRUE(opened.ok());
  SqlClusterStore& store = **opened;
  RunLedger ledger;
  const LiveHostOptions slow{.run_time = std::chrono::milliseconds(20)};
  LiveHost one("one", "p1", slow, store, ledger), two("two", "p2", slow, store, ledger);

  std::vector<std::string> acknowledged;
  int number = 0;
  const auto submit = [&] {
    const NewJob job = LargeJob(number++);
    const Status submitted = SubmitAndWait(store, {job}).status();
    if (submitted.ok()) {
      acknowledged.push_back(job.id);
    }
    return submitted;
  };
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(submit().ok());
  }
  ASSERT_TRUE(server.Run({"CHECKPOINT"}).ok());  // Makes files of the log for later.
  int refused = 0, exhausted = 0;
  const std::string file = server.data() + "/filler";
  const Time end = RealClock().Now() + kFullFor;
  while (RealClock().Now() < end) {
    FillDisk(file);
    if (GetParam()) {
      (void)server.Ask("SELECT pg_switch_wal()");
    }
    if (const Status submitted = submit(); !submitted.ok()) {
      ++refused;
      exhausted += absl::IsResourceExhausted(submitted) ? 1 : 0;
      EXPECT_TRUE(absl::IsResourceExhausted(submitted) || absl::IsUnavailable(submitted)) << submitted;
      EXPECT_TRUE(Message(submitted).ends_with(".")) << submitted;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(exhausted < refused, GetParam()) << exhausted << " of " << refused;

  ASSERT_EQ(std::remove(file.c_str()), 0);
  const Time started = RealClock().Now() + kEndMax;
  while (!submit().ok() && RealClock().Now() < started) {
    ASSERT_TRUE(server.Start().ok());  // It may have ended.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const std::vector<JobView> ends = WaitForEnds(store, "t", acknowledged, kEndMax);
  ASSERT_EQ(ends.size(), acknowledged.size());
  for (size_t i = 0; i < ends.size(); ++i) {
    EXPECT_EQ(ends[i].state, JobState::kSucceeded) << acknowledged[i];
    EXPECT_EQ(ends[i].result, acknowledged[i] + "/" + std::to_string(ends[i].fence));
  }
  EXPECT_THAT(ledger.doubles(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace hpvm::server::cluster
