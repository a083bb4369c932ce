// SPDX-License-Identifier: Apache-2.0
// The cluster's store when a standby of PostgreSQL takes over: all that was acknowledged is kept or not, as the
// settings say, and the daemons go on by themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "server/cluster/postgres/postgres_session.h"
#include "server/cluster/postgres/testing/postgres_server.h"
#include "server/cluster/sql/sql_cluster_store.h"
#include "server/cluster/testing/clocked_session.h"
#include "server/cluster/testing/live_hosts.h"

namespace hpvm::server::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Duration kSoon = std::chrono::seconds(30);
constexpr char kMayLack[] = "a standby that takes over may lack the last transactions. Jobs accepted in them are";

NewJob Job(const std::string& id) {
  NewJob job;
  job.tenant = "t";
  job.id = id;
  job.request = "r";
  job.attempts_max = 20;
  return job;
}

std::vector<std::string> Ids(const std::string& prefix, int first, int count) {
  std::vector<std::string> ids;
  for (int i = first; i < first + count; ++i) {
    ids.push_back(prefix + std::to_string(i));
  }
  return ids;
}

std::vector<NewJob> Jobs(const std::vector<std::string>& ids) {
  std::vector<NewJob> jobs;
  for (const std::string& id : ids) {
    jobs.push_back(Job(id));
  }
  return jobs;
}

