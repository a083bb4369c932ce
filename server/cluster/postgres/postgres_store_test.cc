// SPDX-License-Identifier: Apache-2.0
// The cluster's store on a real PostgreSQL: its promises, several daemons at once, and a database that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "server/cluster/postgres/postgres_listener.h"
#include "server/cluster/postgres/postgres_session.h"
#include "server/cluster/postgres/testing/postgres_server.h"
#include "server/cluster/sql/cluster_schema.h"
#include "server/cluster/sql/sql_cluster_store.h"
#include "server/cluster/testing/clocked_session.h"
#include "server/cluster/testing/cluster_store_promises.h"
#include "server/cluster/testing/direct_sql_store.h"
#include "server/cluster/testing/live_hosts.h"

namespace hpvm::server::cluster {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PostgresServer& Server() {
  StatusOr<PostgresServer*> server = PostgresServer::Shared();
  HPVMD_CHECK(server.ok());
  return **server;
}

// Returns the options for a database without tables.
PostgresOptions EmptyDatabase() {
  HPVMD_CHECK(Server().CreateDatabase("cluster").ok());
  PostgresOptions options;
  options.dsn = Server().dsn("cluster");
  return options;
}

std::unique_ptr<CheckedClusterStore> MakePostgres(ClusterStoreOptions options, const ManualClock& clock) {
  auto session = PostgresSession::Open(EmptyDatabase());
  HPVMD_CHECK(session.ok());
  return std::make_unique<DirectSqlStore>(options, std::make_unique<ClockedSession>(*std::move(session), clock));
}

INSTANTIATE_TEST_SUITE_P(Postgres, ClusterStorePromises, ::testing::Values(StoreFactory(&MakePostgres)));

std::vector<NewJob> Jobs(int first, int count) {
  std::vector<NewJob> jobs;
  for (int i = first; i < first + count; ++i) {
    jobs.push_back({.tenant = "t" + std::to_string(i % 3), .id = "j" + std::to_string(i), .request = "r"});
    jobs.back().attempts_max = 20;
  }
  return jobs;
}

class PostgresStoreTest : public ::testing::Test {
 protected:
  // A daemon's store; each has connections of its own.
  std::unique_ptr<SqlClusterStore> Daemon(uint32_t connections = 2) {
    SqlClusterStoreOptions options;
    options.connections = connections;
    options.store.lease = std::chrono::seconds(2);
    options.store.retry_after = std::chrono::milliseconds(1);
    auto store = SqlClusterStore::Open(
        options, [this]() -> StatusOr<std::unique_ptr<SqlSession>> { return PostgresSession::Open(database_); });
    HPVMD_CHECK(store.ok());
    return *std::move(store);
  }
  static std::vector<JobView> Ends(ClusterStore& store, int count) {
    std::vector<JobView> ends;
    for (int i = 0; i < count; ++i) {
      const auto more =
          WaitForEnds(store, "t" + std::to_string(i % 3), {"j" + std::to_string(i)}, std::chrono::seconds(120));
      ends.insert(ends.end(), more.begin(), more.end());
    }
    return ends;
  }

  PostgresOptions database_ = EmptyDatabase();
  RunLedger ledger_;
};

TEST_F(PostgresStoreTest, DaemonsShareTheWork) {
  const auto first = Daemon(), second = Daemon(), third = Daemon();
  LiveHost one("one", "p1", {}, *first, ledger_), two("two", "p2", {}, *second, ledger_),
      three("three", "p3", {}, *third, ledger_);
  const std::vector<ClusterStore*> daemons = {first.get(), second.get(), third.get()};
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(SubmitAndWait(*daemons[static_cast<size_t>(i % 3)], Jobs(20 * i, 20)).ok());
  }
  EXPECT_THAT(Ends(*second, 600), Each(Field(&JobView::state, JobState::kSucceeded)));
  EXPECT_EQ(ledger_.starts(), 600u);
  EXPECT_THAT(ledger_.doubles(), IsEmpty());
}

