// SPDX-License-Identifier: Apache-2.0
// hpv-cluster-host: processes that share the cluster's store on PostgreSQL, for tests that kill, pause and cut them.
//
//   hpv-cluster-host host --dsn DSN --name NAME --ledger FILE [--lease-ms N] [--run-ms-max N]
//   hpv-cluster-host client --dsn DSN --name NAME --ledger FILE --seed N
//   hpv-cluster-host watch --dsn DSN --ledger FILE --tenant NAME
//
// A host claims jobs and runs them: it waits. SIGTERM makes it give its jobs back and leave. A client submits batches
// with random needs and cancels some jobs, each call again and again until it is answered, until SIGTERM. A watcher
// follows a tenant's events. Each writes what it does into its ledger, a line at a time:
//
//   S JOB FENCE NS    a run starts         E JOB FENCE NS     a run has ended
//   A JOB             a submit was acknowledged
//   C JOB             a cancellation was acknowledged
//   V NUMBER JOB STATE FENCE               an event was seen
//   P NS NS           the machine let the process wait for so long that it could not stop its runs in time
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>

#include "base/clock.h"
#include "server/cluster/agent_loop.h"
#include "server/cluster/postgres/postgres_listener.h"
#include "server/cluster/postgres/postgres_session.h"
#include "server/cluster/sql/sql_cluster_store.h"
#include "server/cluster/testing/live_hosts.h"

namespace hpvm::server::cluster {
namespace {

std::atomic<bool> stops = false;

struct Options {
  std::string dsn, name, ledger, tenant;
  uint64_t seed = 1;
  uint32_t lease_ms = 2'000, run_ms_max = 300;
};

// Lines are written whole, so that a kill leaves no part of one.
class Ledger {
 public:
  explicit Ledger(const std::string& path) : fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
    HPVMD_CHECK(fd_ >= 0);
  }
  void Add(const std::string& line) {
    const std::string whole = line + "\n";
    HPVMD_CHECK(write(fd_, whole.data(), whole.size()) == static_cast<ssize_t>(whole.size()));
  }

