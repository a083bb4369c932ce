// SPDX-License-Identifier: Apache-2.0
#include "bench/cluster/cluster.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>

#include "bench/report.h"
#include "server/cluster/postgres/postgres_listener.h"
#include "server/cluster/postgres/testing/postgres_server.h"
#include "server/cluster/sql/cluster_schema.h"
#include "server/cluster/sql/sql_cluster_store.h"
#include "server/cluster/sqlite/sqlite_session.h"
#include "server/cluster/testing/live_hosts.h"
#include "server/jobs/testing/temporary_folder.h"

namespace hpvm::bench {

using namespace server::cluster;  // NOLINT: the suite is about nothing else.

namespace {

using SteadyClock = std::chrono::steady_clock;

// The most that a case waits for what it measures.
constexpr std::chrono::seconds kTimeout{120};

double SecondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

// Makes an empty database on the suite's server, which syncs each commit as an operator's does.
StatusOr<PostgresOptions> EmptyDatabase() {
  static const StatusOr<std::unique_ptr<PostgresServer>> server =
      PostgresServer::Make({.has_fsync = true, .settings = {}});
  HPVMD_RETURN_IF_ERROR(server.status());
  HPVMD_RETURN_IF_ERROR((*server)->CreateDatabase("bench"));
  PostgresOptions options;
  options.dsn = (*server)->dsn("bench");
  return options;
}

StatusOr<std::unique_ptr<SqlClusterStore>> OpenPostgres(const PostgresOptions& database, uint32_t connections,
                                                        ClusterStoreOptions store = {}) {
  SqlClusterStoreOptions options;
  options.store = store;
  options.connections = connections;
  return SqlClusterStore::Open(
      options, [database]() -> StatusOr<std::unique_ptr<SqlSession>> { return PostgresSession::Open(database); });
}

LiveHostOptions BusyHost() {
  LiveHostOptions options;
  options.runs_max = kClusterBatch;
  options.run_time = Duration{0};
  options.claim_every = std::chrono::milliseconds(2);
  options.renew_every = std::chrono::seconds(1);
  options.sweep_every = std::chrono::seconds(1);
  options.stop_margin = std::chrono::seconds(3);
  return options;
}

// Submits the jobs in batches, one at a time in flight.
Status SubmitAll(ClusterStore& store, uint64_t jobs) {
  for (uint64_t first = 0; first < jobs; first += kClusterBatch) {
    const auto views = SubmitAndWait(store, TinyJobs(first, std::min<uint64_t>(kClusterBatch, jobs - first)));
    HPVMD_RETURN_IF_ERROR(views.status());
  }
  return absl::OkStatus();
}

// Waits until `jobs` events say that a job has succeeded, and returns the seconds since `begin`.
StatusOr<double> WaitForSuccesses(ClusterStore& store, uint64_t jobs, SteadyClock::time_point begin) {
  std::map<std::string, uint64_t> cursors;
  uint64_t succeeded = 0;
  while (succeeded < jobs) {
    for (uint32_t tenant = 0; tenant < kClusterTenants; ++tenant) {
      const std::string name = "t" + std::to_string(tenant);
      const StatusOr<Events> events = WatchAndWait(store, name, cursors[name], 1000);
      HPVMD_RETURN_IF_ERROR(events.status());
      cursors[name] = events->cursor;
      for (const Event& event : events->events) {
        succeeded += event.state == JobState::kSucceeded ? 1 : 0;
      }
    }
    if (SecondsSince(begin) > static_cast<double>(kTimeout.count())) {
      return DeadlineExceeded(std::to_string(succeeded) + " of " + std::to_string(jobs) + " jobs have ended.");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return SecondsSince(begin);
}

// Returns jobs a second through hosts on these stores.
StatusOr<double> RunJobs(const std::vector<std::unique_ptr<SqlClusterStore>>& stores, uint64_t jobs) {
  RunLedger ledger;
  std::vector<std::unique_ptr<LiveHost>> hosts;
  const auto begin = SteadyClock::now();
  for (size_t i = 0; i < stores.size(); ++i) {
    hosts.push_back(std::make_unique<LiveHost>("h" + std::to_string(i), "p", BusyHost(), *stores[i], ledger));
  }
  Status submitted;
  std::thread submitter([&] { submitted = SubmitAll(*stores[0], jobs); });
  const StatusOr<double> seconds = WaitForSuccesses(*stores.back(), jobs, begin);
  submitter.join();
  HPVMD_RETURN_IF_ERROR(submitted);
  HPVMD_RETURN_IF_ERROR(seconds.status());
  if (ledger.starts() != jobs || !ledger.doubles().empty()) {
    return Internal("A job ran twice.");
  }
  return static_cast<double>(jobs) / *seconds;
}

// Each round of these contenders fails unless every job ran once and succeeded.
StatusOr<Measurement> MeasureVerified(Better better, const std::vector<Contender>& contenders, int rounds) {
  StatusOr<Measurement> measured = MeasureInterleaved(better, contenders, rounds);
  if (measured.ok()) {
    measured->verified = true;
  }
  return measured;
}

StatusOr<double> PostgresJobs(uint64_t jobs) {
  HPVMD_ASSIGN_OR_RETURN(const PostgresOptions database, EmptyDatabase());
  std::vector<std::unique_ptr<SqlClusterStore>> stores;
  for (uint32_t i = 0; i < kClusterHosts; ++i) {
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<SqlClusterStore> store, OpenPostgres(database, 2));
    stores.push_back(std::move(store));
  }
  return RunJobs(stores, jobs);
}

StatusOr<double> RawJobs(uint64_t jobs) {
  HPVMD_ASSIGN_OR_RETURN(const PostgresOptions database, EmptyDatabase());
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<PostgresSession> session, PostgresSession::Open(database));
  HPVMD_RETURN_IF_ERROR(MigrateClusterSchema(*session));
  return RunRawQueue(database, jobs);
}

StatusOr<double> SqliteJobs(uint64_t jobs) {
  const server::TemporaryFolder folder;
  std::vector<std::unique_ptr<SqlClusterStore>> stores;
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<SqlClusterStore> store,
                         SqlClusterStore::Open({}, [&]() -> StatusOr<std::unique_ptr<SqlSession>> {
                           return SqliteSession::Open(folder.path() + "/jobs.db", RealDisk(), RealClock());
                         }));
  stores.push_back(std::move(store));
  return RunJobs(stores, jobs);
}

StatusOr<Measurement> MeasureFailover(bool is_quick) {
  HPVMD_ASSIGN_OR_RETURN(const PostgresOptions database, EmptyDatabase());
  ClusterStoreOptions store;
  store.lease = is_quick ? std::chrono::seconds(1) : std::chrono::seconds(10);
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqlClusterStore> first, OpenPostgres(database, 2, store));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqlClusterStore> second, OpenPostgres(database, 2, store));
  RunLedger ledger;
  LiveHostOptions long_runs = BusyHost();
  long_runs.run_time = std::chrono::hours(1);
  long_runs.stop_margin = std::chrono::milliseconds(500);
  long_runs.claim_every = std::chrono::milliseconds(200);
  long_runs.renew_every = store.lease / 10;
  auto lost = std::make_unique<LiveHost>("lost", "p", long_runs, *first, ledger);
  std::vector<NewJob> jobs = TinyJobs(0, 1);
  jobs[0].attempts_max = 2;
  HPVMD_RETURN_IF_ERROR(SubmitAndWait(*first, jobs).status());
  HPVMD_RETURN_IF_ERROR(WaitForStarts(ledger, 1, kTimeout));
  LiveHost other("other", "p", long_runs, *second, ledger);
  std::this_thread::sleep_for(store.lease / 2);
  const auto begin = SteadyClock::now();
  lost = nullptr;
  HPVMD_RETURN_IF_ERROR(WaitForStarts(ledger, 2, kTimeout));
  Measurement measured;
  measured.ours = SecondsSince(begin);
  measured.figures = {{"lease_s", std::chrono::duration<double>(store.lease).count()},
                      {"retry_delay_s", std::chrono::duration<double>(store.retry_after).count()}};
  measured.verified = ledger.doubles().empty();
  return measured;
}

