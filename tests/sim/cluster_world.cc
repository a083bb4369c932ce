// SPDX-License-Identifier: Apache-2.0
// Method: one queue of events in virtual time. Each host has a link to the store whose messages are late, lost or
// doubled by chance; a paused host's events wait until it goes on, and a killed host's are dropped.
#include "tests/sim/cluster_world.h"

#include <algorithm>

#include "server/cluster/agent.h"
#include "server/cluster/sqlite/sqlite_session.h"
#include "server/cluster/testing/direct_sql_store.h"
#include "server/cluster/testing/model_cluster_store.h"

namespace hpvm::server::sim {

using cluster::HeldJob;
using cluster::JobState;
using cluster::JobView;
using cluster::NewJob;

namespace {

constexpr Duration kFaultsFor = std::chrono::seconds(60);
constexpr Duration kQuietFor = std::chrono::minutes(10);
constexpr Duration kCallTimeout = std::chrono::seconds(2);

// A host's monotonic clock: another origin than the store's, and a little fast or slow.
class DriftingClock final : public Clock {
 public:
  DriftingClock(const Clock& real, Duration offset, double rate) : real_(real), offset_(offset), rate_(rate) {}
  Time Now() const override {
    return offset_ + Duration(static_cast<int64_t>(static_cast<double>(real_.Now().count()) * rate_));
  }
  int64_t WallNs() const override { return real_.WallNs(); }
  Duration ToReal(Duration local) const {
    return Duration(static_cast<int64_t>(static_cast<double>(local.count()) / rate_));
  }

 private:
  const Clock& real_;
  const Duration offset_;
  const double rate_;
};

std::string ResultOf(const HeldJob& job) { return job.id + "/" + std::to_string(job.fence); }

// Words of hosts: one that some have at times, and one that says how often the host's words have changed.
constexpr char kLabel[] = "label:lab";
constexpr char kChange[] = "change:";

bool NeedsWord(const NewJob& job, const std::string& word) {
  return std::ranges::any_of(job.needs.any_of, [&](const auto& words) { return words.contains(word); });
}

}  // namespace

std::string ClusterPlan::Describe() const {
  const auto seconds = [](Duration d) { return std::to_string(d / std::chrono::seconds(1)) + "s"; };
  return std::to_string(hosts) + " hosts, " + std::to_string(tenants) + " tenants, " + std::to_string(jobs) +
         " jobs; lose " + std::to_string(lose) + " duplicate " + std::to_string(duplicate) + " delay " +
         std::to_string(delay) + " crash " + std::to_string(crash) + " drift " + std::to_string(drift_ppm) + "; kill " +
         seconds(kill_every) + " pause " + seconds(pause_every) + " cut " + seconds(cut_every) + " drain " +
         seconds(drain_every) + " down " + seconds(down_every) + " cordon " + seconds(cordon_every) + " words " +
         seconds(words_every);
}

// --- Messages ---

// A ClusterStore behind a network. Answers come on the host, or at once to clients (`host` is kClient).
class ClusterWorld::Link final : public cluster::ClusterStore {
 public:
  static constexpr uint32_t kClient = ~0u;
  Link(ClusterWorld& world, uint32_t host) : world_(world), host_(host) {}
  bool is_cut = false;

  void Submit(std::vector<NewJob> jobs, Done<std::vector<JobView>> done) override {
    Call<std::vector<JobView>>([this, jobs](auto then) { world_.store_->Submit(jobs, then); }, done);
  }
  void Join(cluster::Worker worker, Done<cluster::Lease> done) override {
    Call<cluster::Lease>([this, worker](auto then) { world_.store_->Join(worker, then); },
                         Telling<cluster::Lease>(worker.has, done));
  }
  void Leave(std::string worker, uint64_t incarnation, Done<cluster::Nothing> done) override {
    Call<cluster::Nothing>([this, worker, incarnation](auto then) { world_.store_->Leave(worker, incarnation, then); },
                           done);
  }
  void Renew(cluster::RenewRequest request, Done<cluster::Renewal> done) override {
    Call<cluster::Renewal>([this, request](auto then) { world_.store_->Renew(request, then); },
                           request.has.has_value() ? Telling<cluster::Renewal>(*request.has, done) : done);
  }
  void Claim(cluster::ClaimRequest request, Done<cluster::Claims> done) override {
    if (world_.has_faults() && Chance(world_.rng_, world_.plan_.pause_at_claim)) {
      world_.context_.events.After(Microseconds(1), 0, [this] { world_.PauseHost(host_); });
    }
    Call<cluster::Claims>([this, request](auto then) { world_.store_->Claim(request, then); }, done);
  }
  void Finish(cluster::FinishRequest request, Done<JobView> done) override {
    Call<JobView>(
        [this, request](auto then) {
          world_.finishing_ = &request;
          world_.store_->Finish(request, then);
          world_.finishing_ = nullptr;
        },
        done);
  }
  void Cancel(std::string tenant, std::string id, Done<JobView> done) override {
    Call<JobView>([this, tenant, id](auto then) { world_.store_->Cancel(tenant, id, then); }, done);
  }
  void Get(std::string tenant, std::string id, Done<JobView> done) override {
    Call<JobView>([this, tenant, id](auto then) { world_.store_->Get(tenant, id, then); }, done);
  }
  void GetRequest(std::string tenant, std::string id, Done<cluster::StoredJobRequest> done) override {
    Call<cluster::StoredJobRequest>([this, tenant, id](auto then) { world_.store_->GetRequest(tenant, id, then); },
                                    done);
  }
  void FindKey(std::string tenant, std::string key, Done<cluster::KeyView> done) override {
    Call<cluster::KeyView>([this, tenant, key](auto then) { world_.store_->FindKey(tenant, key, then); }, done);
  }
  void SetHold(std::string tenant, std::string id, bool is_held, std::string hold, Done<JobView> done) override {
    Call<JobView>(
        [this, tenant, id, is_held, hold](auto then) { world_.store_->SetHold(tenant, id, is_held, hold, then); },
        done);
  }
  void List(cluster::ListRequest request, Done<cluster::JobPage> done) override {
    Call<cluster::JobPage>([this, request](auto then) { world_.store_->List(request, then); }, done);
  }
  void ListHosts(Done<std::vector<cluster::HostView>> done) override {
    Call<std::vector<cluster::HostView>>([this](auto then) { world_.store_->ListHosts(then); }, done);
  }
  void Watch(std::string tenant, uint64_t cursor, uint32_t most, Done<cluster::Events> done) override {
    Call<cluster::Events>([this, tenant, cursor, most](auto then) { world_.store_->Watch(tenant, cursor, most, then); },
                          done);
  }
  void Purge(std::string tenant, uint32_t most, Done<cluster::SweepResult> done) override {
    Call<cluster::SweepResult>([this, tenant, most](auto then) { world_.store_->Purge(tenant, most, then); }, done);
  }
  void SetLimits(std::string tenant, cluster::TenantLimits limits, Done<cluster::Nothing> done) override {
    Call<cluster::Nothing>([this, tenant, limits](auto then) { world_.store_->SetLimits(tenant, limits, then); }, done);
  }
  void SetIntake(std::string worker, cluster::HostIntake intake, Done<cluster::Nothing> done) override {
    Call<cluster::Nothing>([this, worker, intake](auto then) { world_.store_->SetIntake(worker, intake, then); }, done);
  }
  void Sweep(uint32_t most, Done<cluster::SweepResult> done) override {
    Call<cluster::SweepResult>([this, most](auto then) { world_.store_->Sweep(most, then); }, done);
  }