// Hosts come and go without a word; each job has one effect, that of its last claim.
TEST_F(PostgresStoreTest, JobsOfLostHostsRunElsewhere) {
  const auto store = Daemon(4);
  std::vector<std::unique_ptr<LiveHost>> hosts(3);
  const LiveHostOptions slow{.run_time = std::chrono::milliseconds(30)};
  for (size_t host = 0; host < 3; ++host) {
    hosts[host] =
        std::make_unique<LiveHost>("h" + std::to_string(host), "p" + std::to_string(host), slow, *store, ledger_);
  }
  ASSERT_TRUE(SubmitAndWait(*store, Jobs(0, 300)).ok());
  for (size_t round = 0; round < 6; ++round) {
    // Also on a machine so busy that nothing starts for a while.
    ASSERT_TRUE(WaitForStarts(ledger_, ledger_.starts() + 20, std::chrono::seconds(20)).ok());
    const size_t host = round % 3;
    const std::string process = "p" + std::to_string(host) + "." + std::to_string(round);
    hosts[host] = nullptr;
    hosts[host] = std::make_unique<LiveHost>("h" + std::to_string(host), process, slow, *store, ledger_);
  }
  const std::vector<JobView> ends = Ends(*store, 300);
  EXPECT_THAT(ends, Each(Field(&JobView::state, JobState::kSucceeded)));
  for (const JobView& job : ends) {
    EXPECT_EQ(job.result, job.id + "/" + std::to_string(job.fence));
  }
  EXPECT_GT(ledger_.starts(), 300u);
  EXPECT_THAT(ledger_.doubles(), IsEmpty());
}