StatusOr<Measurement> MeasureFirstJob() {
  HPVMD_ASSIGN_OR_RETURN(const PostgresOptions database, EmptyDatabase());
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqlClusterStore> other, OpenPostgres(database, 1));
  HPVMD_RETURN_IF_ERROR(SubmitAndWait(*other, TinyJobs(0, 1)).status());
  RunLedger ledger;
  const auto begin = SteadyClock::now();
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqlClusterStore> store, OpenPostgres(database, 2));
  const LiveHost host("fresh", "p", {}, *store, ledger);
  HPVMD_RETURN_IF_ERROR(WaitForStarts(ledger, 1, kTimeout));
  Measurement measured;
  measured.ours = SecondsSince(begin);
  measured.verified = true;
  return measured;
}

// Returns the milliseconds from each cancellation's call to the event's arrival.
StatusOr<std::vector<double>> WatchDelays(uint64_t count) {
  HPVMD_ASSIGN_OR_RETURN(const PostgresOptions database, EmptyDatabase());
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqlClusterStore> writer, OpenPostgres(database, 2));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqlClusterStore> reader, OpenPostgres(database, 2));
  std::atomic<uint64_t> notices = 0;
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<PostgresListener> listener,
                         PostgresListener::Start(database, {kClusterChannel},
                                                 {.on_notice = [&](const auto&, const auto&) { ++notices; },
                                                  .on_gap = [&] { ++notices; }}));
  while (notices == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::vector<double> delays;
  uint64_t cursor = 0;
  for (uint64_t i = 0; i < count; ++i) {
    std::vector<NewJob> jobs = TinyJobs(i * kClusterTenants, 1);  // All of one tenant.
    const uint64_t before = notices;
    const auto begin = SteadyClock::now();
    writer->Submit(jobs, [](const auto&) {});
    while (delays.size() <= i) {
      while (notices == before && SecondsSince(begin) < 10) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      HPVMD_ASSIGN_OR_RETURN(const Events events, WatchAndWait(*reader, jobs[0].tenant, cursor, 10));
      cursor = events.cursor;
      if (!events.events.empty()) {
        delays.push_back(1000 * SecondsSince(begin));
      } else if (SecondsSince(begin) > 10) {
        return DeadlineExceeded("A watcher has not heard of a job for 10 s.");
      }
    }
  }
  return delays;
}