 private:
  // An answer that also says that the store has these words of the host.
  template <typename T>
  Done<T> Telling(const std::set<std::string>& words, Done<T> done) {
    return [this, words, done](const StatusOr<T>& answer) {
      if (answer.ok()) {
        world_.OnWordsStored(host_, words);
      }
      done(answer);
    };
  }
  Duration DrawDelay() {
    SeededRng& rng = world_.network_rng_;
    if (world_.has_faults() && Chance(rng, world_.plan_.delay)) {
      return Milliseconds(Between(rng, 100, 8'000));
    }
    return Microseconds(Between(rng, 100, 5'000));
  }
  bool IsLost() { return is_cut || (world_.has_faults() && Chance(world_.network_rng_, world_.plan_.lose)); }

  template <typename T>
  void Answer(StatusOr<T> value, const Done<T>& done) {
    if (IsLost()) {
      return;
    }
    const auto deliver = [done, value = std::move(value)] { done(value); };
    if (host_ == kClient) {
      world_.context_.events.After(DrawDelay(), 0, deliver);
    } else {
      world_.OnHost(host_, DrawDelay(), deliver);
    }
  }

  template <typename T>
  void Call(std::function<void(Done<T>)> call, Done<T> done) {
    const bool twice = world_.has_faults() && Chance(world_.network_rng_, world_.plan_.duplicate);
    for (int copy = 0; copy < (twice ? 2 : 1); ++copy) {
      if (IsLost()) {
        continue;
      }
      world_.context_.events.After(DrawDelay(), 0, [this, call, done] {
        if (world_.is_down_) {
          Answer<T>(Unavailable("The database is down."), done);
        } else {
          call([this, done](StatusOr<T> value) { Answer<T>(std::move(value), done); });
        }
      });
    }
  }

  ClusterWorld& world_;
  const uint32_t host_;
};

struct ClusterWorld::Host final : cluster::AgentRuns {
  Host(ClusterWorld& world, uint32_t number, DriftingClock clock)
      : world(world), number(number), clock(clock), link(world, number) {}
  void Start(const cluster::Claim& claim) override { world.StartRun(number, claim); }
  void Stop(const HeldJob& job, StopReason) override { world.StopRun(number, job); }
  void OnRecorded(const HeldJob& job, const StatusOr<JobView>&) override { world.OnRecorded(number, job); }

  std::set<HeldJob> unrecorded;  // Ends of runs that the agent was told of.
  // An entry for each change of the host's words: true when it has the label. And the last change that it knows to be
  // stored.
  std::vector<bool> has_label = {false};
  size_t change_stored = 0;

  struct RunState {
    uint64_t generation = 0;
    bool is_stopping = false;
  };
  ClusterWorld& world;
  const uint32_t number;
  DriftingClock clock;
  Link link;
  std::unique_ptr<cluster::Agent> agent;  // Null while the host is down.
  uint64_t epoch = 1, next_generation = 1, tick_number = 0;
  bool is_paused = false;
  std::vector<std::function<void()>> inbox;  // Events that wait for the end of a pause.
  std::map<HeldJob, RunState> runs;
  std::string process;
};

struct ClusterWorld::Client {
  std::string tenant;
  uint32_t left = 0;  // Jobs to submit.
  std::unique_ptr<Link> link;
  std::vector<std::string> known;  // Acknowledged jobs.
  bool is_waiting = false;
  uint64_t call = 0;
};

// --- The world ---

ClusterPlan ClusterWorld::DrawPlan(SeededRng rng) {
  ClusterPlan plan;
  plan.hosts = static_cast<uint32_t>(Between(rng, 1, 4));
  plan.tenants = static_cast<uint32_t>(Between(rng, 1, 3));
  plan.jobs = static_cast<uint32_t>(Between(rng, 5, 60));
  const auto rate = [&](uint32_t most) { return Chance(rng, 500) ? static_cast<uint32_t>(Between(rng, 1, most)) : 0; };
  const auto every = [&](uint64_t least_ms, uint64_t most_ms) {
    return Chance(rng, 400) ? Milliseconds(Between(rng, least_ms, most_ms)) : Duration{0};
  };
  plan.lose = rate(100);
  plan.duplicate = rate(100);
  plan.delay = rate(60);
  plan.crash = rate(200);
  plan.kill_every = every(3'000, 30'000);
  plan.pause_every = every(3'000, 30'000);
  plan.cut_every = every(3'000, 30'000);
  plan.drain_every = every(5'000, 30'000);
  plan.down_every = every(10'000, 40'000);
  plan.cordon_every = every(5'000, 30'000);
  plan.drift_ppm = rate(500);
  plan.keep_disk = Chance(rng, 500) ? 1'000 : 500;
  plan.hasty_retries = Chance(rng, 500);
  plan.pause_at_claim = rate(100);
  plan.words_every = every(1'000, 10'000);
  return plan;
}

namespace {

std::unique_ptr<cluster::CheckedClusterStore> MakeStore(ClusterWorld::Store store, cluster::ClusterStoreOptions options,
                                                        const Clock& clock) {
  if (store == ClusterWorld::Store::kModel) {
    return std::make_unique<cluster::ModelClusterStore>(options, clock);
  }
  auto session = cluster::SqliteSession::OpenInMemory(clock);
  HPVMD_CHECK(session.ok());
  return std::make_unique<cluster::DirectSqlStore>(options, *std::move(session));
}

}  // namespace

ClusterWorld::ClusterWorld(uint64_t seed, bool prints, Store store)
    : context_(seed, prints),
      plan_(DrawPlan(context_.RngFor("cluster"))),
      rng_(context_.RngFor("faults")),
      network_rng_(context_.RngFor("network")),
      client_rng_(context_.RngFor("clients")),
      run_rng_(context_.RngFor("runs")),
      words_rng_(context_.RngFor("words")),
      record_rng_(context_.RngFor("records")),
      group_rng_(context_.RngFor("groups")),
      store_(MakeStore(store,
                       {.retry_after = Milliseconds(plan_.hasty_retries ? 1 : 1'000),
                        // Checks go by the world's time.
                        .clock_leap_max = std::chrono::hours(24)},
                       context_.clock)) {
  store_->on_change = [this](const NewJob& request, const JobView& before, const JobView& after) {
    OnChange(request, before, after);
  };
}

ClusterWorld::~ClusterWorld() = default;

void ClusterWorld::OnHost(uint32_t host, Duration delay, std::function<void()> action) {
  Host& h = *hosts_[host];
  context_.events.After(delay, 0, [this, host, epoch = h.epoch, action = std::move(action)] {
    Host& now = *hosts_[host];
    if (now.epoch != epoch || is_over()) {
      return;
    }
    if (now.is_paused) {
      now.inbox.push_back(action);
      return;
    }
    action();
    Tick(host);
  });
}

void ClusterWorld::Tick(uint32_t host) {
  Host& h = *hosts_[host];
  if (h.agent == nullptr || h.is_paused) {
    return;
  }
  const Time next = h.agent->Tick();
  if (h.agent->has_left()) {
    context_.trace.Add(HostName(host), "has left");
    context_.Check(h.unrecorded.empty(), "recorded",
                   [&] { return HostName(host) + " has left before the end of a run was recorded."; });
    KillHost(host);
    context_.events.After(Milliseconds(Between(rng_, 100, 3'000)), 0, [this, host] { StartHost(host); });
    return;
  }
  if (next == kNever) {
    return;
  }
  const Duration wait =
      h.clock.ToReal(std::max<Duration>(next - h.clock.Now(), Duration{0})) + Microseconds(Between(rng_, 10, 5'000));
  context_.events.After(wait, 0, [this, host, epoch = h.epoch, number = ++h.tick_number] {
    if (hosts_[host]->epoch == epoch && hosts_[host]->tick_number == number) {
      Tick(host);
    }
  });
}

void ClusterWorld::StartHost(uint32_t host) {
  Host& h = *hosts_[host];
  if (h.agent != nullptr) {
    return;
  }
  ++starts_;
  cluster::AgentOptions options;
  options.worker.name = HostName(host);
  options.worker.has = WordsOf(host);
  options.worker.memory_bytes = 8;
  options.worker.replaces = Chance(rng_, plan_.keep_disk) ? h.process : "";
  h.process = options.worker.process = "process-" + std::to_string(next_process_++);
  options.runs_max = static_cast<uint32_t>(Between(rng_, 1, 6));
  context_.trace.Add(HostName(host), "starts as " + h.process);
  h.agent = std::make_unique<cluster::Agent>(std::move(options), h.link, h, h.clock);
  Tick(host);
  SweepAgain(host);
}

std::set<std::string> ClusterWorld::WordsOf(uint32_t host) const {
  const std::vector<bool>& changes = hosts_[host]->has_label;
  std::set<std::string> words = {"kind:cpu", kChange + std::to_string(changes.size() - 1)};
  if (host % 2 == 0) {
    words.insert("kind:gpu");
  }
  if (changes.back()) {
    words.insert(kLabel);
  }
  return words;
}

void ClusterWorld::ChangeWords(uint32_t host) {
  OnHost(host, Duration{0}, [this, host] {
    Host& h = *hosts_[host];
    h.has_label.push_back(!h.has_label.back());
    context_.trace.Add(HostName(host), h.has_label.back() ? "has the label" : "has lost the label");
    if (h.agent != nullptr) {
      h.agent->SetWords(WordsOf(host));
    }
  });
}

void ClusterWorld::OnWordsStored(uint32_t host, const std::set<std::string>& words) {
  const auto change = std::ranges::find_if(words, [](const auto& word) { return word.starts_with(kChange); });
  size_t& stored = hosts_[host]->change_stored;
  stored = std::max<size_t>(stored, std::stoul(change->substr(sizeof(kChange) - 1)));
}

void ClusterWorld::SweepAgain(uint32_t host) {
  OnHost(host, Milliseconds(Between(rng_, 200, 1'500)), [this, host] {
    hosts_[host]->link.Sweep(static_cast<uint32_t>(Between(rng_, 1, 20)), [](const auto&) {});
    SweepAgain(host);
  });
}

// Its executors end with it.
void ClusterWorld::KillHost(uint32_t host) {
  Host& h = *hosts_[host];
  context_.trace.Add(HostName(host), "ends");
  ++h.epoch;
  h.agent.reset();
  h.is_paused = false;
  h.inbox.clear();
  for (const auto& [job, run] : h.runs) {
    jobs_[{job.tenant, job.id}].active.erase(host);
  }
  h.runs.clear();
  h.unrecorded.clear();
}

void ClusterWorld::PauseHost(uint32_t host) {
  Host& h = *hosts_[host];
  if (h.agent == nullptr || h.is_paused) {
    return;
  }
  context_.trace.Add(HostName(host), "is paused");
  h.is_paused = true;
  ++h.tick_number;
  for (const auto& [job, run] : h.runs) {
    jobs_[{job.tenant, job.id}].active.erase(host);
  }
  context_.events.After(Milliseconds(Between(rng_, 100, 25'000)), 0, [this, host, epoch = h.epoch] {
    if (hosts_[host]->epoch == epoch) {
      ResumeHost(host);
    }
  });
}

// Its timer and its messages come in any order.
void ClusterWorld::ResumeHost(uint32_t host) {
  Host& h = *hosts_[host];
  if (!h.is_paused) {
    return;
  }
  context_.trace.Add(HostName(host), "goes on");
  h.is_paused = false;
  const uint64_t epoch = h.epoch;
  if (Chance(rng_, 500)) {
    Tick(host);
  }
  std::vector<std::function<void()>> inbox = std::move(h.inbox);
  h.inbox.clear();
  for (const std::function<void()>& action : inbox) {
    if (hosts_[host]->epoch == epoch) {
      action();
    }
  }
  if (hosts_[host]->epoch == epoch) {
    Tick(host);
  }
}

void ClusterWorld::Repeat(Duration mean, const std::string& purpose, std::function<void()> action) {
  if (mean == Duration{0}) {
    return;
  }
  const Duration wait = Microseconds(Between(rng_, 0, static_cast<uint64_t>(2 * mean.count() / 1'000)));
  context_.events.After(wait, 0, [this, mean, purpose, action] {
    if (has_faults() && !is_over()) {
      action();
      Repeat(mean, purpose, action);
    }
  });
}

// --- Runs ---

void ClusterWorld::StartRun(uint32_t host, const cluster::Claim& claim) {
  Host& h = *hosts_[host];
  ++runs_;
  const HeldJob job{claim.tenant, claim.id, claim.fence};
  context_.trace.Add(HostName(host), "runs " + ResultOf(job));
  JobFacts& facts = jobs_[{job.tenant, job.id}];
  context_.Check(claim.record == facts.claims_records[claim.fence], "record", [&] {
    return ResultOf(job) + " was claimed with the record \"" + claim.record + "\" and not \"" +
           facts.claims_records[claim.fence] + "\".";
  });
  context_.Check(facts.active.empty(), "overlap", [&] {
    return job.id + " is started by " + HostName(host) + " while " + HostName(*facts.active.begin()) + " runs it.";
  });
  facts.active.insert(host);
  const uint64_t generation = h.next_generation++;
  h.runs[job] = {.generation = generation};
  const Duration length = Chance(run_rng_, 100) ? Milliseconds(Between(run_rng_, 5'000, 20'000))
                                                : Milliseconds(Between(run_rng_, 1, 2'000));
  const bool crashes = has_faults() && Chance(run_rng_, plan_.crash);
  const JobState state = crashes                    ? JobState::kWaiting
                         : claim.request == "fails" ? JobState::kFailed
                                                    : JobState::kSucceeded;
  OnHost(host, length, [this, host, job, generation, state] { EndRun(host, job, generation, state); });
}

// Called once for each run that has ended, and for no other.
void ClusterWorld::OnRecorded(uint32_t host, const HeldJob& job) {
  context_.Check(hosts_[host]->unrecorded.erase(job) == 1, "recorded", [&] {
    return HostName(host) + " is told twice, or without an end, that the end of " + ResultOf(job) + " is recorded.";
  });
}

void ClusterWorld::StopRun(uint32_t host, const HeldJob& job) {
  Host& h = *hosts_[host];
  const auto found = h.runs.find(job);
  if (found == h.runs.end() || found->second.is_stopping) {
    return;
  }
  found->second.is_stopping = true;
  OnHost(host, Milliseconds(Between(run_rng_, 1, 900)), [this, host, job, generation = found->second.generation] {
    EndRun(host, job, generation, JobState::kFailed);
  });
}

void ClusterWorld::EndRun(uint32_t host, const HeldJob& job, uint64_t generation, JobState state) {
  Host& h = *hosts_[host];
  const auto found = h.runs.find(job);
  if (found == h.runs.end() || found->second.generation != generation) {
    return;
  }
  h.runs.erase(found);
  jobs_[{job.tenant, job.id}].active.erase(host);
  h.unrecorded.insert(job);
  h.agent->OnRunEnded(job, {.state = state,
                            .result = ResultOf(job),
                            .record = Chance(record_rng_, 500) ? "record of " + ResultOf(job) : "",
                            .device_time = Milliseconds(Between(run_rng_, 1, 50))});
}

// --- Clients ---

NewJob ClusterWorld::DrawJob(const std::string& tenant) {
  NewJob job;
  job.tenant = tenant;
  job.id = "job-" + std::to_string(next_id_++);
  job.idempotency_key = Chance(client_rng_, 500) ? "key-" + job.id : "";
  job.request = Chance(client_rng_, 100) ? "fails" : "succeeds";
  job.record = "record of " + job.id;
  job.priority = static_cast<int32_t>(client_rng_.Below(3));
  job.attempts_max = static_cast<uint32_t>(Between(client_rng_, 1, 4));
  if (Chance(client_rng_, 100)) {
    job.deadline = Milliseconds(Between(client_rng_, 500, 30'000));
  }
  if (Chance(client_rng_, 250)) {
    job.needs.any_of.push_back({"kind:gpu"});
  }
  if (Chance(words_rng_, 100)) {
    job.needs.any_of.push_back({kLabel});
  }
  job.needs.memory_bytes = client_rng_.Below(4);
  if (Chance(client_rng_, 100)) {
    job.needs.host = HostName(static_cast<uint32_t>(client_rng_.Below(plan_.hosts)));
    job.needs.any_of.clear();
  } else if (Chance(client_rng_, 100)) {
    job.needs.prefers = {HostName(static_cast<uint32_t>(client_rng_.Below(plan_.hosts)))};
  }
  if (Chance(group_rng_, 150)) {
    const uint64_t most = 1 + group_rng_.Below(2);
    job.needs = {.any_of = {}, .memory_bytes = 0, .running_max = most, .group = "group-" + std::to_string(most)};
  }
  return job;
}

void ClusterWorld::ClientStep(uint32_t client) {
  Client& c = *clients_[client];
  context_.events.After(Milliseconds(Between(client_rng_, 50, 2'500)), 0, [this, client] {
    Client& now = *clients_[client];
    if (is_over() || (now.left == 0 && !has_faults())) {
      return;
    }
    if (now.left > 0 && !now.is_waiting && !Chance(client_rng_, 200)) {
      Submit(client);
    } else if (!now.known.empty() && Chance(client_rng_, 200)) {
      SendCancel(client, {now.tenant, now.known[client_rng_.Below(now.known.size())]}, 5);
    }
    ClientStep(client);
  });
  (void)c;
}

void ClusterWorld::Submit(uint32_t client) {
  Client& c = *clients_[client];
  std::vector<NewJob> jobs;
  for (uint64_t count = std::min<uint64_t>(Between(client_rng_, 1, 3), c.left); count > 0; --count) {
    NewJob job = DrawJob(c.tenant);
    if (Chance(client_rng_, 250) && (!c.known.empty() || !jobs.empty())) {
      const size_t of = client_rng_.Below(c.known.size() + jobs.size());
      job.after.push_back({of < c.known.size() ? c.known[of] : jobs[of - c.known.size()].id,
                           static_cast<cluster::Dependency::Condition>(client_rng_.Below(3))});
    }
    jobs.push_back(std::move(job));
  }
  c.left -= static_cast<uint32_t>(jobs.size());
  c.is_waiting = true;
  SendSubmit(client, std::move(jobs));
}

// Repeats the call until it is answered.
void ClusterWorld::SendSubmit(uint32_t client, std::vector<NewJob> jobs) {
  Client& c = *clients_[client];
  const uint64_t call = ++c.call;
  context_.events.After(kCallTimeout, 0, [this, client, call, jobs] {
    if (clients_[client]->call == call && clients_[client]->is_waiting && !is_over()) {
      SendSubmit(client, jobs);
    }
  });
  c.link->Submit(jobs, [this, client, jobs](const StatusOr<std::vector<JobView>>& views) {
    Client& now = *clients_[client];
    // A late answer to an earlier call is an answer, too.
    if (!views.ok()) {
      context_.Check(absl::IsUnavailable(views.status()), "submit", [&] { return Message(views.status()); });
      return;
    }
    now.is_waiting = false;
    ++now.call;
    for (size_t i = 0; i < jobs.size(); ++i) {
      JobFacts& facts = jobs_[{jobs[i].tenant, jobs[i].id}];
      context_.Check((*views)[i].id == jobs[i].id, "key",
                     [&] { return "The repeated submit of " + jobs[i].id + " made " + (*views)[i].id + "."; });
      if (!facts.is_acknowledged) {
        facts.is_acknowledged = true;
        now.known.push_back(jobs[i].id);
      }
    }
  });
}

void ClusterWorld::SendCancel(uint32_t client, Key job, int tries) {
  auto is_answered = std::make_shared<bool>(false);
  clients_[client]->link->Cancel(job.first, job.second, [this, job, is_answered](const StatusOr<JobView>& view) {
    *is_answered = *is_answered || view.ok();
    if (view.ok()) {
      context_.trace.Add("client", "has cancelled " + job.second);
      jobs_[job].is_cancel_acknowledged = true;
    }
  });
  context_.events.After(kCallTimeout, 0, [this, client, job, tries, is_answered] {
    if (!*is_answered && tries > 0 && !is_over()) {
      SendCancel(client, job, tries - 1);
    }
  });
}

void ClusterWorld::WatchAgain(uint32_t tenant) {
  const std::string name = clients_[tenant]->tenant;
  context_.events.After(Milliseconds(Between(client_rng_, 50, 800)), 0, [this, tenant, name] {
    if (is_over()) {
      return;
    }
    clients_[tenant]->link->Watch(
        name, cursors_[name], static_cast<uint32_t>(Between(client_rng_, 1, 20)),
        [this, name](const StatusOr<cluster::Events>& events) {
          if (!events.ok()) {
            context_.Check(absl::IsUnavailable(events.status()), "watch", [&] { return Message(events.status()); });
            return;
          }
          for (const JobView& job : events->jobs) {
            context_.Check(job.result.empty(), "watch",
                           [&] { return "Tenant " + name + " is told the result of " + job.id + "."; });
          }
          for (const cluster::Event& event : events->events) {
            if (event.number <= cursors_[name]) {
              continue;  // A late or doubled answer.
            }
            context_.Check(event.number == cursors_[name] + 1, "watch", [&] {
              return "Tenant " + name + ": event " + std::to_string(event.number) + " follows " +
                     std::to_string(cursors_[name]) + ".";
            });
            cursors_[name] = event.number;
            watched_[name][event.id] = event.state;
          }
        });
    WatchAgain(tenant);
  });
}

// --- Checks ---

void ClusterWorld::OnChange(const NewJob& request, const JobView& before, const JobView& after) {
  ++steps_;
  JobFacts& facts = jobs_[{after.tenant, after.id}];
  context_.trace.Add("store", after.id + " is " + std::string(Name(after.state)) + " (claim " +
                                  std::to_string(after.fence) + ", " + after.host + ")");
  if (before.id.empty()) {
    context_.Check(facts.view.id.empty(), "key", [&] { return after.id + " was made twice."; });
    facts.request = request;
    facts.submitted = context_.clock.Now();
    facts.record = request.record;
  }
  context_.Check(facts.view.id.empty() || !IsEnd(facts.view.state), "end", [&] {
    return after.id + " was " + std::string(Name(facts.view.state)) + " and became " + std::string(Name(after.state)) +
           ".";
  });
  CheckRecord(facts, after);
  CheckStart(facts, after);
  if (after.state == JobState::kRunning) {
    CheckClaim(facts, after);
  } else if (IsEnd(after.state)) {
    CheckEnd(facts, after);
  }
  facts.view = after;
  uint64_t running = 0, in_group = 0;
  const std::string& group = facts.request.needs.group;
  for (const auto& [key, job] : jobs_) {
    const bool runs = key.first == after.tenant && job.view.state == JobState::kRunning;
    running += runs ? 1 : 0;
    in_group += runs && !group.empty() && job.request.needs.group == group ? 1 : 0;
  }
  context_.Check(in_group <= facts.request.needs.running_max, "group", [&] {
    return "Tenant " + after.tenant + " runs " + std::to_string(in_group) + " jobs of " + group + ".";
  });
  const uint64_t most = running_max_[after.tenant];
  context_.Check(running <= most, "limit", [&] {
    return "Tenant " + after.tenant + " runs " + std::to_string(running) + " jobs; the limit is " +
           std::to_string(most) + ".";
  });
}

// An end that counts, or an attempt that is given back or lost, brings a record or leaves the old one.
void ClusterWorld::CheckRecord(JobFacts& facts, const JobView& view) {
  const bool is_finish = finishing_ != nullptr && finishing_->job == HeldJob{view.tenant, view.id, view.fence};
  facts.record = is_finish && !finishing_->record.empty() ? finishing_->record : facts.record;
  context_.Check(view.record == facts.record, "record",
                 [&] { return view.id + " has the record \"" + view.record + "\" and not \"" + facts.record + "\"."; });
  if (view.state == JobState::kRunning) {
    facts.claims_records[view.fence] = facts.record;
  }
}

void ClusterWorld::CheckStart(const JobFacts& facts, const JobView& view) {
  const Duration since = context_.clock.Now() - facts.submitted;
  const bool holds =
      view.state == JobState::kRunning ? view.started - view.submitted == since : view.started == facts.view.started;
  context_.Check(holds, "start", [&] { return view.id + " has another start than its last claim."; });
}

void ClusterWorld::CheckClaim(const JobFacts& facts, const JobView& view) {
  const auto check = [&](bool holds, const char* checker, const std::string& sentence) {
    context_.Check(holds, checker, [&] { return view.id + " was claimed " + sentence; });
  };
  check(view.attempts <= facts.request.attempts_max, "attempts",
        "for attempt " + std::to_string(view.attempts) + " of " + std::to_string(facts.request.attempts_max) + ".");
  check(view.fence > facts.view.fence, "fence", "with a fence that is not larger than the last one.");
  check(!facts.is_cancel_acknowledged, "cancel", "after its cancellation was acknowledged.");
  check(facts.request.deadline == Duration{0} || context_.clock.Now() < facts.submitted + facts.request.deadline,
        "deadline", "after its deadline.");
  check(!cordoned_.contains(view.host), "cordon", "by a host that is cordoned.");
  const auto number = static_cast<uint32_t>(std::stoul(view.host.substr(5)));
  check(!NeedsWord(facts.request, "kind:gpu") || number % 2 == 0, "needs", "by a host without a GPU.");
  const std::vector<bool>& changes = hosts_[number]->has_label;
  const auto stored = changes.begin() + static_cast<ptrdiff_t>(hosts_[number]->change_stored);
  check(!NeedsWord(facts.request, kLabel) || std::find(stored, changes.end(), true) != changes.end(), "words",
        "by a host that has lost the label that it needs.");
  check(facts.request.needs.host.empty() || facts.request.needs.host == view.host, "needs",
        "by another host than the one it needs.");
  for (const cluster::Dependency& dependency : facts.request.after) {
    const JobState state = jobs_[{view.tenant, dependency.job}].view.state;
    const bool is_met = IsEnd(state) && (dependency.condition == cluster::Dependency::Condition::kEnded ||
                                         (dependency.condition == cluster::Dependency::Condition::kSucceeded) ==
                                             (state == JobState::kSucceeded));
    check(is_met, "dependency", "although " + dependency.job + " is " + std::string(Name(state)) + ".");
  }
}

void ClusterWorld::CheckEnd(const JobFacts& facts, const JobView& view) {
  const auto check = [&](bool holds, const char* checker, const std::string& sentence) {
    context_.Check(holds, checker, [&] { return view.id + " ended as " + std::string(Name(view.state)) + sentence; });
  };
  if (view.state == JobState::kSucceeded || (view.state == JobState::kFailed && view.result.starts_with("job-"))) {
    check(view.result == ResultOf({view.tenant, view.id, view.fence}), "effect",
          " with the result " + view.result + " under claim " + std::to_string(view.fence) + ".");
  }
  if (view.state == JobState::kSucceeded) {
    check(facts.request.request == "succeeds", "effect", ", which it cannot.");
  }
  if (view.state == JobState::kFailed && view.result.starts_with("job-")) {
    const bool is_late =
        facts.request.deadline > Duration{0} && context_.clock.Now() >= facts.submitted + facts.request.deadline;
    check(facts.request.request == "fails" || is_late, "effect", ", because its run was stopped.");
  }
  check(view.state != JobState::kDead || view.attempts == facts.request.attempts_max, "attempts",
        " after " + std::to_string(view.attempts) + " of " + std::to_string(facts.request.attempts_max) + " attempts.");
  check(view.state != JobState::kDead || !plan_.is_calm(), "attempts", " although no attempt was lost.");
  check(view.state != JobState::kCancelled || facts.is_cancel_acknowledged || view.cancel_requested, "cancel",
        ", which nobody asked for.");
}

bool ClusterWorld::AllEnded() const {
  return std::ranges::all_of(jobs_, [](const auto& item) { return IsEnd(item.second.view.state); }) &&
         std::ranges::all_of(clients_, [](const auto& client) { return client->left == 0 && !client->is_waiting; });
}

void ClusterWorld::EndFaults() {
  context_.trace.Add("world", "faults end");
  context_.faults_on = false;
  is_down_ = false;
  for (uint32_t host = 0; host < plan_.hosts; ++host) {
    hosts_[host]->link.is_cut = false;
    store_->SetIntake(HostName(host), cluster::HostIntake::kOpen, [](const auto&) {});
    if (hosts_[host]->is_paused) {
      ResumeHost(host);
    }
    if (hosts_[host]->agent == nullptr) {
      StartHost(host);
    }
  }
  if (!hosts_[0]->has_label.back()) {
    ChangeWords(0);  // Every job has a host that may run it.
  }
  cordoned_.clear();
  for (const std::unique_ptr<Client>& client : clients_) {
    client->link->is_cut = false;
  }
}

// The store has kept a job as it said.
void ClusterWorld::CheckStored(const JobView& expected) {
  store_->Get(expected.tenant, expected.id, [&](const StatusOr<JobView>& view) {
    const bool holds = view.ok() && view->state == expected.state && view->fence == expected.fence &&
                       view->attempts == expected.attempts && view->record == expected.record &&
                       view->result == expected.result && view->started == expected.started &&
                       view->ended == expected.ended;
    context_.Check(holds, "stored", [&] {
      return expected.id + " is stored as " + (view.ok() ? std::string(Name(view->state)) : Message(view.status())) +
             " with the record \"" + (view.ok() ? view->record : "") + "\" and the result \"" +
             (view.ok() ? view->result : "") + "\"; it was " + std::string(Name(expected.state)) +
             " with the record \"" + expected.record + "\" and the result \"" + expected.result + "\".";
    });
  });
}

void ClusterWorld::CheckHostsAtEnd() {
  for (uint32_t host = 0; host < plan_.hosts; ++host) {
    context_.Check(hosts_[host]->unrecorded.empty(), "recorded",
                   [&] { return HostName(host) + " was never told what became of the end of a run."; });
  }
  store_->ListHosts([&](const StatusOr<std::vector<cluster::HostView>>& views) {
    context_.Check(views.ok() && views->size() == plan_.hosts, "words", [] { return "A host is not listed."; });
    for (uint32_t host = 0; views.ok() && host < views->size(); ++host) {
      context_.Check((*views)[host].has == WordsOf(host), "words",
                     [&] { return "The store does not have the newest words of " + HostName(host) + "."; });
    }
  });
}

void ClusterWorld::CheckAtEnd() {
  CheckHostsAtEnd();
  for (const auto& [key, facts] : jobs_) {
    const JobView& view = facts.view;
    context_.Check(view.id.empty() || IsEnd(view.state), "liveness", [&] {
      return key.second + " is still " + std::string(Name(view.state)) + " (claim " + std::to_string(view.fence) +
             ", " + view.host + ") after " + std::to_string(kQuietFor / std::chrono::seconds(1)) + " s without faults.";
    });
    if (!view.id.empty()) {
      CheckStored(view);
    }
    context_.Check(!facts.is_acknowledged || !view.id.empty(), "durability",
                   [&] { return key.second + " was acknowledged and is not stored."; });
    const auto watched = watched_[key.first].find(key.second);
    context_.Check(view.id.empty() || (watched != watched_[key.first].end() && watched->second == view.state), "watch",
                   [&] { return "The watcher does not know the end of " + key.second + "."; });
  }
  for (const std::unique_ptr<Client>& client : clients_) {
    context_.Check(client->left == 0 && !client->is_waiting, "liveness",
                   [&] { return "A client of " + client->tenant + " still waits for an answer."; });
    context_.Check(store_->running(client->tenant) == 0 && store_->waiting(client->tenant) == 0, "counters", [&] {
      return "Tenant " + client->tenant + " has " + std::to_string(store_->waiting(client->tenant)) + " waiting and " +
             std::to_string(store_->running(client->tenant)) + " running jobs, and all have ended.";
    });
  }
}

Verdict ClusterWorld::Run() {
  for (uint32_t host = 0; host < plan_.hosts; ++host) {
    const auto drift = static_cast<double>(Between(rng_, 0, 2 * plan_.drift_ppm)) - plan_.drift_ppm;
    hosts_.push_back(std::make_unique<Host>(
        *this, host, DriftingClock(context_.clock, Milliseconds(rng_.Below(3'600'000)), 1 + drift / 1e6)));
  }
  for (uint32_t tenant = 0; tenant < plan_.tenants; ++tenant) {
    auto client = std::make_unique<Client>();
    client->tenant = "tenant-" + std::to_string(tenant);
    client->left = std::max(1u, plan_.jobs / plan_.tenants);
    client->link = std::make_unique<Link>(*this, Link::kClient);
    running_max_[client->tenant] = Between(rng_, 1, 8);
    store_->SetLimits(
        client->tenant,
        {.weight = static_cast<uint32_t>(Between(rng_, 1, 4)), .running_max = running_max_[client->tenant]},
        [](const auto&) {});
    clients_.push_back(std::move(client));
  }
  const auto any = [this] { return static_cast<uint32_t>(rng_.Below(plan_.hosts)); };
  Repeat(plan_.kill_every, "kill", [this, any] {
    const uint32_t host = any();
    if (hosts_[host]->agent != nullptr) {
      KillHost(host);
      context_.events.After(Milliseconds(Between(rng_, 10, 20'000)), 0, [this, host] { StartHost(host); });
    }
  });
  Repeat(plan_.pause_every, "pause", [this, any] { PauseHost(any()); });
  Repeat(plan_.cut_every, "cut", [this, any] {
    const uint32_t host = any();
    context_.trace.Add(HostName(host), "is cut off");
    hosts_[host]->link.is_cut = true;
    context_.events.After(Milliseconds(Between(rng_, 100, 25'000)), 0,
                          [this, host] { hosts_[host]->link.is_cut = false; });
  });
  Repeat(plan_.drain_every, "drain", [this, any] {
    if (const uint32_t host = any(); hosts_[host]->agent != nullptr && !hosts_[host]->is_paused) {
      context_.trace.Add(HostName(host), "drains");
      hosts_[host]->agent->Drain(/*gives_back=*/true);
      Tick(host);
    }
  });
  Repeat(plan_.words_every, "words", [this] { ChangeWords(static_cast<uint32_t>(words_rng_.Below(plan_.hosts))); });
  Repeat(plan_.down_every, "down", [this] {
    context_.trace.Add("store", "is down");
    is_down_ = true;
    context_.events.After(Milliseconds(Between(rng_, 100, 15'000)), 0, [this] { is_down_ = false; });
  });
  Repeat(plan_.cordon_every, "cordon", [this, any] {
    const std::string host = HostName(any());
    const bool is_cordoned = !cordoned_.contains(host);
    // A host that drains gives its jobs back, and takes none, as one that is cordoned.
    const auto closed = Chance(rng_, 500) ? cluster::HostIntake::kDraining : cluster::HostIntake::kCordoned;
    const auto intake = is_cordoned ? closed : cluster::HostIntake::kOpen;
    store_->SetIntake(host, intake, [&](const StatusOr<cluster::Nothing>& set) {
      if (set.ok()) {
        is_cordoned ? (void)cordoned_.insert(host) : (void)cordoned_.erase(host);
      }
    });
  });
  for (uint32_t host = 0; host < plan_.hosts; ++host) {
    StartHost(host);
  }
  for (uint32_t client = 0; client < clients_.size(); ++client) {
    ClientStep(client);
    WatchAgain(client);
  }
  const auto run_until = [this](Time end, const std::function<bool()>& is_done) {
    while (!is_over() && context_.events.next() <= end && !is_done()) {
      context_.events.RunNext();
    }
  };
  run_until(kFaultsFor, [] { return false; });
  if (!is_over()) {
    EndFaults();
    const Time end = context_.clock.Now() + kQuietFor;
    run_until(end, [this] { return AllEnded(); });
    run_until(context_.clock.Now() + std::chrono::seconds(60), [] { return false; });  // Watchers catch up.
    CheckAtEnd();
  }
  return {.failure = context_.failure,
          .trace_hash = context_.trace.hash(),
          .trace_lines = context_.trace.lines(),
          .jobs = jobs_.size(),
          .runs = runs_,
          .starts = starts_,
          .steps = steps_,
          .simulated = context_.clock.Now()};
}

}  // namespace hpvm::server::sim