 private:
  const int fd_;
};

// Returns null when the process is told to stop first.
std::unique_ptr<SqlClusterStore> OpenStore(const Options& options, uint32_t connections) {
  PostgresOptions database;
  database.dsn = options.dsn;
  database.connect_timeout = std::chrono::seconds(2);
  database.statement_timeout = std::chrono::seconds(3);
  database.lock_timeout = std::chrono::seconds(2);
  database.answer_timeout = std::chrono::seconds(4);
  SqlClusterStoreOptions store;
  store.connections = connections;
  store.store.lease = std::chrono::milliseconds(options.lease_ms);
  store.store.retry_after = std::chrono::milliseconds(200);
  store.queue_timeout = std::chrono::seconds(1);
  while (!stops) {  // The database may be down just now.
    auto opened = SqlClusterStore::Open(
        store, [database]() -> StatusOr<std::unique_ptr<SqlSession>> { return PostgresSession::Open(database); });
    if (opened.ok()) {
      return *std::move(opened);
    }
    std::fprintf(stderr, "%s: %s\n", options.name.c_str(), Message(opened.status()).c_str());
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return nullptr;
}

// --- A host ---

class WaitingRuns final : public AgentRuns {
 public:
  WaitingRuns(Ledger& ledger, uint32_t run_ms_max) : ledger_(ledger), run_ms_max_(run_ms_max), rng_(getpid()) {}
  ~WaitingRuns() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  void Begin(AgentLoop& loop) {
    loop_ = &loop;
    thread_ = std::thread([this] { Work(); });
  }

  void Start(const Claim& claim) override {
    const HeldJob job{claim.tenant, claim.id, claim.fence};
    const Time now = RealClock().Now();
    const std::lock_guard lock(mutex_);
    Note("S", job, now);
    runs_.emplace(now + std::chrono::milliseconds(1 + rng_.Below(run_ms_max_)), job);
    changed_.notify_all();
  }
  void OnRecorded(const HeldJob&, const StatusOr<JobView>&) override {}
  void Stop(const HeldJob& job, StopReason) override {
    const std::lock_guard lock(mutex_);
    for (auto run = runs_.begin(); run != runs_.end(); ++run) {
      if (run->second == job) {
        runs_.erase(run);
        Note("E", job, RealClock().Now());
        loop_->OnRunEnded(job, {.state = JobState::kWaiting, .result = "", .record = ""});
        return;
      }
    }
  }

 private:
  void Note(const char* what, const HeldJob& job, Time now) {
    ledger_.Add(std::string(what) + " " + job.tenant + "/" + job.id + " " + std::to_string(job.fence) + " " +
                std::to_string(now.count()));
  }
  void Work() {
    std::unique_lock lock(mutex_);
    while (!is_ending_) {
      const Time now = RealClock().Now();
      if (runs_.empty() || runs_.begin()->first > now) {
        changed_.wait_for(lock, runs_.empty() ? Duration(std::chrono::seconds(1)) : runs_.begin()->first - now);
        continue;
      }
      const HeldJob job = runs_.begin()->second;
      runs_.erase(runs_.begin());
      Note("E", job, now);
      // One run in ten loses its executor.
      const bool is_lost = rng_.Below(10) == 0;
      loop_->OnRunEnded(job, {.state = is_lost ? JobState::kWaiting : JobState::kSucceeded,
                              .result = job.id + "/" + std::to_string(job.fence),
                              .record = "",
                              .device_time = std::chrono::milliseconds(10)});
    }
  }

  Ledger& ledger_;
  const uint32_t run_ms_max_;
  AgentLoop* loop_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  SeededRng rng_;
  std::multimap<Time, HeldJob> runs_;  // Keyed by the time of their end.
  bool is_ending_ = false;
  std::thread thread_;
};

int RunHost(const Options& options) {
  Ledger ledger(options.ledger);
  const std::unique_ptr<SqlClusterStore> store = OpenStore(options, 2);
  if (store == nullptr) {
    return 0;
  }
  WaitingRuns runs(ledger, options.run_ms_max);
  AgentLoopOptions loop;
  loop.agent.worker = {.name = options.name,
                       .has = {"kind:cpu", "host:" + options.name},
                       .memory_bytes = uint64_t{1} << 30,
                       .process = std::to_string(getpid()) + "." + std::to_string(RealClock().WallNs()),
                       .replaces = ""};
  loop.agent.runs_max = 8;
  const Duration lease = std::chrono::milliseconds(options.lease_ms);
  loop.agent.renew_every = lease / 10;
  loop.agent.stop_margin = lease / 4;
  loop.agent.call_timeout = lease / 4;
  loop.agent.claim_every = std::chrono::milliseconds(50);
  loop.sweep_every = std::chrono::milliseconds(300);
  AgentLoop agent(loop, *store, runs);
  runs.Begin(agent);
  Time before = RealClock().Now();
  while (!stops) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const Time now = RealClock().Now();
    if (now - before > loop.agent.stop_margin / 2) {
      ledger.Add("P " + std::to_string(before.count()) + " " + std::to_string(now.count()));
    }
    before = now;
  }
  agent.Drain(/*gives_back=*/true);
  return agent.WaitUntilLeft(std::chrono::seconds(30)) ? 0 : 1;
}

// --- A client ---

NewJob DrawJob(const Options& options, SeededRng& rng, uint64_t number) {
  NewJob job;
  job.tenant = "t" + std::to_string(rng.Below(2));
  job.id = options.name + "-" + std::to_string(number);
  job.idempotency_key = "key-" + job.id;
  job.request = "request of " + job.id;
  job.priority = static_cast<int32_t>(rng.Below(3));
  job.attempts_max = 1'000;
  if (rng.Below(5) == 0) {
    job.needs.any_of = {{"host:h0", "host:h1"}};
  }
  if (rng.Below(10) == 0) {
    job.needs.prefers = {"h" + std::to_string(rng.Below(3))};
  }
  job.needs.memory_bytes = rng.Below(uint64_t{1} << 27);
  return job;
}

Status CancelAndWait(ClusterStore& store, const NewJob& job) {
  const auto answer = std::make_shared<std::promise<Status>>();
  std::future<Status> future = answer->get_future();
  store.Cancel(job.tenant, job.id, [answer](const auto& view) { answer->set_value(view.status()); });
  return future.wait_for(std::chrono::seconds(10)) == std::future_status::ready ? future.get()
                                                                                : DeadlineExceeded("No answer.");
}

int RunClient(const Options& options) {
  Ledger ledger(options.ledger);
  SeededRng rng(options.seed);
  const std::unique_ptr<SqlClusterStore> store = OpenStore(options, 1);
  if (store == nullptr) {
    return 0;
  }
  uint64_t number = 0;
  while (!stops) {
    std::vector<NewJob> batch;
    for (uint64_t left = 1 + rng.Below(12); left > 0; --left) {
      batch.push_back(DrawJob(options, rng, number++));
      const NewJob& before = batch.front();
      if (batch.size() > 1 && rng.Below(4) == 0 && before.tenant == batch.back().tenant) {
        batch.back().after = {{before.id, Dependency::Condition::kEnded}};
      }
    }
    while (!SubmitAndWait(*store, batch).ok()) {  // Until it is answered, also after SIGTERM.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    for (const NewJob& job : batch) {
      ledger.Add("A " + job.tenant + "/" + job.id);
    }
    if (rng.Below(4) == 0) {
      const NewJob& job = batch[rng.Below(batch.size())];
      while (!CancelAndWait(*store, job).ok()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      ledger.Add("C " + job.tenant + "/" + job.id);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(rng.Below(800)));
  }
  return 0;
}

// --- A watcher ---

int RunWatcher(const Options& options) {
  Ledger ledger(options.ledger);
  const std::unique_ptr<SqlClusterStore> store = OpenStore(options, 1);
  if (store == nullptr) {
    return 0;
  }
  uint64_t cursor = 0;
  while (!stops) {
    const StatusOr<Events> events = WatchAndWait(*store, options.tenant, cursor, 500);
    if (events.ok()) {
      for (const Event& event : events->events) {
        ledger.Add("V " + std::to_string(event.number) + " " + options.tenant + "/" + event.id + " " +
                   std::string(Name(event.state)) + " " + std::to_string(event.fence));
      }
      cursor = events->cursor;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(events.ok() && !events->events.empty() ? 1 : 50));
  }
  return 0;
}

int Main(int argc, char** argv) {
  CLI::App app{"Processes that share the cluster's store, for tests."};
  app.require_subcommand(1);
  Options options;
  CLI::App* const host = app.add_subcommand("host", "Claims and runs jobs.");
  CLI::App* const client = app.add_subcommand("client", "Submits and cancels jobs.");
  CLI::App* const watch = app.add_subcommand("watch", "Follows a tenant's events.");
  for (CLI::App* const command : {host, client, watch}) {
    command->add_option("--dsn", options.dsn, "The database.")->required();
    command->add_option("--ledger", options.ledger, "The file for what it does.")->required();
    command->add_option("--name", options.name, "The host's or client's name.");
    command->add_option("--lease-ms", options.lease_ms, "Length of leases.")->check(CLI::Range(200, 60'000));
  }
  host->add_option("--run-ms-max", options.run_ms_max, "The longest run.")->check(CLI::Range(1, 60'000));
  client->add_option("--seed", options.seed, "For the jobs that it draws.");
  watch->add_option("--tenant", options.tenant, "The tenant.")->required();
  CLI11_PARSE(app, argc, argv);
  signal(SIGTERM, [](int) { stops = true; });
  // The test starts this program with SIGTERM blocked, so that a signal that comes before the handler waits for it.
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_UNBLOCK, &term, nullptr);
  return *host ? RunHost(options) : *client ? RunClient(options) : RunWatcher(options);
}

}  // namespace
}  // namespace hpvm::server::cluster

int main(int argc, char** argv) { return hpvm::server::cluster::Main(argc, argv); }
