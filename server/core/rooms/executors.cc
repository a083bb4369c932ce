// SPDX-License-Identifier: Apache-2.0
#include "server/core/rooms/executors.h"

#include <algorithm>
#include <utility>

#include "server/process/log.h"

namespace hpvm::server {
namespace {

// Time for which no executor is started after one whose sandbox was too weak: while nothing changes, the next one's
// would be, too.
constexpr Duration kRefusalHeld = std::chrono::seconds(10);
// Factor on executor.crashes_max: the number of crashes with the tenant's own modules in flight after which the tenant
// as a whole must wait.
constexpr uint64_t kModuleCrashesFactor = 4;

// Makes the page to which grants are written; all executors of a tenant use the same one.
Status MakeGrantPage(ExecutorSlot& slot) {
  if (slot.grant_fd.valid()) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(slot.grant_fd, CreateSealedMemfd("hpvm-grants", kGrantPageBytes));
  HPVMD_ASSIGN_OR_RETURN(slot.grant_page,
                         Mapping::Map(slot.grant_fd.get(), kGrantPageBytes, Mapping::Access::kReadWrite));
  return absl::OkStatus();
}

std::vector<Preparation::Waiter> TakeWaiting(ExecutorSlot& slot) { return std::exchange(slot.waiting, {}); }

}  // namespace

void Executors::SpawnAwaiting(CoreScope& scope) {
  if (!devices_.AreSettled()) {
    return;
  }
  for (auto& [tenant, epoch] : std::exchange(awaiting_devices_, {})) {
    SetProfile(*tenant);
    arbiter_.WriteGrantPage(tenant->executor);
    PostSpawn(tenant, epoch);
  }
}

void Executors::WithExecutor(CoreScope& scope, const TenantRef& tenant, Waiter then) {
  ExecutorSlot& slot = tenant->executor;
  slot.last_used = options_.clock->Now();
  // A device that came back, or was found since, justifies a new process when no work is lost.
  if (slot.state == ExecutorSlot::State::kUp && LacksDevices(*tenant) && !IsExecutorBusy(*tenant)) {
    RetireExecutor(scope, *tenant);
  }
  if (slot.state == ExecutorSlot::State::kUp) {
    then(scope, Outcome());
    return;
  }
  if (shutdown_.stopped) {
    then(scope, Unavailable("The server stopped."));
    return;
  }
  if (tenant->policy->disabled) {
    then(scope, Tenants::Suspended(*tenant));
    return;
  }
  if (slot.state == ExecutorSlot::State::kDown) {
    if (Outcome refused = WhyNoExecutor(*tenant); !refused.ok()) {
      then(scope, refused);
      return;
    }
    if (const Status page = MakeGrantPage(slot); !page.ok()) {
      then(scope, page);
      return;
    }
    slot.state = ExecutorSlot::State::kStarting;
    slot.ended = slot.is_ready = false;
    slot.in_flight.clear();
    slot.usage = {};
    slot.device_bytes_max = tenant->policy->limits[static_cast<size_t>(scheduler::Resource::kDeviceBytes)];
    ++slot.epoch;
    if (devices_.AreSettled()) {
      SetProfile(*tenant);
      arbiter_.WriteGrantPage(slot);
      PostSpawn(tenant, slot.epoch);
    } else {
      awaiting_devices_.emplace_back(tenant, slot.epoch);
    }
  }
  slot.waiting.push_back(std::move(then));
}

CrashBreaker::Limits Executors::BreakerLimits() const {
  return {config_->executor_crashes_max, std::chrono::milliseconds(config_->executor_crash_window_ms)};
}

CrashBreaker::Limits Executors::BreakerLimitsOfAll() const {
  CrashBreaker::Limits limits = BreakerLimits();
  limits.crashes_max *= kModuleCrashesFactor;
  return limits;
}

Duration Executors::CrashPause(ExecutorSlot& slot) {
  const Time now = options_.clock->Now();
  return slot.state != ExecutorSlot::State::kDown
             ? Duration{0}
             : std::max(slot.breaker.Pause(now, BreakerLimits()), slot.breaker_of_all.Pause(now, BreakerLimitsOfAll()));
}

// Counts an executor that ended by itself against the tenant or against its modules.
void Executors::CountCrash(Tenant& tenant) {
  ExecutorSlot& slot = tenant.executor;
  const Time now = options_.clock->Now();
  const Duration lived = slot.is_ready ? now - slot.ready_at : Duration{0};
  slot.breaker_of_all.Crashed(now, lived, BreakerLimitsOfAll(), *options_.rng);
  if (slot.in_flight.empty()) {
    slot.breaker.Crashed(now, lived, BreakerLimits(), *options_.rng);
  } else {
    const std::vector<NativeUse> in_flight(slot.in_flight.begin(), slot.in_flight.end());
    slot.modules.Crashed(in_flight, now, BreakerLimits(), *options_.rng);
    if (const auto refused = slot.modules.Refused(in_flight, now, BreakerLimits())) {
      LogWarning("Module not run on a device after crashes", {{"tenant", tenant.name},
                                                              {"module", refused->use.name},
                                                              {"device", refused->use.device},
                                                              {"crashes", std::to_string(refused->crashes)}});
    }
  }
  if (std::max(slot.breaker.Pause(now, BreakerLimits()), slot.breaker_of_all.Pause(now, BreakerLimitsOfAll())) >
      Duration{0}) {
    options_.observer->On(events::ExecutorChanged{tenant.name, "breaker opened"});
  }
}

Outcome Executors::WhyNoModule(Tenant& tenant, const Preparation& preparation) {
  const auto refused = tenant.executor.modules.Refused(preparation.native, options_.clock->Now(), BreakerLimits());
  if (!refused.has_value()) {
    return Outcome();
  }
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(refused->pause).count();
  return Later(Unavailable("Module \"" + refused->use.name + "\" is not run on " + refused->use.device + ": " +
                           std::to_string(refused->crashes) + " executors of the tenant ended within " +
                           std::to_string(config_->executor_crash_window_ms) +
                           " ms while it ran there. The module may run there again in " + std::to_string(ms) +
                           " ms; graphs without it run. The last end: " + Message(tenant.executor.end_status)),
               refused->pause);
}

Outcome Executors::WhyNoExecutor(Tenant& tenant) {
  ExecutorSlot& slot = tenant.executor;
  if (options_.clock->Now() < slot.refused_until && slot.refused_policy == tenant.policy &&
      slot.refused_config == config_.Get()) {
    return slot.refusal;
  }
  const Duration pause = CrashPause(slot);
  if (pause == Duration{0}) {
    return Outcome();
  }
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(pause).count();
  const bool is_unexplained = slot.breaker.Pause(options_.clock->Now(), BreakerLimits()) == pause;
  return Later(
      Unavailable("The tenant's executor ended " +
                  std::to_string((is_unexplained ? slot.breaker : slot.breaker_of_all).crashes()) + " times within " +
                  std::to_string(config_->executor_crash_window_ms) + " ms; the next executor may start in " +
                  std::to_string(ms) + " ms. The last end: " + Message(slot.end_status)),
      pause);
}

std::vector<std::string> Executors::ProfileOf(const Tenant& tenant) const {
  std::vector<std::string> profile = devices_.table().Profile();
  std::erase_if(profile, [&](const std::string& device) { return !tenant.policy->MayUse(device); });
  return profile;
}

void Executors::SetProfile(Tenant& tenant) {
  tenant.executor.profile = ProfileOf(tenant);
  tenant.executor.emitted_refused = devices_.table().EmittedRefused(tenant.executor.profile);
}

bool Executors::LacksDevices(const Tenant& tenant) const {
  const std::vector<std::string> now = ProfileOf(tenant);
  const std::vector<std::string>& has = tenant.executor.profile;
  return std::any_of(now.begin(), now.end(),
                     [&](const std::string& device) { return std::find(has.begin(), has.end(), device) == has.end(); });
}

// Returns true when the executor has work other than that of the caller.
bool Executors::IsExecutorBusy(const Tenant& tenant) const {
  const auto is_preparing = [](const auto& preparation) { return !preparation.second->waits.empty(); };
  return tenant.executor.sent_runs > 0 ||
         std::count_if(tenant.preparations.begin(), tenant.preparations.end(), is_preparing) > 1;
}

// The server stopped before the executor was started.
void Executors::RefuseWaiting(CoreScope& scope, Tenant& tenant) {
  tenant.executor.state = ExecutorSlot::State::kDown;
  for (const Waiter& waiter : TakeWaiting(tenant.executor)) {
    waiter(scope, Unavailable("The server stopped."));
  }
}

// Spawning takes milliseconds, and the caller may be a thread that serves all tenants, so it is done in the tenant's
// turn.
void Executors::PostSpawn(const TenantRef& tenant, uint64_t epoch) {
  options_.jobs->Post(tenant->name, [this, tenant, epoch] {
    Spawn(tenant, epoch);
    return FairQueue::Step::kDone;
  });
}

void Executors::Spawn(const TenantRef& tenant, uint64_t epoch) {
  {
    CoreScope scope(monitor_);
    if (shutdown_.stopped) {
      RefuseWaiting(scope, *tenant);
      return;
    }
    live_ports_.fetch_add(1);  // Stop waits for it.
  }
  const Time start = options_.clock->Now();
  const auto on_ready = [start, tenant, epoch, this](const supervisor::ExecutorReady& ready) {
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(options_.clock->Now() - start);
    LogInfo("Executor ready", {{"tenant", tenant->name},
                               {"executor", std::to_string(epoch)},
                               {"pid", std::to_string(ready.pid)},
                               {"us", std::to_string(took.count())},
                               {"sandbox_level", std::to_string(ready.said.sandbox_level())},
                               {"sandbox", ready.said.sandbox_detail()}});
    options_.observer->On(events::ExecutorChanged{tenant->name, "started"});
    OnReady(tenant, epoch, ready);
  };
  // The profile belongs to this epoch, and changes only with it.
  const std::vector<std::string>& profile = tenant->executor.profile;
  StatusOr<std::unique_ptr<supervisor::ExecutorProcess>> spawned = options_.spawner->Spawn(
      {.tenant = tenant->name,
       .grant_page = tenant->executor.grant_fd.get(),
       .backends = profile,
       .stop_grace = devices_.StopGrace(profile),
       .sandbox_level_min = tenant->policy->sandbox_level_min,
       .without_device_nodes = !devices_.HasDriver(profile),
       .has_driver = devices_.HasDriver(profile),
       .emitted_refused = tenant->executor.emitted_refused,
       .on_usage = [this, tenant, epoch](const internal::Usage& usage) { OnUsage(tenant, epoch, usage); }},
      on_ready, [this, tenant, epoch](const Status& why) { OnExecutorEnd(tenant, epoch, why); });
  std::shared_ptr<supervisor::ExecutorProcess> port;  // Declared before the scope, so that it is released after it.
  if (spawned.ok()) {
    port = Adopt(*std::move(spawned));
  } else {
    live_ports_.fetch_sub(1);
  }
  CoreScope scope(monitor_);
  ExecutorSlot& slot = tenant->executor;
  Outcome outcome;
  if (port != nullptr && slot.ended && port->was_spare() && !slot.is_ready && !shutdown_.stopped) {
    slot.ended = false;
    PostSpawn(tenant, ++slot.epoch);
    return;
  }
  if (port == nullptr) {
    outcome = While(spawned.status(), "starting the tenant's executor");
    LogError("Executor not started", {{"tenant", tenant->name}, {"error", Message(spawned.status())}});
    options_.observer->On(events::ExecutorChanged{tenant->name, "failed"});
  } else if (slot.ended || shutdown_.stopped) {
    outcome = slot.ended ? slot.end_status : Unavailable("The server stopped.");
  } else if (tenant->policy->disabled) {
    outcome = Tenants::Suspended(*tenant);
  }
  if (outcome.ok()) {
    slot.port = port;
    slot.state = ExecutorSlot::State::kUp;
    ScheduleIdleCheck(scope, tenant);
  } else {
    slot.state = ExecutorSlot::State::kDown;
  }
  for (const Waiter& waiter : TakeWaiting(slot)) {
    waiter(scope, outcome);
  }
}

void Executors::OnReady(const TenantRef& tenant, uint64_t epoch, const supervisor::ExecutorReady& ready) {
  CoreScope scope(monitor_);
  ExecutorSlot& slot = tenant->executor;
  if (slot.epoch == epoch) {
    slot.is_ready = true;
    slot.pid = ready.pid;
    slot.ready_at = options_.clock->Now();
    devices_.SetSandbox(scope, {ready.said.sandbox_level(), ready.said.sandbox_detail()}, &slot.sandbox);
  }
  for (const v1::Device& broken : ready.said.broken()) {
    devices_.FenceDevices(scope, {broken.id()}, "An executor could not open the device.", broken.detail());
  }
}

// A spare process may end at the moment in which a tenant gets it. No work of the tenant had begun, so another
// executor may start instead; the number of attempts is bounded, since each takes a spare.
bool Executors::ReplaceDeadSpare(CoreScope& scope, Tenant& tenant, uint64_t epoch) {
  const ExecutorSlot& slot = tenant.executor;
  if (slot.epoch != epoch || slot.port == nullptr || slot.is_ready || !slot.port->was_spare()) {
    return false;
  }
  KillExecutor(scope, tenant, "The spare executor ended while it waited for a tenant.");
  return true;
}

std::shared_ptr<supervisor::ExecutorProcess> Executors::Adopt(std::unique_ptr<supervisor::ExecutorProcess> port) {
  // The last reference may be released on the link's own thread, which must not wait for the process to be reaped;
  // OnTime's thread does.
  return {port.release(), [this](supervisor::ExecutorProcess* ended) {
            {
              std::lock_guard lock(ended_mutex_);
              ended_executors_.emplace_back(ended);
              ended_changed_.notify_all();
            }
            monitor_.Wake();
          }};
}

void Executors::DestroyEnded() {
  std::vector<std::unique_ptr<supervisor::ExecutorProcess>> ended;
  {
    std::lock_guard lock(ended_mutex_);
    ended.swap(ended_executors_);
  }
  const size_t count = ended.size();
  ended.clear();
  live_ports_.fetch_sub(count);
}

void Executors::KillAll(CoreScope& scope) {
  for (const auto& [name, tenant] : tenants_.all()) {
    KillExecutor(scope, *tenant, "The server stopped.");
  }
  for (const auto& [tenant, epoch] : std::exchange(awaiting_devices_, {})) {
    RefuseWaiting(scope, *tenant);  // No probe answers any more.
  }
}

// Runs in progress fail as their executor ends; the last holder to release an executor puts it into ended_executors_.
void Executors::AwaitEnd() {
  DestroyEnded();
  while (live_ports_.load() > 0) {
    {
      std::unique_lock lock(ended_mutex_);
      ended_changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return !ended_executors_.empty(); });
    }
    DestroyEnded();
  }
}

