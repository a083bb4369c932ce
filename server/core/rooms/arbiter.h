// SPDX-License-Identifier: Apache-2.0
// The fair share of devices between tenants, and the grant pages that tell executors of it.
#ifndef HPVMD_SERVER_CORE_ROOMS_ARBITER_H_
#define HPVMD_SERVER_CORE_ROOMS_ARBITER_H_

#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduler/share/fair_share.h"
#include "server/core/rooms/devices.h"
#include "server/core/rooms/quotas.h"
#include "server/core/state/core_context.h"
#include "server/core/state/execution.h"

namespace hpvm::server {

scheduler::FairShareLimits ShareLimits(const Config& config);

class Arbiter : private CoreRoom {
 public:
  // Whose turn it is. A key is one that JobQueued had.
  struct Turns {
    std::function<void(CoreScope&, scheduler::JobKey)> start;
    std::function<void(CoreScope&, scheduler::JobKey, scheduler::RefuseJob::Limit)> refuse;
  };
  Arbiter(CoreContext& context, Quotas& quotas, Devices& devices)
      : CoreRoom(context), quotas_(quotas), devices_(devices) {
    ShareDevice("cpu");  // Device 0, which every machine has.
  }

  // --- For other rooms, with the mutex ---
  // Set before anything else.
  void SetTurns(Turns turns) { turns_ = std::move(turns); }
  void AddTenant(CoreScope& scope, const TenantRef& tenant);
  // Takes the limits of the configuration, which has changed; Tick makes use of them.
  void SetLimits();
  scheduler::JobKey NextKey() { return next_key_++; }
  // The time at which Tick is due.
  Time due() const { return tick_due_; }
  const scheduler::FairShare& share() const { return share_; }
  void Tick(CoreScope& scope, std::vector<scheduler::Event> events);
  // Those that a run of the graph may use.
  uint64_t ShareDevices(const Preparation& preparation);
  void UseDevices(CoreScope& scope, const Execution& run, uint64_t devices);
  void ShareSettings(CoreScope& scope, Tenant& tenant);
  // On a device's hardware: who has it, by name, and how long all tenants' jobs have used it.
  struct DeviceTurns {
    std::vector<std::string> holders;
    size_t waiting = 0;
    Duration used{0};
  };
  DeviceTurns TurnsOf(const std::string& device_id) const;
  // Charges what the tenant's jobs have used of devices since this was last called.
  void SettleDeviceTime(Tenant& tenant);
  // All of it, for an executor that is about to start with the slot's profile.
  void WriteGrantPage(ExecutorSlot& slot);

 private:
  Tenant* TenantByKey(scheduler::TenantKey key);
  // The fair share's device that stands for the hardware of a device; the processor's is 0.
  scheduler::DeviceIndex ShareDevice(const std::string& id);
  void Apply(CoreScope& scope, const scheduler::Decision& decision);
  void WriteGrant(scheduler::TenantKey key, scheduler::DeviceIndex device, const DeviceGrant& grant);
  void AwaitReturn(CoreScope& scope, const scheduler::Revoke& revoke);
  void WriteGrantEntry(ExecutorSlot& slot, uint32_t entry);

  Quotas& quotas_;
  Devices& devices_;
  Turns turns_;
  scheduler::FairShare share_{ShareLimits(*config_), {.devices = 0}};
  std::vector<std::string> hardware_;  // By the fair share's device.
  std::unordered_map<scheduler::TenantKey, TenantRef> tenants_by_key_;
  bool is_ticking_ = false;
  std::vector<scheduler::Event> more_events_;  // Of decisions that are being carried out.
  Time tick_due_ = kNever;
  scheduler::JobKey next_key_ = 1;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_ARBITER_H_