template <typename Condition>
bool Eventually(Condition condition) {
  const Time end = RealClock().Now() + kSoon;
  while (!condition()) {
    if (RealClock().Now() >= end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// Calls the store until it is available, as clients do: each of its connections finds the new primary by itself.
template <typename T>
StatusOr<T> Ask(const std::function<void(ClusterStore::Done<T>)>& call) {
  StatusOr<T> answer = Unavailable("There is no answer.");
  EXPECT_TRUE(Eventually([&] {
    const auto promise = std::make_shared<std::promise<StatusOr<T>>>();
    call([promise](StatusOr<T> value) { promise->set_value(std::move(value)); });
    answer = promise->get_future().get();
    return !absl::IsUnavailable(answer.status());
  }));
  return answer;
}

StatusOr<std::vector<JobView>> Submit(ClusterStore& store, const std::vector<NewJob>& jobs) {
  return Ask<std::vector<JobView>>([&](auto done) { store.Submit(jobs, done); });
}

StatusOr<JobView> Get(ClusterStore& store, const std::string& id) {
  return Ask<JobView>([&](auto done) { store.Get("t", id, done); });
}

StatusOr<Lease> Join(ClusterStore& store, const std::string& name, uint64_t joins) {
  Worker worker;
  worker.name = name;
  worker.process = "p";
  worker.joins = joins;
  return Ask<Lease>([&](auto done) { store.Join(worker, done); });
}

Status Renew(ClusterStore& store, const std::string& name, uint64_t incarnation) {
  RenewRequest request;
  request.worker = name;
  request.incarnation = incarnation;
  return Ask<Renewal>([&](auto done) { store.Renew(request, done); }).status();
}

Status Claim(ClusterStore& store, const std::string& name, uint64_t incarnation) {
  return Ask<Claims>([&](auto done) {
           store.Claim({.worker = name, .incarnation = incarnation, .number = 1, .jobs_max = 1}, done);
         })
      .status();
}

// Each job has one effect, that of its last claim.
void ExpectEachSucceeded(ClusterStore& store, const std::vector<std::string>& ids) {
  for (const JobView& job : WaitForEnds(store, "t", ids, kSoon)) {
    EXPECT_EQ(job.state, JobState::kSucceeded) << job.id;
    EXPECT_EQ(job.result, job.id + "/" + std::to_string(job.fence));
  }
}

// Submits batches, one after the other, and notes which were acknowledged.
class Submitter {
 public:
  explicit Submitter(ClusterStore& store) : store_(store), thread_([this] { Work(); }) {}
  ~Submitter() { Stop(); }
  Submitter(const Submitter&) = delete;

  void Stop() {
    stops_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  std::vector<std::string> acknowledged() const {
    const std::lock_guard lock(mutex_);
    return acknowledged_;
  }
  int refused() const { return refused_; }

 private:
  void Work() {
    for (int i = 0; !stops_; i += 5) {
      const std::vector<std::string> ids = Ids("j", i, 5);
      if (SubmitAndWait(store_, Jobs(ids)).ok()) {
        const std::lock_guard lock(mutex_);
        acknowledged_.insert(acknowledged_.end(), ids.begin(), ids.end());
      } else {
        ++refused_;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  ClusterStore& store_;
  mutable std::mutex mutex_;
  std::vector<std::string> acknowledged_;  // Guarded by mutex_.
  std::atomic<bool> stops_ = false;
  std::atomic<int> refused_ = 0;
  std::thread thread_;  // Last: it uses the others.
};

// The time of the machine, and so of the test's databases, with an error.
class WrongClock final : public Clock {
 public:
  explicit WrongClock(Duration error) : error_(error) {}
  Time Now() const override { return RealClock().Now(); }
  int64_t WallNs() const override { return RealClock().WallNs() + error_.count(); }

 private:
  const Duration error_;
};

class PostgresFailoverTest : public ::testing::Test {
 protected:
  // The databases wait for their disks, so that the only warnings are those about standbys.
  void MakeServers(bool is_synchronous) {
    auto primary = PostgresServer::Make({.has_fsync = true, .settings = {}});
    ASSERT_TRUE(primary.ok()) << Message(primary.status());
    primary_ = *std::move(primary);
    auto standby = primary_->MakeStandby();
    ASSERT_TRUE(standby.ok()) << Message(standby.status());
    standby_ = *std::move(standby);
    const Status streams = primary_->WaitForStandby(is_synchronous);
    ASSERT_TRUE(streams.ok()) << Message(streams);
    options_.store.lease = std::chrono::seconds(2);
    options_.store.retry_after = std::chrono::milliseconds(1);
  }

  StatusOr<std::unique_ptr<PostgresSession>> Connect() const {
    PostgresOptions options;
    options.dsn = "host=" + primary_->folder() + "," + standby_->folder() + " port=5432 user=postgres dbname=postgres";
    return PostgresSession::Open(options);
  }

  // A daemon's store. Its connections see the database's clock through `wrong_clock_` when there is one.
  std::unique_ptr<SqlClusterStore> Daemon() {
    auto store = SqlClusterStore::Open(options_, [this]() -> StatusOr<std::unique_ptr<SqlSession>> {
      HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<SqlSession> session, Connect());
      const Clock* const clock = wrong_clock_;
      return clock == nullptr ? std::move(session) : std::make_unique<ClockedSession>(std::move(session), *clock);
    });
    HPVMD_CHECK(store.ok());
    return *std::move(store);
  }

  std::vector<std::string> Warnings() const {
    const auto session = Connect();
    return session.ok() ? (*session)->durability().Warnings() : std::vector<std::string>{Message(session.status())};
  }

  Status FailOver() {
    primary_->KillAll();
    return standby_->Promote();
  }

  // Waits until the standby has all that the primary has by now.
  bool HasCaughtUp() {
    const std::string end = *primary_->Ask("SELECT pg_current_wal_lsn()");
    return Eventually([&] { return *standby_->Ask("SELECT pg_last_wal_replay_lsn() >= '" + end + "'") == "t"; });
  }

  std::unique_ptr<PostgresServer> primary_, standby_;
  SqlClusterStoreOptions options_{.store = {}, .connections = 2};
  std::atomic<const Clock*> wrong_clock_ = nullptr;
  RunLedger ledger_;
};

// With a synchronous standby no acknowledged job is lost, none has two effects, and none runs twice at a time.
TEST_F(PostgresFailoverTest, ASynchronousStandbyHasAllThatWasAcknowledged) {
  ASSERT_NO_FATAL_FAILURE(MakeServers(/*is_synchronous=*/true));
  EXPECT_THAT(Warnings(), IsEmpty());
  const auto first = Daemon(), second = Daemon();
  const LiveHostOptions slow{.run_time = std::chrono::milliseconds(20)};
  LiveHost one("one", "p1", slow, *first, ledger_), two("two", "p2", slow, *second, ledger_);
  Submitter left(*first);
  ASSERT_TRUE(Eventually([&] { return left.acknowledged().size() >= 200; }));
  primary_->KillAll();
  ASSERT_TRUE(Eventually([&] { return left.refused() > 0; }));
  const size_t before = left.acknowledged().size();
  const Status promoted = standby_->Promote();
  ASSERT_TRUE(promoted.ok()) << Message(promoted);
  ASSERT_TRUE(Eventually([&] { return left.acknowledged().size() >= before + 100; }));
  left.Stop();
  ExpectEachSucceeded(*second, left.acknowledged());
  EXPECT_THAT(ledger_.doubles(), IsEmpty());
  // The new primary has no standby, and says so.
  EXPECT_THAT(Warnings(), ElementsAre(HasSubstr(kMayLack)));
}

// An asynchronous standby may lack acknowledged jobs, as the warning says. The store works on, and a client that
// submits again, under the same keys, gets its jobs made once.
TEST_F(PostgresFailoverTest, AnAsynchronousStandbyLacksWhatTheWarningSays) {
  ASSERT_NO_FATAL_FAILURE(MakeServers(/*is_synchronous=*/false));
  EXPECT_THAT(Warnings(), ElementsAre(HasSubstr(kMayLack)));
  const auto first = Daemon(), second = Daemon();
  LiveHost one("one", "p1", {}, *first, ledger_), two("two", "p2", {}, *second, ledger_);
  const std::vector<std::string> kept = Ids("kept", 0, 50), lost = Ids("lost", 0, 20);
  ASSERT_TRUE(Submit(*first, Jobs(kept)).ok());
  ExpectEachSucceeded(*first, kept);
  ASSERT_TRUE(HasCaughtUp());
  ASSERT_TRUE(standby_->StopReceiving().ok());
  std::vector<NewJob> jobs = Jobs(lost);
  for (NewJob& job : jobs) {
    job.idempotency_key = "key of " + job.id;
  }
  ASSERT_TRUE(Submit(*first, jobs).ok());
  ExpectEachSucceeded(*second, {lost[0]});
  const Status failed_over = FailOver();
  ASSERT_TRUE(failed_over.ok()) << Message(failed_over);
  for (const std::string& id : lost) {
    EXPECT_TRUE(absl::IsNotFound(Get(*first, id).status())) << id;
  }
  ExpectEachSucceeded(*second, kept);
  std::vector<std::string> again;
  for (const char* prefix : {"again-", "later-"}) {  // Each try of a client draws ids of its own.
    for (NewJob& job : jobs) {
      job.id = prefix + job.idempotency_key;
    }
    const auto submitted = Submit(prefix[0] == 'a' ? *first : *second, jobs);
    ASSERT_TRUE(submitted.ok()) << Message(submitted.status());
    for (const JobView& job : *submitted) {
      EXPECT_THAT(job.id, HasSubstr("again-"));
      again.push_back(job.id);
    }
  }
  ExpectEachSucceeded(*first, again);
  EXPECT_EQ(*standby_->Ask("SELECT count(*) FROM cluster_jobs WHERE idempotency_key LIKE 'key of %'"), "20");
}

// A former primary that comes back accepts writes beside the new one (split brain). Nothing here fences PostgreSQL: a
// daemon whose connection is new takes the first of its hosts that accepts writes, so jobs of both servers run, a job
// that both know may run twice, and what the former primary acknowledges is lost when it is copied from the new one.
// Operators need a tool that keeps the former primary down, or makes it a standby, before a standby is promoted
// (Patroni, pg_auto_failover, a fencing device). The leases protect the new primary's jobs: a host has a lease of one
// of the two servers. The other one does not know its incarnation and refuses it, so that it stops its runs and joins
// again.
TEST_F(PostgresFailoverTest, AHostOfTheFormerPrimaryJoinsAgain) {
  ASSERT_NO_FATAL_FAILURE(MakeServers(/*is_synchronous=*/false));
  const auto first = Daemon();
  LiveHost one("one", "p1", {}, *first, ledger_);
  ASSERT_TRUE(Submit(*first, Jobs({"both"})).ok());
  ExpectEachSucceeded(*first, {"both"});
  ASSERT_TRUE(HasCaughtUp());
  ASSERT_TRUE(FailOver().ok());
  ASSERT_TRUE(Submit(*first, Jobs({"new"})).ok());
  ExpectEachSucceeded(*first, {"new"});
  ASSERT_TRUE(primary_->Start().ok());
  const auto astray = Daemon();
  LiveHost two("two", "p2", {}, *astray, ledger_);
  EXPECT_TRUE(absl::IsNotFound(Get(*astray, "new").status()));
  NewJob job = Job("astray");
  job.needs.host = "two";
  ASSERT_TRUE(Submit(*astray, {job}).ok());
  ExpectEachSucceeded(*astray, {"astray"});
  const auto joined = Join(*astray, "three", 1);
  ASSERT_TRUE(joined.ok());
  primary_->KillAll();
  EXPECT_TRUE(Get(*astray, "new").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Renew(*astray, "three", joined->incarnation)));
  EXPECT_TRUE(absl::IsFailedPrecondition(Claim(*astray, "three", joined->incarnation)));
  const auto again = Join(*astray, "three", 2);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_TRUE(Renew(*astray, "three", again->incarnation).ok());
  EXPECT_TRUE(absl::IsNotFound(Get(*astray, "astray").status()));
  job.id = "found";
  ASSERT_TRUE(Submit(*astray, {job}).ok());
  ExpectEachSucceeded(*first, {"found"});
}

// The clock of the standby's machine is wrong: by how much, in the parameter.
class PostgresFailoverClockTest : public PostgresFailoverTest,
                                  public ::testing::WithParamInterface<std::chrono::hours> {};

INSTANTIATE_TEST_SUITE_P(Errors, PostgresFailoverClockTest,
                         ::testing::Values(std::chrono::hours(1), std::chrono::hours(-1)));

TEST_P(PostgresFailoverClockTest, NoLeaseOrDeadlineEndsEarly) {
  ASSERT_NO_FATAL_FAILURE(MakeServers(/*is_synchronous=*/true));
  // A lease that is not renewed has to last until its host stops its runs. The leap of the store's clock shortens it,
  // so the leap has to be shorter than the hosts' margin.
  const LiveHostOptions slow{
      .runs_max = 2, .run_time = std::chrono::seconds(3), .stop_margin = std::chrono::seconds(3)};
  options_.store.lease = std::chrono::seconds(8);
  options_.store.clock_leap_max = std::chrono::seconds(2);
  const auto first = Daemon(), second = Daemon();
  LiveHost one("one", "p1", slow, *first, ledger_), two("two", "p2", slow, *second, ledger_);
  std::vector<NewJob> jobs = Jobs({"long0", "long1", "long2", "long3", "patient", "hasty"});
  for (NewJob& job : jobs) {
    job.attempts_max = 1;
  }
  jobs[4].needs.host = "three";
  jobs[4].deadline = std::chrono::seconds(25);
  jobs[5].needs.host = "nobody";
  jobs[5].deadline = std::chrono::seconds(5);
  ASSERT_TRUE(Submit(*first, jobs).ok());
  ASSERT_TRUE(WaitForStarts(ledger_, 4, kSoon).ok());
  const Time joined_at = RealClock().Now();
  const auto joined = Join(*first, "silent", 1);
  ASSERT_TRUE(joined.ok());
  const WrongClock wrong(GetParam());
  wrong_clock_ = &wrong;
  const Status failed_over = FailOver();
  ASSERT_TRUE(failed_over.ok()) << Message(failed_over);

  for (const JobView& job : WaitForEnds(*second, "t", {"long0", "long1", "long2", "long3"}, kSoon)) {
    EXPECT_EQ(job.state, JobState::kSucceeded) << job.id;
    EXPECT_EQ(job.fence, 1u) << job.id;
  }
  std::this_thread::sleep_until(std::chrono::steady_clock::now() +
                                (joined_at + options_.store.lease - slow.stop_margin - RealClock().Now()));
  const Status renewed = Renew(*first, "silent", joined->incarnation);
  EXPECT_TRUE(renewed.ok()) << Message(renewed);
  // The clock goes on, whatever its error.
  EXPECT_EQ(WaitForEnds(*second, "t", {"hasty"}, kSoon)[0].state, JobState::kExpired);
  EXPECT_EQ(Get(*second, "patient")->state, JobState::kWaiting);
  LiveHost three("three", "p3", {}, *second, ledger_);
  ExpectEachSucceeded(*first, {"patient"});
  EXPECT_EQ(ledger_.starts(), 5u);
  EXPECT_THAT(ledger_.doubles(), IsEmpty());
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
