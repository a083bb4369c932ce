// SPDX-License-Identifier: Apache-2.0
// Executors manages the executor processes: one per tenant, spawned on demand, replaced after its death. It also asks
// them to give device memory back.
#ifndef HPVMD_SERVER_CORE_ROOMS_EXECUTORS_H_
#define HPVMD_SERVER_CORE_ROOMS_EXECUTORS_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/core/rooms/arbiter.h"
#include "server/core/rooms/devices.h"
#include "server/core/rooms/quotas.h"
#include "server/core/rooms/tenants.h"
#include "server/core/state/core_context.h"
#include "server/executors/crash_breaker.h"
#include "server/executors/executor_spawner.h"

namespace hpvm::server {

class Executors : private CoreRoom {
 public:
  using Waiter = Preparation::Waiter;
  Executors(CoreContext& context, Quotas& quotas, Devices& devices, Arbiter& arbiter, Tenants& tenants)
      : CoreRoom(context), quotas_(quotas), devices_(devices), arbiter_(arbiter), tenants_(tenants) {}

  // --- For other rooms; the caller holds the mutex ---
  size_t live() const { return live_ports_.load(); }
  // Kills all executors and refuses the callers that wait for one.
  void KillAll(CoreScope& scope);
  // Blocks until no executor is left. The mutex must not be held.
  void AwaitEnd();
  void WithExecutor(CoreScope& scope, const TenantRef& tenant, Waiter then);
  // Returns how long no executor of the slot may start, because too many crashed; 0: one may.
  Duration CrashPause(ExecutorSlot& slot);
  // Returns OK, or why the graph may not run now: one of its modules has crashed executors.
  Outcome WhyNoModule(Tenant& tenant, const Preparation& preparation);
  void RefuseWaiting(CoreScope& scope, Tenant& tenant);
  bool ReplaceDeadSpare(CoreScope& scope, Tenant& tenant, uint64_t epoch);
  void DestroyEnded();
  void KillExecutor(CoreScope& scope, Tenant& tenant, std::string why);
  void ForgetFreed(Tenant& tenant, supervisor::ExecutorProcess& port);
  // Starts executors that wait for devices, if no device is suspect any more.
  void SpawnAwaiting(CoreScope& scope);
  uint64_t Ask(CoreScope& scope, const Tenant& but, const std::string& device, uint64_t bytes,
               const std::function<void()>& answered);

 private:
  struct Claim;  // executor_memory.cc
  CrashBreaker::Limits BreakerLimits() const;
  CrashBreaker::Limits BreakerLimitsOfAll() const;
  void CountCrash(Tenant& tenant);
  // Returns OK, or why no executor of the tenant is started now.
  Outcome WhyNoExecutor(Tenant& tenant);
  // Returns the devices for the tenant's next executor.
  std::vector<std::string> ProfileOf(const Tenant& tenant) const;
  // Sets the devices for the tenant's next executor, and what is known of them.
  void SetProfile(Tenant& tenant);
  bool LacksDevices(const Tenant& tenant) const;
  bool IsExecutorBusy(const Tenant& tenant) const;
  void PostSpawn(const TenantRef& tenant, uint64_t epoch);
  void Spawn(const TenantRef& tenant, uint64_t epoch);
  void OnReady(const TenantRef& tenant, uint64_t epoch, const supervisor::ExecutorReady& ready);
  std::shared_ptr<supervisor::ExecutorProcess> Adopt(std::unique_ptr<supervisor::ExecutorProcess> port);
  void OnExecutorEnd(const TenantRef& tenant, uint64_t epoch, const Status& why);
  void RetireExecutor(CoreScope& scope, Tenant& tenant);
  void ScheduleIdleCheck(CoreScope& scope, const TenantRef& tenant);
  std::vector<Claim> ClaimsOn(const Tenant& but, const std::string& device);
  void OnUsage(const TenantRef& tenant, uint64_t epoch, const internal::Usage& usage);

  Quotas& quotas_;
  Devices& devices_;
  Arbiter& arbiter_;
  Tenants& tenants_;
  std::atomic<size_t> live_ports_{0};
  std::mutex ended_mutex_;  // Acquired last; guards the next two members.
  // Ended processes, which OnTime's thread destroys.
  std::vector<std::unique_ptr<supervisor::ExecutorProcess>> ended_executors_;
  std::condition_variable ended_changed_;
  std::vector<std::pair<TenantRef, uint64_t>> awaiting_devices_;  // Executors to be spawned: tenant and epoch.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_EXECUTORS_H_
