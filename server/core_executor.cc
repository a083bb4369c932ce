// SPDX-License-Identifier: Apache-2.0
// Executors: spawned on demand, one a tenant, replaced after their death.
#include <algorithm>
#include <utility>

#include "server/core.h"
#include "server/log.h"

namespace hpvm {
namespace {

// The page that grants are written to; one for all executors of a tenant.
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

void Core::WithExecutor(CoreScope& scope, const TenantRef& tenant, Waiter then) {
  ExecutorSlot& slot = tenant->executor;
  slot.last_used = options_.clock->Now();
  // A device that came back, or was found since, is worth a new process where nothing is lost by it.
  if (slot.state == ExecutorSlot::State::kUp && devices_.IsMissing(slot.profile) && !IsExecutorBusy(*tenant)) {
    RetireExecutor(scope, *tenant);
  }
  if (slot.state == ExecutorSlot::State::kUp) {
    then(scope, Outcome());
    return;
  }
  if (stopped_) {
    then(scope, Unavailable("The server stopped."));
    return;
  }
  if (slot.state == ExecutorSlot::State::kDown) {
    if (const Duration pause = CrashPause(slot); pause > Duration{0}) {
      Outcome refused =
          Unavailable("The tenant's executor ended " + std::to_string(slot.crashes.size()) + " times within " +
                      std::to_string(config_->executor_crash_window_ms) +
                      " ms; no new one starts until that time has passed. The last: " + Message(slot.end_status));
      refused.detail.emplace().set_retryable(true);
      refused.detail->set_retry_after_ns(static_cast<uint64_t>(pause.count()));
      then(scope, refused);
      return;
    }
    if (const Status page = MakeGrantPage(slot); !page.ok()) {
      then(scope, page);
      return;
    }
    slot.state = ExecutorSlot::State::kStarting;
    slot.ended = slot.is_ready = false;
    ++slot.epoch;
    slot.WriteGrantPage(options_.cpu_threads);
    if (devices_known_ && !devices_.IsSettling()) {
      slot.profile = devices_.Profile();
      scope.Defer([this, tenant, epoch = slot.epoch] { Spawn(tenant, epoch); });
    } else {
      awaiting_devices_.emplace_back(tenant, slot.epoch);
    }
  }
  slot.waiting.push_back(std::move(then));
}

Duration Core::CrashPause(ExecutorSlot& slot) {
  const Duration window = std::chrono::milliseconds(config_->executor_crash_window_ms);
  const Time now = options_.clock->Now();
  while (!slot.crashes.empty() && now - slot.crashes.front() >= window) {
    slot.crashes.pop_front();
  }
  const bool is_paused =
      slot.state == ExecutorSlot::State::kDown && slot.crashes.size() >= config_->executor_crashes_max;
  return is_paused ? slot.crashes.front() + window - now : Duration{0};
}

// Whether the executor has anything in hand beside what is about to ask for it.
bool Core::IsExecutorBusy(const Tenant& tenant) const {
  const auto is_sent = [&](const auto& op) {
    return op.second->tenant.get() == &tenant && op.second->state == RunOp::State::kSent;
  };
  const auto is_preparing = [](const auto& preparation) { return !preparation.second->waiters.empty(); };
  return std::any_of(ops_.begin(), ops_.end(), is_sent) ||
         std::count_if(tenant.preparations.begin(), tenant.preparations.end(), is_preparing) > 1;
}

void Core::Spawn(const TenantRef& tenant, uint64_t epoch) {
  const Time start = options_.clock->Now();
  const auto on_ready = [name = tenant->name, start, tenant, epoch, this](const ExecutorReady& ready) {
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(options_.clock->Now() - start);
    LogInfo("Executor ready", {{"tenant", name},
                               {"executor", std::to_string(epoch)},
                               {"ms", std::to_string(took.count())},
                               {"sandbox_level", std::to_string(ready.sandbox_level)},
                               {"sandbox", ready.sandbox_detail}});
    options_.observer->OnExecutor(name, "started");
    CoreScope scope(*this);
    if (tenant->executor.epoch == epoch) {
      tenant->executor.is_ready = true;
    }
    for (const BrokenDevice& broken : ready.broken) {
      FenceDevices(scope, {broken.id}, "An executor could not open it: " + broken.detail);
    }
  };
  // The profile belongs to this epoch, and changes with it only.
  const std::vector<std::string>& profile = tenant->executor.profile;
  StatusOr<std::unique_ptr<ExecutorProcess>> spawned = options_.spawner->Spawn(
      {tenant->name, tenant->executor.grant_fd.get(), profile, StopGrace(profile)}, on_ready,
      [this, tenant, epoch](const Status& why) { OnExecutorEnd(tenant, epoch, why); });
  std::shared_ptr<ExecutorProcess> port;   // Before the scope, so that it is let go of after it.
  if (spawned.ok()) {
    port = Adopt(*std::move(spawned));
  }
  CoreScope scope(*this);
  ExecutorSlot& slot = tenant->executor;
  Outcome outcome;
  if (port == nullptr) {
    outcome = While(spawned.status(), "starting the tenant's executor");
    LogError("Executor not started", {{"tenant", tenant->name}, {"error", Message(spawned.status())}});
    options_.observer->OnExecutor(tenant->name, "failed");
  } else if (slot.ended || stopped_) {
    outcome = slot.ended ? slot.end_status : Unavailable("The server stopped.");
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

std::shared_ptr<ExecutorProcess> Core::Adopt(std::unique_ptr<ExecutorProcess> port) {
  live_ports_.fetch_add(1);
  // The last reference may go on the link's own thread, which must not wait for the process to be reaped; OnTime's
  // thread does.
  return {port.release(), [this](ExecutorProcess* ended) {
            {
              std::lock_guard lock(graves_mutex_);
              graves_.emplace_back(ended);
              graves_changed_.notify_all();
            }
            if (wake_) {
              wake_();
            }
          }};
}

void Core::DestroyEnded() {
  std::vector<std::unique_ptr<ExecutorProcess>> ended;
  {
    std::lock_guard lock(graves_mutex_);
    ended.swap(graves_);
  }
  const size_t count = ended.size();
  ended.clear();
  live_ports_.fetch_sub(count);
}

void Core::OnExecutorEnd(const TenantRef& tenant, uint64_t epoch, const Status& why) {
  CoreScope scope(*this);
  ExecutorSlot& slot = tenant->executor;
  if (slot.epoch != epoch || slot.killed_epoch == epoch) {
    return;
  }
  slot.end_status = why.ok() ? Unavailable("The tenant's executor was shut down.") : why;
  slot.crashes.push_back(options_.clock->Now());
  LogWarning("Executor ended", {{"tenant", tenant->name},
                                {"executor", std::to_string(epoch)},
                                {"error", Message(slot.end_status)}});
  options_.observer->OnExecutor(tenant->name, slot.is_ready ? "crashed" : "failed");
  if (!slot.is_ready) {
    // It may have died of a driver: those are tried out where nobody's work is at stake.
    FenceDevices(scope, slot.profile, "An executor ended before it was ready: " + Message(slot.end_status));
  }
  if (slot.state == ExecutorSlot::State::kStarting) {
    slot.ended = true;   // Spawn sees it when it would install the port.
    return;
  }
  slot.state = ExecutorSlot::State::kDown;
  slot.port.reset();
}

void Core::KillExecutor(CoreScope& scope, Tenant& tenant, std::string why) {
  ExecutorSlot& slot = tenant.executor;
  if (slot.port == nullptr) {
    return;
  }
  LogInfo("Executor killed",
          {{"tenant", tenant.name}, {"executor", std::to_string(slot.epoch)}, {"reason", why}});
  options_.observer->OnExecutor(tenant.name, "killed");
  // From here on new work gets a new executor.
  slot.killed_epoch = slot.epoch;
  slot.state = ExecutorSlot::State::kDown;
  scope.Defer([port = std::move(slot.port), why = std::move(why)] { port->Kill(why); });
  slot.port.reset();
}

void Core::RetireExecutor(CoreScope& scope, Tenant& tenant) {
  ExecutorSlot& slot = tenant.executor;
  LogInfo("Executor retired", {{"tenant", tenant.name}, {"executor", std::to_string(slot.epoch)}});
  options_.observer->OnExecutor(tenant.name, "retired");
  slot.killed_epoch = slot.epoch;
  slot.state = ExecutorSlot::State::kDown;
  scope.Defer([port = std::move(slot.port)] { port->Shutdown(); });
  slot.port.reset();
}

void Core::ScheduleIdleCheck(CoreScope& scope, const TenantRef& tenant) {
  const Duration idle_max = std::chrono::milliseconds(config_->executor_idle_ms_max);
  const Time due =
      std::max(tenant->executor.last_used + idle_max, options_.clock->Now() + std::chrono::milliseconds(10));
  AddTimer(scope, due, [this, tenant, epoch = tenant->executor.epoch, idle_max](CoreScope& inner) {
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

void Core::ForgetFreed(Tenant& tenant, ExecutorProcess& port) {
  for (const uint64_t id : tenant.pool.TakeFreed()) {
    port.Forget(id);
  }
}

}  // namespace hpvm