// The database crashes under work and comes back: calls are answered with errors meanwhile, and nothing is lost.
TEST_F(PostgresStoreTest, AcknowledgedJobsSurviveCrashesOfTheDatabase) {
  ASSERT_TRUE(Server().Run({"ALTER SYSTEM SET fsync = on", "SELECT pg_reload_conf()"}).ok());
  const auto first = Daemon(), second = Daemon();
  LiveHost one("one", "p1", {}, *first, ledger_), two("two", "p2", {}, *second, ledger_);
  int acknowledged = 0, refused = 0;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 10; ++i) {
      // As a client does, which may send a batch again.
      StatusOr<std::vector<JobView>> submitted = SubmitAndWait(*first, Jobs(acknowledged, 10));
      for (int tries = 0; !submitted.ok() && tries < 50; ++tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        submitted = SubmitAndWait(*first, Jobs(acknowledged, 10));
      }
      ASSERT_TRUE(submitted.ok()) << Message(submitted.status());
      acknowledged += 10;
    }
    Server().Kill();
    refused += SubmitAndWait(*second, Jobs(10'000 + round, 1)).ok() ? 0 : 1;
    ASSERT_TRUE(Server().Start().ok());
    while (!GetAndWait(*first, "t0", "j0").ok()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  EXPECT_EQ(refused, 3);
  const std::vector<JobView> ends = Ends(*second, acknowledged);
  EXPECT_THAT(ends, Each(Field(&JobView::state, JobState::kSucceeded)));
  EXPECT_THAT(ledger_.doubles(), IsEmpty());
  ASSERT_TRUE(Server().Run({"ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()"}).ok());
}

// A change is told to those who listen, with the tenant's name.
TEST_F(PostgresStoreTest, ListenersHearOfChanges) {
  const auto store = Daemon();
  std::atomic<int> gaps = 0, jobs = 0, events = 0;
  const auto listener = PostgresListener::Start(database_, {kClusterChannel},
                                                {.on_notice =
                                                     [&](const std::string&, const std::string& payload) {
                                                       jobs += payload == "+t0" ? 1 : 0;
                                                       events += payload == "t0" ? 1 : 0;
                                                     },
                                                 .on_gap = [&] { ++gaps; }});
  ASSERT_TRUE(listener.ok());
  while (gaps == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_TRUE(SubmitAndWait(*store, Jobs(0, 1)).ok());
  while (jobs == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(events, 0);
  LiveHost one("one", "p1", {}, *store, ledger_);
  Ends(*store, 1);
  while (events < 2) {  // It runs, and has ended.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(jobs, 1);
}

TEST_F(PostgresStoreTest, TablesOfALaterReleaseAreRefused) {
  const std::unique_ptr<PostgresSession> session = *PostgresSession::Open(database_);
  ASSERT_TRUE(MigrateClusterSchema(*session).ok());
  ASSERT_TRUE(session->Execute("UPDATE cluster_meta SET value = 7 WHERE name = 'version'").ok());
  EXPECT_TRUE(MigrateClusterSchema(*session).ok());  // A later release that keeps what this one needs.
  ASSERT_TRUE(session->Execute("UPDATE cluster_meta SET value = 5 WHERE name = 'least_version'").ok());
  const Status refused = MigrateClusterSchema(*session);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(Message(refused), HasSubstr("have version 7 and need a release that knows version 5"));
}

TEST_F(PostgresStoreTest, DaemonsMakeTheTablesOnce) {
  std::vector<std::thread> daemons;
  std::atomic<int> failed = 0;
  for (int i = 0; i < 8; ++i) {
    daemons.emplace_back([&] {
      const auto session = PostgresSession::Open(database_);
      failed += session.ok() && MigrateClusterSchema(**session).ok() ? 0 : 1;
    });
  }
  for (std::thread& daemon : daemons) {
    daemon.join();
  }
  EXPECT_EQ(failed, 0);
}

// The role of an agent claims, runs and ends jobs, sweeps, and can do nothing else.
TEST_F(PostgresStoreTest, AgentsHaveARoleOfTheirOwn) {
  const auto owner = Daemon();
  const std::unique_ptr<PostgresSession> session = *PostgresSession::Open(database_);
  (void)session->Execute("CREATE ROLE agent LOGIN").ok();  // An earlier run of this test may have made it.
  ASSERT_TRUE(GrantToAgents(*session, "agent").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(GrantToAgents(*session, "agent; DROP TABLE cluster_jobs")));
  PostgresOptions as_agent = database_;
  as_agent.dsn += " user=agent";
  SqlClusterStoreOptions options;
  options.store.keep_ended = Duration{0};  // Sweeps forget jobs, too.
  const auto agents = SqlClusterStore::Open(
      options, [&]() -> StatusOr<std::unique_ptr<SqlSession>> { return PostgresSession::Open(as_agent); });
  ASSERT_TRUE(agents.ok()) << Message(agents.status());
  LiveHost one("one", "p1", {}, **agents, ledger_);
  ASSERT_TRUE(SubmitAndWait(*owner, Jobs(0, 20)).ok());
  ASSERT_TRUE(WaitForStarts(ledger_, 20, std::chrono::seconds(60)).ok());
  while (GetAndWait(*owner, "t1", "j1").ok()) {  // Until it is forgotten.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::string refused = Message(SubmitAndWait(**agents, Jobs(100, 1)).status());
  EXPECT_THAT(refused, HasSubstr("permission denied"));
  const std::unique_ptr<PostgresSession> direct = *PostgresSession::Open(as_agent);
  for (const char* statement :
       {"UPDATE cluster_tenants SET running_max = 1", "UPDATE cluster_jobs SET request = ''", "DROP TABLE cluster_jobs",
        "UPDATE cluster_jobs SET held = 0", "UPDATE cluster_jobs SET hold = ''",
        "INSERT INTO cluster_waits(tenant, job, waiter, condition) VALUES('t', 'a', 'b', 0)"}) {
    EXPECT_FALSE(direct->Execute(statement).ok()) << statement;
  }
}

}  // namespace
}  // namespace hpvm::server::cluster

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (!hpvm::server::cluster::PostgresServer::IsInstalled()) {
    std::puts("PostgreSQL is not installed; nothing is tested.");
    return 0;
  }
  return RUN_ALL_TESTS();
}
