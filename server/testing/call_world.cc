// SPDX-License-Identifier: Apache-2.0
#include "server/testing/call_world.h"

#include <algorithm>
#include <chrono>

namespace hpvm::server::testing {
namespace {

using scheduler::Resource;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// Small, so that refusals are common.
Config SmallLimits() {
  Config config;
  config.limits_module_bytes_max = 5'000;
  config.limits_document_bytes_max = 3'000;
  config.limits_stored_bytes_max = 12'000;
  config.limits_buffer_bytes_max = 70'000;
  config.limits_buffers_bytes_max = 100'000;
  config.limits_buffers_max = 4;
  config.limits_prepared_graphs_max = 3;
  config.limits_uploads_max = 2;
  config.limits_host_bytes_max = 2'000'000;
  config.jobs_queued_per_tenant_max = 6;
  config.jobs_queued_max = 10;
  config.jobs_running_per_tenant_max = 2;
  config.jobs_running_max = 3;
  config.jobs_stored_bytes_max = 60'000;
  config.jobs_array_max = 5;
  config.jobs_dependencies_max = 2;
  config.jobs_watchers_max = 4;
  config.jobs_watchers_per_tenant_max = 2;
  config.executor_memory_bytes_max = 0;
  return config;
}

// Differs from the others in some limit, smaller or larger.
Config ConfigOf(const std::array<uint8_t, 3>& numbers) {
  Config config = SmallLimits();
  switch (numbers[0] % 8) {
    case 0:
      config.limits_buffers_max = config.limits_prepared_graphs_max = config.limits_uploads_max = 1;
      config.jobs_queued_per_tenant_max = config.jobs_queued_max = config.jobs_running_max = 1;
      break;
    case 1:
      config.jobs_queued_per_tenant_max = config.jobs_queued_max = config.jobs_running_max = 100;
      config.limits_prepared_graphs_max = config.limits_buffers_max = 100;
      break;
    case 2:
      config.jobs_kept_max = numbers[1] % 4;
      config.jobs_kept_ms = 1'000;
      break;
    case 3:
      config.jobs_kept_bytes_max = numbers[1] * 16u;
      break;
    case 4:
      config.limits_graph_idle_ms_max = config.limits_buffer_idle_ms_max = 1'000;
      config.limits_yields_after_ms = config.executor_idle_ms_max = 1'000;
      break;
    case 5:
      config.limits_stored_bytes_max = config.jobs_stored_bytes_max = 2'000;
      config.limits_host_bytes_max = 20'000;
      break;
    case 6:
      config.jobs_deadline_default_ms = config.executor_prepare_ms_max = 1'000;
      config.executor_crashes_max = 1;
      break;
    default:
      break;
  }
  return config;
}

uint64_t LimitOf(Resource resource, uint8_t number) {
  switch (resource) {
    case Resource::kDeviceTime:
    case Resource::kCompileTime:
      return number * 1'000'000'000u + 1;
    case Resource::kQueuedJobs:
    case Resource::kRunningJobs:
    case Resource::kModules:
    case Resource::kRequests:
      return number % 8 + 1;
    default:
      return number * 256u + 1;
  }
}

constexpr std::array<Duration, 12> kAdvances = {milliseconds(1), milliseconds(10), milliseconds(100), milliseconds(250),
                                                seconds(1),      seconds(1),       seconds(5),        seconds(30),
                                                minutes(2),      minutes(11),      hours(1),          hours(7)};

std::string Describe(const std::string& broken, const Script& script, size_t steps) {
  std::string text = broken + "\n";
  for (size_t i = 0; i < steps; ++i) {
    text += "  " + std::to_string(i) + ": " + ToLine(script[i]) + "\n";
  }
  return text + (steps == script.size() ? "  and the end\n" : "");
}

}  // namespace

CallWorld::CallWorld() : executors_(spawner_, promises_) {
  config_ = SmallLimits();
  clock_.Advance(hours(1));
  MemoryJobDatabaseFaults faults;
  faults.before_commit = [this](std::span<const JobWrite>) {
    if (full_commits_ == 0) {
      return absl::OkStatus();
    }
    --full_commits_;
    return ResourceExhausted("The disk is full.");
  };
  faults.after_commit = [this](std::span<const JobWrite> writes) {
    for (const JobWrite& write : writes) {
      if (const auto* drop = std::get_if<DropJob>(&write); drop != nullptr && drop->forget) {
        promises_.OnForgotten(drop->id);
      }
      if (std::holds_alternative<ForgetKeys>(write)) {
        promises_.OnKeysForgotten();
      }
    }
    return absl::OkStatus();
  };
  state_ = std::make_unique<StoredState>(std::move(faults));
  for (size_t i = 0; i < kTenantNames.size(); ++i) {
    clients_.emplace_back(i, promises_);
  }
  StartAgain();
}

CallWorld::~CallWorld() {
  for (CallClient& client : clients_) {
    client.Disconnect(/*is_heard=*/false);
  }
  End();
}

void CallWorld::StartAgain() {
  const Status started = StartCore();
  promises_.Expect(started.ok(), "The daemon does not start: " + started.ToString());
  core_->devices().SetFound("cpu", Found({FoundDevice("cpu:0", "cpu:0")}));
  core_->devices().SetFound("opencl", Found({FoundDevice("opencl:0", "opencl:0", 1 << 20)}));
  core_->devices().DevicesKnown();
  for (CallClient& client : clients_) {
    client.Connect(*core_);
    client.FindJobs();
  }
}

std::string CallWorld::Play(const Script& script) {
  for (size_t i = 0; i < script.size(); ++i) {
    Step(script[i]);
    if (!promises_.broken().empty()) {
      return Describe(promises_.broken(), script, i + 1);
    }
  }
  EndAll();
  return promises_.broken().empty() ? "" : Describe(promises_.broken(), script, script.size());
}

void CallWorld::Step(const Action& action) {
  if (!clients_[action.tenant % clients_.size()].Do(action) && !executors_.Do(action)) {
    Administer(action);
  }
  Pump();
  // Due events may come at once, or later.
  if (action.numbers[2] % 2 == 0) {
    core_->OnTime();
    Pump();
  }
  CheckAccounts(/*at_rest=*/false);
}

void CallWorld::Administer(const Action& action) {
  const Numbers& numbers = action.numbers;
  bool did = true;
  switch (action.kind) {
    case ActionKind::kHoldStore:
      did = HoldStore(numbers);
      break;
    case ActionKind::kStepStore:
      did = StepStore(numbers);
      break;
    case ActionKind::kDiskFull:
      did = FillDisk(numbers);
      break;
    case ActionKind::kProbe:
      did = Probe(numbers);
      break;
    case ActionKind::kAdvance:
      did = Advance(kAdvances[numbers[0] % kAdvances.size()]);
      break;
    case ActionKind::kSetConfig:
      did = SetConfig(numbers);
      break;
    case ActionKind::kSetPolicy:
      did = SetPolicy(std::string(kTenantNames[action.tenant % clients_.size()]), numbers);
      break;
    case ActionKind::kStop:
      Stop(numbers);
      break;
    default:
      Kill();
  }
  promises_.Count(action.kind, did);
}

bool CallWorld::HoldStore(const Numbers& numbers) {
  store_->hold_commits = numbers[0] % 4 == 1 || numbers[0] % 4 == 3;
  store_->hold_posted = numbers[0] % 4 == 2 || numbers[0] % 4 == 3;
  return true;
}

bool CallWorld::StepStore(const Numbers& numbers) {
  bool did = false;
  for (int i = 0; i <= numbers[0] % 4; ++i) {
    did |= numbers[1] % 2 == 0 ? store_->StepCommit() : store_->StepPosted();
  }
  return did;
}

// For one commit, for a while, or not any more.
bool CallWorld::FillDisk(const Numbers& numbers) {
  full_commits_ = numbers[0] % 4 == 0 ? 1 : numbers[0] % 4 == 1 ? 20 : 0;
  store_->put_failure = numbers[0] % 8 == 2 ? ResourceExhausted("The disk is full.") : absl::OkStatus();
  says_full_ = numbers[0] % 4 == 1;
  core_->OnRoom(!says_full_);
  return true;
}

bool CallWorld::Probe(const Numbers& numbers) {
  Time next = kNever;
  const std::optional<std::string> due = core_->devices().DueProbe(&next);
  if (due.has_value()) {
    core_->devices().OnProbed(*due, numbers[0] % 4 == 0 ? Unavailable("The device is silent.") : absl::OkStatus());
  }
  return due.has_value();
}

bool CallWorld::Advance(Duration by) {
  clock_.Advance(by);
  core_->OnTime();
  Pump();
  core_->OnTime();
  return true;
}

bool CallWorld::SetConfig(const Numbers& numbers) {
  config_ = ConfigOf(numbers);
  core_->SetConfig(config_);
  return true;
}

bool CallWorld::SetPolicy(const std::string& tenant, const Numbers& numbers) {
  policies_.gone.erase(tenant);
  policies_.changes.erase(tenant);
  const size_t what = numbers[0] % 16;
  if (what < scheduler::kResourceCount) {
    policies_.changes[tenant] = [what, limit = LimitOf(static_cast<Resource>(what), numbers[1])](TenantPolicy& policy) {
      policy.limits[what] = limit;
    };
  } else if (what == 10 || what == 11) {
    policies_.changes[tenant] = [](TenantPolicy& policy) {
      policy.disabled = true;
      policy.disabled_reason = "the bill is open";
    };
  } else if (what == 12) {
    policies_.gone.insert(tenant);
  }
  core_->OnPolicyChanged(tenant);
  return true;
}

// An orderly stop: clients learn the outcome of their calls.
void CallWorld::Stop(const Numbers& numbers) {
  core_->Drain();
  for (CallClient& client : clients_) {
    client.Disconnect(/*is_heard=*/true);
  }
  store_->hold_commits = store_->hold_posted = false;
  if (numbers[0] % 2 == 0) {
    Pump();
    core_->StopRunning();
    Advance(milliseconds(numbers[1]));
  }
  End();
  promises_.ExpectNoneOpen("although the daemon has stopped");
  StartAgain();
}

void CallWorld::Kill() {
  for (CallClient& client : clients_) {
    client.Disconnect(/*is_heard=*/false);
  }
  Crash();
  promises_.LoseOpen();
  StartAgain();
}

void CallWorld::CheckAccounts(bool at_rest) {
  const Status accounts = core_->CheckAccounts(at_rest);
  promises_.Expect(accounts.ok(), Message(accounts));
}

void CallWorld::EndAll() {
  LiftAll();
  for (CallClient& client : clients_) {
    client.Abandon();
  }
  AwaitQuiet();
  promises_.ExpectNoneOpen("although nothing is held up any more");
  DropAll();
  CheckAccounts(/*at_rest=*/true);
  CheckNothingLeft();
  Stop({0, 1, 0});
}

void CallWorld::LiftAll() {
  store_->hold_commits = store_->hold_posted = false;
  store_->put_failure = absl::OkStatus();
  full_commits_ = 0;
  executors_.Heal();
  policies_.changes.clear();
  policies_.gone.clear();
  config_ = SmallLimits();
  core_->SetConfig(config_);
  core_->OnRoom(true);
}

std::vector<std::string> CallWorld::LiveJobs(size_t tenant) {
  std::vector<std::string> ids;
  const Status read = state_->jobs().LoadLive(
      [&](const LiveRow& row) {
        if (row.job.tenant() == kTenantNames[tenant]) {
          ids.push_back(row.job.job().id());
        }
      },
      nullptr);
  promises_.Expect(read.ok(), Message(read));
  return ids;
}

bool CallWorld::IsQuiet() {
  for (size_t i = 0; i < clients_.size(); ++i) {
    const StatusOr<TenantRef> tenant = core_->tenants().FindTenant(kTenantNames[i]);
    if (!LiveJobs(i).empty() || !tenant.ok() || (*tenant)->active > 0) {
      return false;
    }
  }
  return promises_.open() == 0 && core_->operations() == 0;
}

// Executors answer, and more time passes than any wait takes.
void CallWorld::AwaitQuiet() {
  constexpr std::array<Duration, 4> kRounds = {milliseconds(100), seconds(1), minutes(1), hours(1)};
  for (const Duration by : kRounds) {
    for (int i = 0; i < 12 && !IsQuiet(); ++i) {
      for (size_t client = 0; client < clients_.size(); ++client) {
        clients_[client].CancelJobs(LiveJobs(client));
      }
      Pump();
      executors_.AnswerAll();
      Probe({1, 0, 0});
      Advance(by);
      executors_.AnswerAll();
      Pump();
    }
  }
  for (size_t i = 0; i < clients_.size(); ++i) {
    for (const std::string& id : LiveJobs(i)) {
      promises_.Break("Job " + id + " was cancelled and does not end.");
    }
  }
  promises_.Expect(IsQuiet(), "Operations do not end although nothing is held up any more.");
}

// Deletes everything kept by name, and lets executors end because they are idle; then another blob needs all the room
// there is.
void CallWorld::DropAll() {
  constexpr uint64_t kAll = 1 << 20;
  // Time passes first: a tenant whose request quota is used up could not return anything, and has to earn new
  // requests.
  for (const std::string_view name : kTenantNames) {
    policies_.changes[std::string(name)] = [](TenantPolicy& policy) {
      policy.limits[static_cast<size_t>(Resource::kHostBytes)] = kAll;
    };
    core_->OnPolicyChanged(name);
  }
  Advance(seconds(1));
  for (CallClient& client : clients_) {
    client.DropAll();
  }
  for (int i = 0; i < 3; ++i) {
    Advance(hours(1));
    executors_.AnswerAll();
  }
  for (const std::string_view name : kTenantNames) {
    const StatusOr<TenantRef> tenant = core_->tenants().FindTenant(name);
    const Status held = tenant.ok() ? core_->graphs().HoldHostBytes(**tenant, kAll).status() : tenant.status();
    promises_.Expect(held.ok(), "What nobody uses does not give way: " + Message(held));
  }
  Pump();
}

void CallWorld::CheckBalance(const Tenant& tenant, Resource resource, uint64_t wanted) {
  const uint64_t used = core_->quotas().ledger().BalanceOf(tenant.key, resource, clock_.Now()).used;
  promises_.Expect(used == wanted, "Tenant " + tenant.name + " still has " + std::to_string(used) + " of " +
                                       std::string(scheduler::FactsOf(resource).name) + " and should have " +
                                       std::to_string(wanted) + ".");
}

void CallWorld::CheckNothingLeft() {
  const std::map<std::string, TenantUse> uses = state_->jobs().Use().value_or(std::map<std::string, TenantUse>());
  for (const std::string_view name : kTenantNames) {
    const StatusOr<TenantRef> found = core_->tenants().FindTenant(name);
    if (!found.ok()) {
      promises_.Break("A tenant that is enabled is refused: " + Message(found.status()));
      return;
    }
    const Tenant& tenant = **found;
    const auto use = uses.find(tenant.name);
    for (const Resource resource :
         {Resource::kHostBytes, Resource::kQueuedJobs, Resource::kRunningJobs, Resource::kDeviceBytes}) {
      CheckBalance(tenant, resource, 0);
    }
    CheckBalance(tenant, Resource::kDiskBytes, use == uses.end() ? 0 : use->second.stored_bytes);
    promises_.Expect(tenant.jobs.empty() && tenant.arrays.empty() && tenant.dependencies.size() == 0 &&
                         tenant.pending_keys.empty() && tenant.uploads == 0 && tenant.downloads == 0 &&
                         tenant.watchers == 0,
                     "Something of tenant " + tenant.name + " is left although all has ended.");
  }
}

}  // namespace hpvm::server::testing