void Executors::OnExecutorEnd(const TenantRef& tenant, uint64_t epoch, const Status& why) {
  CoreScope scope(monitor_);
  ExecutorSlot& slot = tenant->executor;
  if (slot.epoch != epoch || slot.killed_epoch == epoch) {
    return;
  }
  slot.end_status = why.ok() ? Unavailable("The tenant's executor was shut down.") : why;
  const Time now = options_.clock->Now();
  // The executor found its sandbox weaker than the tenant or the configuration demands, which is no fault of a device
  // or of the tenant.
  const bool is_refusal = !slot.is_ready && slot.end_status.code() == absl::StatusCode::kFailedPrecondition;
  if (is_refusal) {
    slot.refusal = slot.end_status;
    slot.refused_until = now + kRefusalHeld;
    slot.refused_policy = tenant->policy;
    slot.refused_config = config_.Get();
  } else {
    CountCrash(*tenant);
  }
  LogWarning("Executor ended", {{"tenant", tenant->name},
                                {"executor", std::to_string(epoch)},
                                {"pid", slot.is_ready ? std::to_string(slot.pid) : ""},
                                {"error", Message(slot.end_status)}});
  options_.observer->On(events::ExecutorChanged{tenant->name, slot.is_ready ? "crashed" : "failed"});
  if (!slot.is_ready && !is_refusal) {
    // A driver may have killed it: drivers are probed in a process that has no tenant's work.
    devices_.FenceDevices(scope, slot.profile, "An executor ended before it was ready.", Message(slot.end_status));
  }
  if (slot.state == ExecutorSlot::State::kStarting) {
    slot.ended = true;  // Spawn sees it before it installs the port.
    return;
  }
  slot.state = ExecutorSlot::State::kDown;
  slot.device_bytes.Release();
  slot.port.reset();
}