StatusOr<Measurement> MeasureWatch(uint64_t count) {
  HPVMD_ASSIGN_OR_RETURN(std::vector<double> delays, WatchDelays(count));
  std::ranges::sort(delays);
  Measurement measured;
  measured.ours = delays[delays.size() * 99 / 100];
  measured.figures = {{"p50_ms", delays[delays.size() / 2]}, {"max_ms", delays.back()}};
  measured.verified = delays.size() == count;
  return measured;
}

}  // namespace

std::vector<NewJob> TinyJobs(uint64_t first, uint64_t count) {
  std::vector<NewJob> jobs;
  for (uint64_t i = first; i < first + count; ++i) {
    NewJob& job = jobs.emplace_back();
    job.tenant = "t" + std::to_string(i % kClusterTenants);
    job.id = "j" + std::to_string(i);
    job.request = "r";
  }
  return jobs;
}

void AddClusterCases(std::vector<Case>& cases, const ClusterOptions& options) {
  const uint64_t jobs = options.quick ? 300 : 12'800;
  const int rounds = options.quick ? 1 : 3;
  const auto add = [&](std::string name, std::string metric, Better better,
                       std::function<StatusOr<Measurement>()> run) {
    cases.push_back({.suite = "cluster",
                     .name = std::move(name),
                     .metric = std::move(metric),
                     .better = better,
                     .run = std::move(run)});
  };
  add("jobs/postgres", "jobs_per_s", Better::kHigher, [jobs, rounds] {
    return MeasureVerified(Better::kHigher,
                           {{"ours", [jobs] { return PostgresJobs(jobs); }}, {"raw", [jobs] { return RawJobs(jobs); }}},
                           rounds);
  });
  add("jobs/sqlite", "jobs_per_s", Better::kHigher, [jobs, rounds] {
    return MeasureVerified(Better::kHigher, {{"ours", [jobs] { return SqliteJobs(jobs); }}}, rounds);
  });
  add("failover", "s", Better::kLower, [quick = options.quick] { return MeasureFailover(quick); });
  add("first_job", "s", Better::kLower, [] { return MeasureFirstJob(); });
  add("watch", "p99_ms", Better::kLower, [quick = options.quick] { return MeasureWatch(quick ? 20 : 1000); });
}

int RunCluster(const ClusterOptions& options, const std::string& command) {
  if (!PostgresServer::IsInstalled()) {
    std::fprintf(stderr, "hpvm-bench: The suite starts a PostgreSQL server, which is not installed.\n");
    return 1;
  }
  std::vector<Case> cases;
  AddClusterCases(cases, options);
  std::erase_if(cases, [&](const Case& one) {
    return !options.filters.empty() && std::ranges::none_of(options.filters, [&](const std::string& filter) {
      return one.name.find(filter) != one.name.npos;
    });
  });
  if (cases.empty()) {
    std::fprintf(stderr, "hpvm-bench: No case has that in its name.\n");
    return 2;
  }
  PrintHead("cluster", command, options.json);
  bool good = true;
  for (const Case& one : cases) {
    good = MeasureAndPrint(one, options.json) && good;
  }
  return good ? 0 : 1;
}

}  // namespace hpvm::bench
