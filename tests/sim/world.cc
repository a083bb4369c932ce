// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/world.h"

#include <algorithm>

namespace hpvm::server::sim {
namespace {

// More than any small world needs; bounds endless loops.
constexpr uint64_t kStepsMax = 2'000'000;
// After healing: the longest deadline, then the longest wait between attempts.
constexpr Duration kHealWithin = std::chrono::seconds(1'200);
constexpr uint64_t kNoPowerFault = uint64_t{1} << 60;

}  // namespace

World::World(uint64_t seed, bool prints)
    : context_(seed, prints),
      model_(context_, /*judges=*/true),
      attempts_(context_, model_),
      history_(context_, model_, attempts_),
      machine_(context_, model_, attempts_),
      network_(context_, [this] { return daemon_ != nullptr && daemon_->is_serving() ? daemon_.get() : nullptr; }),
      frontend_(context_, history_),
      rng_(context_.RngFor("world")) {
  machine_.config = context_.plan.config;
  for (uint32_t tenant = 0; tenant < context_.plan.tenants; ++tenant) {
    for (uint32_t number = 0; number < context_.plan.clients_per_tenant; ++number) {
      clients_.push_back(std::make_unique<SimClient>(context_, network_, frontend_, history_, board_,
                                                     std::string(1, static_cast<char>('a' + tenant)) + "nn", number));
    }
  }
}

World::~World() {
  machine_.disk.PowerOffAfter(0);
  daemon_.reset();
}

Verdict World::Run() {
  context_.trace.Add("plan", context_.plan.Describe());
  StartDaemon();
  for (const auto& client : clients_) {
    client->Begin();
  }
  const Plan& plan = context_.plan;
  Repeat(plan.crash_every, [this] { CrashSometime(); });
  Repeat(plan.drain_every, [this] { BeginDrain(); });
  Repeat(plan.reload_every, [this] { Reload(); });
  Repeat(plan.jump_every, [this] { JumpWall(); });
  Repeat(plan.full_every, [this] { FillDisk(); });
  RunUntilCalm();
  Heal();
  CheckAll();
  Verdict verdict;
  verdict.failure = context_.failure;
  verdict.trace_hash = context_.trace.hash();
  verdict.trace_lines = context_.trace.lines();
  verdict.jobs = model_.rows().size();
  verdict.runs = attempts_.runs();
  verdict.starts = starts_;
  verdict.steps = steps_;
  verdict.simulated = context_.clock.Now();
  return verdict;
}

// Returns false when nothing is left to do, or a promise was broken.
bool World::Step() {
  if (context_.failure.has_value()) {
    return false;
  }
  if (!context_.Check(++steps_ < kStepsMax, "liveness", [] { return "The world does not come to rest."; })) {
    return false;
  }
  CheckProgress();
  const Time due = daemon_ != nullptr ? daemon_->next() : kNever;
  const Time next = context_.events.next();
  if (due == kNever && next == kNever) {
    return false;
  }
  if (due <= next) {
    if (due > context_.clock.Now()) {
      context_.clock.Advance(due - context_.clock.Now());
    }
    daemon_->OnTime();
  } else {
    context_.events.RunNext();
  }
  AfterStep();
  return !context_.failure.has_value();
}

void World::AfterStep() {
  if (daemon_ == nullptr) {
    return;
  }
  // A crash between a stored request to cancel and the end of the run would be rare by chance.
  if (attempts_.TakeCancelStored() && context_.faults_on && context_.plan.crash_every > Duration{0} &&
      Chance(rng_, 200)) {
    machine_.disk.PowerOffAfter(rng_.Below(3));
  }
  if (machine_.disk.is_off()) {
    Crash(!Chance(rng_, context_.plan.power_loss));
  } else if (daemon_->is_broken()) {
    context_.trace.Add("world", "the daemon ends because its store is broken");
    Crash(/*keeps_all=*/true);
  } else if (daemon_->is_serving()) {
    const Status accounts = daemon_->core().CheckAccounts(/*at_rest=*/false);
    context_.Check(accounts.ok(), "accounts", [&] { return Message(accounts); });
    CheckLedger();
  }
}

// Phase 1: until the clients have performed their actions, or enough time has passed.
void World::RunUntilCalm() {
  const Time give_up = Milliseconds(600'000);
  while (context_.clock.Now() < give_up) {
    const bool all_done =
        std::all_of(clients_.begin(), clients_.end(), [](const auto& client) { return client->is_done(); });
    if (all_done || !Step()) {
      return;
    }
  }
}

// A graph that hangs while it is prepared may outlive the jobs that need it.
bool World::HasNothingPending() {
  return std::all_of(clients_.begin(), clients_.end(), [this](const auto& client) {
    const StatusOr<TenantRef> tenant = daemon_->core().tenants().FindTenant(client->tenant());
    return !tenant.ok() || (*tenant)->active == 0;
  });
}

// Phase 2: no more faults; everything accepted ends.
void World::Heal() {
  context_.trace.Add("world", "heals");
  context_.faults_on = false;
  // Quotas refilled by the hour would delay jobs for hours.
  NoQuotas(machine_.config);
  if (daemon_ != nullptr) {
    daemon_->core().SetConfig(machine_.config);
  }
  machine_.disk.SetSpace(UINT64_MAX);
  machine_.disk.PowerOffAfter(kNoPowerFault);
  machine_.ArmDisk();
  if (daemon_ == nullptr) {
    StartLater(Duration{0});
  }
  const auto is_over = [this] {
    return daemon_ != nullptr && daemon_->is_serving() && !is_draining_ && daemon_->is_idle() &&
           board_.unanswered == 0 && HasNothingPending() &&
           std::all_of(model_.rows().begin(), model_.rows().end(),
                       [](const auto& row) { return IsTerminal(row.second.state); });
  };
  busy_ = looked_ = context_.clock.Now();
  const Time give_up = context_.clock.Now() + kHealWithin;
  uint64_t step = 0;
  // Checking every row after each step would take longer than the steps.
  while (context_.clock.Now() < give_up && (step++ % 16 != 0 || !is_over())) {
    if (!Step()) {
      break;
    }
  }
}

void World::CheckAll() {
  if (context_.failure.has_value()) {
    return;
  }
  history_.CheckEnds();
  context_.Check(board_.unanswered == 0, "liveness",
                 [&] { return std::to_string(board_.unanswered) + " submits never got an answer."; });
  if (!context_.Check(daemon_ != nullptr && daemon_->is_serving(), "liveness",
                      [] { return "No daemon serves after healing."; })) {
    return;
  }
  context_.Check(daemon_->is_idle(), "liveness",
                 [&] { return std::to_string(daemon_->core().operations()) + " operations never end."; });
  CheckAtRest();
  CheckReads();
  const Plan& plan = context_.plan;
  if (plan.read_errors + plan.write_errors + plan.sync_errors == 0 && plan.full_every == Duration{0}) {
    CheckBlobs();  // Even without the sweep at a restart.
  }
  // The disk agrees, and holds nothing unneeded.
  EndInOrder();
  if (!context_.failure.has_value()) {
    StartDaemon();
  }
  if (!context_.failure.has_value() && daemon_ != nullptr) {
    CheckReads();
    CheckBlobs();
    EndInOrder();
  }
}

// Nothing is held for finished work.
void World::CheckAtRest() {
  for (const auto& client : clients_) {
    const StatusOr<TenantRef> tenant = daemon_->core().tenants().FindTenant(client->tenant());
    if (!tenant.ok()) {
      continue;
    }
    const Tenant& found = **tenant;
    const auto check = [&](uint64_t is, std::string_view what) {
      context_.Check(is == 0, "leaks", [&] {
        return found.name + " still has " + std::to_string(is) + " " + std::string(what) + " though all has ended.";
      });
    };
    check(found.jobs.size(), "live jobs");
    check(found.arrays.size(), "arrays");
    check(found.dependencies.size(), "dependencies");
    check(found.waiting_jobs(), "waiting jobs");
    check(found.pending_keys.size(), "keys in progress");
    check(found.active, "operations");
    check(found.uploads, "uploads");
  }
  context_.Check(attempts_.live() == 0, "leaks",
                 [&] { return std::to_string(attempts_.live()) + " runs go on though all has ended."; });
}

void World::CheckReads() {
  for (const auto& [tenant, id] : history_.Acknowledged()) {
    const Submission& submission = *history_.SubmissionOf(id);
    frontend_.GetJob(*daemon_, tenant, id, [&, &tenant = tenant, &id = id](const Status& status, const v1::Job& job) {
      context_.Check(status.ok() ? IsTerminal(job.state()) : model_.WasForgotten(id), "durability",
                     [&] { return "At the end job " + id + " is " + v1::JobState_Name(job.state()) + "."; });
      if (status.ok() && job.state() == v1::JOB_STATE_SUCCEEDED) {
        for (const v1::OutputValue& output : job.outputs()) {
          if (output.has_stored()) {
            frontend_.Fetch(*daemon_, tenant, id, output.name());
          }
        }
        context_.Check(job.dropped() || job.outputs_size() == static_cast<int>(submission.graph.outputs), "results",
                       [&] { return "Job " + id + " has " + std::to_string(job.outputs_size()) + " outputs."; });
      }
    });
  }
}

// Graphs and modules that stay for the next submit of the same graph.
std::set<std::string> World::HeldBlobs(const std::string& tenant_name) {
  std::set<std::string> hashes;
  if (const StatusOr<TenantRef> tenant = daemon_->core().tenants().FindTenant(tenant_name); tenant.ok()) {
    for (const auto& [key, preparation] : (*tenant)->preparations) {
      for (const PinnedBlob& blob : preparation->stored) {
        hashes.insert(ToHex(blob.hash));
      }
    }
  }
  return hashes;
}

// The disk holds exactly the blobs that rows need.
void World::CheckBlobs() {
  std::map<std::string, std::set<std::string>> needed;
  for (const auto& [id, row] : model_.rows()) {
    needed[row.tenant].insert(row.blobs.begin(), row.blobs.end());
  }
  for (const auto& [tenant, hashes] : needed) {
    const std::set<std::string> held = HeldBlobs(tenant);
    std::set<std::string> there;
    const std::string folder = "/state/blobs/" + tenant;
    for (const DiskEntry& part : machine_.disk.List(folder).value_or(std::vector<DiskEntry>())) {
      for (const DiskEntry& file : machine_.disk.List(folder + "/" + part.name).value_or(std::vector<DiskEntry>())) {
        there.insert(file.name);
      }
    }
    for (const std::string& hash : hashes) {
      context_.Check(there.count(hash) == 1, "blobs", [&] { return "Blob " + hash + " is needed and not there."; });
    }
    for (const std::string& name : there) {
      context_.Check(hashes.count(name) + held.count(name) > 0, "blobs",
                     [&, &tenant = tenant] { return "File " + name + " of " + tenant + " is needed by no job."; });
    }
  }
}

// Without faults, no job may wait without a reason: a deadline must not hide a lost wake-up.
void World::CheckProgress() {
  constexpr Duration kIdleMax = std::chrono::seconds(45);  // Longer than any wait between attempts.
  const Time now = context_.clock.Now();
  if (context_.faults_on || now < looked_ + Milliseconds(1'000)) {
    return;
  }
  looked_ = now;
  const bool is_busy = daemon_ == nullptr || !daemon_->is_serving() || is_draining_ || daemon_->store().waiting() > 0 ||
                       attempts_.live() > 0 || !HasNothingPending();
  const Row* waiting = nullptr;
  for (const auto& [id, row] : model_.rows()) {
    if (!row.after.empty() && attempts_.WaitsForNothing(row) && daemon_ != nullptr && daemon_->is_serving() &&
        daemon_->store().waiting() == 0) {
      CheckWait(row);
    }
  }
  bool is_paused = false;
  for (const auto& [id, row] : model_.rows()) {
    if (row.state == v1::JOB_STATE_RUNNING) {
      waiting = nullptr;
      break;
    }
    if (attempts_.WaitsForNothing(row) && (waiting == nullptr || is_paused)) {
      waiting = &row;
      is_paused = WaitsSentence(row).find("may start again") != std::string::npos;
    }
  }
  // A debt of device time delays jobs for as long as it lasts.
  const auto has_debt = [&](const Row& row) {
    const StatusOr<TenantRef> tenant = daemon_->core().tenants().FindTenant(row.tenant);
    return tenant.ok() && daemon_->core().quotas().ledger().DebtFor((*tenant)->key, scheduler::Resource::kDeviceTime,
                                                                    now) > Duration{0};
  };
  if (is_busy || waiting == nullptr || has_debt(*waiting)) {
    busy_ = now;
  }
  // Executors that crashed often before the faults ended start again after a pause at the latest.
  const Duration idle_max = is_paused ? CrashBreaker::kPauseMax + kIdleMax : kIdleMax;
  context_.Check(now - busy_ < idle_max, "liveness", [&] {
    return "The daemon does nothing although a job waits for nothing: " + Describe(*waiting) + ". " +
           WaitsSentence(*waiting);
  });
}

// Returns the daemon's text about what the job waits for.
std::string World::WaitsSentence(const Row& row) {
  v1::Job job;
  const StatusOr<TenantRef> tenant =
      daemon_ == nullptr ? NotFound("") : daemon_->core().tenants().FindTenant(row.tenant);
  return tenant.ok() && daemon_->core().job_reader().GetJob(**tenant, row.id, &job).ok() ? job.waits_for() : "";
}

// However slow the rest is: the job's dependencies have ended, so it is not shown as waiting for them.
void World::CheckWait(const Row& row) {
  constexpr Duration kNoticed = std::chrono::seconds(5);
  for (const v1::JobDependency& dependency : row.after) {
    if (context_.clock.Now() - attempts_.LastChange(dependency) < kNoticed) {
      return;
    }
  }
  frontend_.GetJob(*daemon_, row.tenant, row.id, [&](const Status& status, const v1::Job& job) {
    // Between attempts, for its array's turn and until an executor may start again, the job still waits, and reports
    // it.
    const bool may_wait = row.attempt > 0 || row.array_running_max > 0 || !job.waits_for().empty();
    context_.Check(!status.ok() || may_wait || job.state() != v1::JOB_STATE_ACCEPTED, "dependencies",
                   [&] { return "What it comes after has ended, and it waits: " + Describe(row) + "."; });
    for (const v1::JobDependency& dependency : row.after) {
      context_.Check(!status.ok() || job.waits_for().find(dependency.job_id()) == std::string::npos, "dependencies",
                     [&] { return "It waits for what has ended: " + Describe(row) + ": " + job.waits_for(); });
    }
  });
}

// Compares the core's counters with the rows, whenever no work is in progress.
void World::CheckLedger() {
  if (daemon_->open_calls() > 0 || daemon_->store().waiting() > 0 || steps_ % 4 != 0) {
    return;
  }
  const Status accounts = daemon_->core().CheckAccounts(/*at_rest=*/true);
  context_.Check(accounts.ok(), "accounts", [&] { return Message(accounts); });
  struct Sum {
    uint64_t waiting = 0, live = 0, bytes = 0;
    bool knows_bytes = true;
  };
  std::map<std::string, Sum> sums;
  for (const auto& [id, row] : model_.rows()) {
    Sum& sum = sums[row.tenant];
    sum.live += IsTerminal(row.state) ? 0 : 1;
    sum.waiting += row.state == v1::JOB_STATE_ACCEPTED ? 1 : 0;
    sum.bytes += row.stored_bytes;
    sum.knows_bytes &= row.stored_bytes != kUnknownBytes && row.state != v1::JOB_STATE_RUNNING;
  }
  for (const auto& [name, sum] : sums) {
    const StatusOr<TenantRef> tenant = daemon_->core().tenants().FindTenant(name);
    if (!tenant.ok()) {
      continue;
    }
    const Tenant& found = **tenant;
    const auto check = [&, &name = name](uint64_t is, uint64_t want, std::string_view what) {
      context_.Check(is == want, "quotas", [&] {
        return name + ": the core counts " + std::to_string(is) + " " + std::string(what) + "; there are " +
               std::to_string(want) + ".";
      });
    };
    check(found.jobs.size(), sum.live, "jobs that live");
    check(found.waiting_jobs(), sum.waiting, "jobs that wait");
    check(found.pending_keys.size(), 0, "keys in progress");
    if (sum.knows_bytes) {
      check(found.stored_job_bytes(), sum.bytes, "stored bytes");
    }
  }
}

void World::StartDaemon() {
  ++context_.incarnation;
  context_.events.ForgetOwnersBelow(context_.incarnation);
  start_pending_ = is_draining_ = false;
  ++starts_;
  daemon_ = std::make_unique<SimDaemon>(machine_);
  const Status started = daemon_->Start();
  context_.trace.Add("world", "daemon " + std::to_string(context_.incarnation) +
                                  " starts: " + (started.ok() ? "OK" : std::string(started.message()).substr(0, 100)));
  if (machine_.disk.is_off()) {
    Crash(!Chance(rng_, context_.plan.power_loss));
    return;
  }
  if (!started.ok()) {
    context_.Check(context_.faults_on, "durability",
                   [&] { return "A sound disk, and the daemon does not start: " + started.ToString(); });
    Crash(/*keeps_all=*/true);
    return;
  }
  for (const auto& client : clients_) {
    client->OnRestart();
  }
}

void World::StartLater(Duration delay) {
  if (!std::exchange(start_pending_, true)) {
    context_.events.After(delay, 0, [this] {
      if (daemon_ == nullptr) {
        StartDaemon();
      }
    });
  }
}

// The process is gone; unless `keeps_all`, so is unsynced data.
void World::Crash(bool keeps_all) {
  context_.trace.Add("world", keeps_all ? "the daemon crashes" : "the power fails");
  machine_.disk.PowerOffAfter(0);
  attempts_.OnDaemonEnd(/*drained=*/false);
  daemon_.reset();
  context_.events.ForgetOwnersBelow(context_.incarnation + 1);
  machine_.disk.Crash(rng_, keeps_all ? SimDisk::Keep::kEverything : SimDisk::Keep::kAnything);
  StartLater(Milliseconds(Between(rng_, 1, 300)));
}

void World::CrashSometime() {
  if (daemon_ == nullptr) {
    return;
  }
  if (Chance(rng_, context_.plan.crash_in_write)) {
    machine_.disk.PowerOffAfter(Between(rng_, 1, 40));
  } else {
    Crash(!Chance(rng_, context_.plan.power_loss));
  }
}

void World::BeginDrain() {
  if (daemon_ == nullptr || is_draining_) {
    return;
  }
  context_.trace.Add("world", "SIGTERM");
  is_draining_ = true;
  daemon_->Drain();
  PollDrain(context_.clock.Now() + Milliseconds(machine_.config.server_drain_ms));
}

// Like the daemon's main: waits for running work, then interrupts it, then ends.
void World::PollDrain(Time give_up) {
  context_.events.After(Milliseconds(10), context_.incarnation, [this, give_up] {
    const Time now = context_.clock.Now();
    if (context_.faults_on && Chance(rng_, context_.plan.hard_stop / 20)) {
      Crash(/*keeps_all=*/true);  // A second SIGTERM, or a supervisor's timeout.
    } else if (daemon_->is_idle() || now >= give_up + Milliseconds(2'000)) {
      EndInOrder();
      StartLater(Milliseconds(Between(rng_, 1, 300)));
    } else {
      if (now >= give_up && now < give_up + Milliseconds(10)) {
        daemon_->StopRunning();
      }
      PollDrain(give_up);
    }
  });
}

void World::EndInOrder() {
  daemon_->Stop();
  context_.trace.Add("world", "the daemon ends");
  attempts_.OnDaemonEnd(/*drained=*/true);
  daemon_.reset();
  context_.events.ForgetOwnersBelow(context_.incarnation + 1);
}

void World::Repeat(Duration mean, std::function<void()> action) {
  if (mean == Duration{0}) {
    return;
  }
  const auto us = static_cast<uint64_t>(mean.count()) / 1'000;
  context_.events.After(Microseconds(rng_.Below(2 * us + 1)), 0, [this, mean, action = std::move(action)] {
    if (context_.faults_on) {
      action();
      Repeat(mean, action);
    }
  });
}

void World::FillDisk() {
  machine_.disk.SetSpace(machine_.disk.used_bytes() + rng_.Below(20'000));
  context_.trace.Add("world", "the disk is full");
  context_.events.After(context_.plan.full_for, 0, [this] {
    machine_.disk.SetSpace(UINT64_MAX);
    context_.trace.Add("world", "the disk has room");
  });
}

void World::Reload() {
  if (daemon_ == nullptr) {
    return;
  }
  Config& config = machine_.config;
  config.jobs_running_max = Between(rng_, 1, 8);
  config.jobs_running_per_tenant_max = Between(rng_, 1, 4);
  config.jobs_queued_per_tenant_max = Between(rng_, 1, 1'000);
  config.jobs_attempts_default = Between(rng_, 1, 5);
  config.jobs_deadline_default_ms = Between(rng_, 2, 120) * 1'000;
  DrawQuotas(rng_, config);
  context_.queued_per_tenant_max = std::max(context_.queued_per_tenant_max, config.jobs_queued_per_tenant_max);
  context_.trace.Add("world", "the configuration is reloaded");
  daemon_->core().SetConfig(config);
}

void World::JumpWall() {
  if (context_.plan.jump_years != 0) {
    // From an hour to years off the right time, in either direction, or back to it; steps of all magnitudes are
    // equally likely.
    const int64_t most_ns = int64_t{context_.plan.jump_years} * 365 * 86'400'000'000'000;
    const int64_t off_ns = std::min(most_ns, 3'600'000'000'000 << rng_.Below(17));
    const uint64_t way = rng_.Below(3);
    const int64_t by_ns = (way == 0 ? 0 : way == 1 ? off_ns : -off_ns) - wall_off_ns_;
    context_.trace.Add("world", "the wall clock jumps by " + std::to_string(by_ns / 1'000'000) + " ms");
    context_.clock.JumpWall(by_ns);
    wall_off_ns_ += by_ns;
    return;
  }
  const auto max_ms = static_cast<uint64_t>(context_.plan.jump_max.count()) / 1'000'000;
  const auto ms = static_cast<int64_t>(rng_.Below(2 * max_ms + 1)) - static_cast<int64_t>(max_ms);
  context_.trace.Add("world", "the wall clock jumps by " + std::to_string(ms) + " ms");
  context_.clock.JumpWall(ms * 1'000'000);
}

}  // namespace hpvm::server::sim
