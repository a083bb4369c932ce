// SPDX-License-Identifier: Apache-2.0
// Arbiter shares devices fairly between tenants and maintains the grant pages, which tell executors of their shares.
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
  // Callbacks for the decisions about a job; the key is one that an event JobQueued had.
  struct Turns {
    std::function<void(CoreScope&, scheduler::JobKey)> start;
    std::function<void(CoreScope&, scheduler::JobKey, scheduler::RefuseJob::Limit)> refuse;
  };
  Arbiter(CoreContext& context, Quotas& quotas, Devices& devices)
      : CoreRoom(context), quotas_(quotas), devices_(devices) {
    ShareDevice("cpu");  // Device 0, which every machine has.
  }

  // --- For other rooms; the caller holds the mutex ---
  // Called before anything else.
  void SetTurns(Turns turns) { turns_ = std::move(turns); }
  void AddTenant(CoreScope& scope, const TenantRef& tenant);
  // Applies the limits of the changed configuration; they take effect with the next Tick.
  void SetLimits();
  scheduler::JobKey NextKey() { return next_key_++; }
  // Returns the time at which Tick is due.
  Time due() const { return tick_due_; }
  const scheduler::FairShare& share() const { return share_; }
  void Tick(CoreScope& scope, std::vector<scheduler::Event> events);
  // Returns the set of devices that a run of the graph may use.
  uint64_t ShareDevices(const Preparation& preparation);
  void UseDevices(CoreScope& scope, const Execution& run, uint64_t devices);
  void ShareSettings(CoreScope& scope, Tenant& tenant);
  // Use of a device's hardware: the tenants that hold it, by name, and the time for which all tenants' jobs have used
  // it.
  struct DeviceTurns {
    std::vector<std::string> holders;
    size_t waiting = 0;
    Duration used{0};
  };
  DeviceTurns TurnsOf(const std::string& device_id) const;
  // Charges the device time that the tenant's jobs have used since the last call.
  void SettleDeviceTime(Tenant& tenant);
  // Writes the whole grant page for an executor that is about to start with the slot's profile.
  void WriteGrantPage(ExecutorSlot& slot);
  // Tells every executor which devices are closed.
  void WriteClosed();

 private:
  Tenant* TenantByKey(scheduler::TenantKey key);
  // Returns the fair share's device for the hardware of the device `id`; the processor's is 0.
  scheduler::DeviceIndex ShareDevice(const std::string& id);
  void Apply(CoreScope& scope, const scheduler::Decision& decision);
  void WriteGrant(scheduler::TenantKey key, scheduler::DeviceIndex device, const DeviceGrant& grant);
  void AwaitReturn(CoreScope& scope, const scheduler::Revoke& revoke);
  void WriteClosed(ExecutorSlot& slot, uint32_t index);
  void WriteGrantEntry(ExecutorSlot& slot, uint32_t entry);

  Quotas& quotas_;
  Devices& devices_;
  Turns turns_;
  scheduler::FairShare share_{ShareLimits(*config_), {.devices = 0}};
  std::vector<std::string> hardware_;  // Indexed by the fair share's device.
  std::unordered_map<scheduler::TenantKey, TenantRef> tenants_by_key_;
  bool is_ticking_ = false;
  std::vector<scheduler::Event> more_events_;  // Events caused by decisions that are being carried out.
  Time tick_due_ = kNever;
  scheduler::JobKey next_key_ = 1;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_ARBITER_H_
