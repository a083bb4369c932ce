// SPDX-License-Identifier: Apache-2.0
// Executors: spawned on demand, one a tenant, replaced after their death; and who gives device memory back.
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

  // --- For other rooms, with the mutex ---
  size_t live() const { return live_ports_.load(); }
  // Kills all of them; what waits for one is refused.
  void KillAll(CoreScope& scope);
  // Until none is left. Blocks; without the mutex.
  void AwaitEnd();
  void WithExecutor(CoreScope& scope, const TenantRef& tenant, Waiter then);
  Duration CrashPause(ExecutorSlot& slot);
  // Why the graph may not run now: one of its modules has crashed executors. OK: it may.
  Outcome WhyNoModule(Tenant& tenant, const Preparation& preparation);
  void RefuseWaiting(CoreScope& scope, Tenant& tenant);
  bool ReplaceDeadSpare(CoreScope& scope, Tenant& tenant, uint64_t epoch);
  void DestroyEnded();
  void KillExecutor(CoreScope& scope, Tenant& tenant, std::string why);
  void ForgetFreed(Tenant& tenant, supervisor::ExecutorProcess& port);
  // Starts executors that wait for devices, if none is in question any more.
  void SpawnAwaiting(CoreScope& scope);
  uint64_t Ask(CoreScope& scope, const Tenant& but, const std::string& device, uint64_t bytes,
               const std::function<void()>& answered);

 private:
  struct Claim;  // executor_memory.cc
  CrashBreaker::Limits BreakerLimits() const;
  // How long no executor may start, because too many crashed; 0: one may.
  CrashBreaker::Limits BreakerLimitsOfAll() const;
  void CountCrash(Tenant& tenant);
  // Why no executor of the tenant is started now; OK: one may be.
  Outcome WhyNoExecutor(Tenant& tenant);
  // The devices that the tenant's next executor gets.
  std::vector<std::string> ProfileOf(const Tenant& tenant) const;
  // Devices for the executor that the tenant is about to get, and what is known of them.
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
  std::mutex graves_mutex_;                                           // Taken last; guards the next.
  std::vector<std::unique_ptr<supervisor::ExecutorProcess>> graves_;  // Ended; destroyed by OnTime's thread.
  std::condition_variable graves_changed_;
  std::vector<std::pair<TenantRef, uint64_t>> awaiting_devices_;  // To be spawned, with the executor's epoch.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_EXECUTORS_H_