void Executors::KillExecutor(CoreScope& scope, Tenant& tenant, std::string why) {
  ExecutorSlot& slot = tenant.executor;
  if (slot.port == nullptr) {
    return;
  }
  LogInfo("Executor killed", {{"tenant", tenant.name}, {"executor", std::to_string(slot.epoch)}, {"reason", why}});
  options_.observer->On(events::ExecutorChanged{tenant.name, "killed"});
  // From here on new work gets a new executor.
  slot.killed_epoch = slot.epoch;
  slot.state = ExecutorSlot::State::kDown;
  slot.device_bytes.Release();
  scope.Defer([port = std::move(slot.port), why = std::move(why)] { port->Kill(why); });
  slot.port.reset();
}

void Executors::RetireExecutor(CoreScope& scope, Tenant& tenant) {
  ExecutorSlot& slot = tenant.executor;
  LogInfo("Executor retired", {{"tenant", tenant.name}, {"executor", std::to_string(slot.epoch)}});
  options_.observer->On(events::ExecutorChanged{tenant.name, "retired"});
  slot.killed_epoch = slot.epoch;
  slot.state = ExecutorSlot::State::kDown;
  slot.device_bytes.Release();
  scope.Defer([port = std::move(slot.port)] { port->Shutdown(); });
  slot.port.reset();
}

void Executors::ScheduleIdleCheck(CoreScope& scope, const TenantRef& tenant) {
  const Duration idle_max = std::chrono::milliseconds(config_->executor_idle_ms_max);
  const Time due =
      std::max(tenant->executor.last_used + idle_max, options_.clock->Now() + std::chrono::milliseconds(10));
  monitor_.AddTimer(scope, due, [this, tenant, epoch = tenant->executor.epoch, idle_max](CoreScope& inner) {
    ExecutorSlot& slot = tenant->executor;
    if (slot.epoch != epoch || slot.state != ExecutorSlot::State::kUp) {
      return;
    }
    if (tenant->active == 0 && options_.clock->Now() - slot.last_used >= idle_max) {
      RetireExecutor(inner, *tenant);
    } else {
      slot.last_used = tenant->active > 0 ? options_.clock->Now() : slot.last_used;
      ScheduleIdleCheck(inner, tenant);
    }
  });
}

void Executors::ForgetFreed(Tenant& tenant, supervisor::ExecutorProcess& port) {
  for (const uint64_t id : tenant.pool.TakeFreed()) {
    port.Forget(id);
  }
}

}  // namespace hpvm::server
