// SPDX-License-Identifier: Apache-2.0
// Which tenant may start a job, and which tenant may use a device, now: the daemon's side of scheduling as pure logic.
//
// The caller feeds what happened and carries out what is decided:
//   FairShare share({.running_max = 4}, {.devices = 1});
//   for (const Decision& d : share.Tick(now, events)) { ... }
//   sleep until share.NextTick() or the next event.
//
// Jobs. Each tenant has a bounded queue. Whenever a running slot is free, tenants take turns (round robin over tenants
// that have a job to start and are below their own maximum). Within a tenant the job with the highest priority starts
// first; one level of priority is worth `priority_step` of waiting, so a low one is overtaken for a bounded time only.
//
// Grants. A tenant wants each device that one of its running jobs names. A device has one holder at a time. A lone
// tenant keeps its grant; when others wait, the holder is marked contended, revoked after a quantum, and the device
// goes to the tenant that has waited longest. A revoked holder should answer GrantReturned; one that has not within
// `revoke_grace` is overdue, and the next tenant is granted beside it.
//
// No threads, no clock, no allocation beyond its tables. The same events at the same times give the same decisions.
#ifndef HPVMD_SCHEDULER_FAIR_SHARE_H_
#define HPVMD_SCHEDULER_FAIR_SHARE_H_

#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <variant>
#include <vector>

#include "base/clock.h"

namespace hpvm::scheduler {

// Chosen by the caller; never reused while the tenant or job lives.
using TenantKey = uint64_t;
using JobKey = uint64_t;
using DeviceIndex = uint32_t;

struct FairShareLimits {
  uint32_t tenants_max = 1'000;
  uint32_t queued_per_tenant_max = 1'000;
  uint32_t queued_max = 10'000;
  uint32_t running_per_tenant_max = 4;
  uint32_t running_max = 16;
  Duration quantum = std::chrono::milliseconds(5);
  Duration revoke_grace = std::chrono::milliseconds(10);
  Duration priority_step = std::chrono::seconds(1);
};

struct FairShareDevices {
  uint32_t devices = 1;  // At most 64: jobs name them by bit.
};

// What happened. Events about unknown tenants or jobs are ignored: the caller may have dropped them a moment ago.
struct TenantArrives {
  TenantKey tenant = 0;
};
// Its queued jobs are forgotten without a decision; its running ones count as ended; its grants as returned.
struct TenantLeaves {
  TenantKey tenant = 0;
};
struct JobQueued {
  TenantKey tenant = 0;
  JobKey job = 0;
  int32_t priority = 0;  // Higher starts sooner; clamped to ±1,000.
  uint64_t devices = 1;  // Bit i: device i, which the job may use while it runs.
  // The caller keeps a limit of its own: never refused for a full queue, and not counted in it.
  bool admitted = false;
};
// The job ended, failed or was cancelled; queued jobs leave the queue.
struct JobEnded {
  TenantKey tenant = 0;
  JobKey job = 0;
};
// The tenant's executor acknowledged a revocation, or gave the device back by itself.
struct GrantReturned {
  TenantKey tenant = 0;
  DeviceIndex device = 0;
  uint64_t grant = 0;  // As in Grant; an answer to an earlier grant changes nothing.
};
using Event = std::variant<TenantArrives, TenantLeaves, JobQueued, JobEnded, GrantReturned>;

// What to do.
struct StartJob {
  TenantKey tenant = 0;
  JobKey job = 0;
  friend bool operator==(const StartJob&, const StartJob&) = default;
};
// The job was not queued: `limit` names the limit it met.
struct RefuseJob {
  TenantKey tenant = 0;
  JobKey job = 0;
  enum class Limit : uint8_t { kUnknownTenant, kTenantQueue, kQueue, kDuplicate } limit = Limit::kUnknownTenant;
  friend bool operator==(const RefuseJob&, const RefuseJob&) = default;
};
// The tenant was not admitted (tenants_max).
struct RefuseTenant {
  TenantKey tenant = 0;
  friend bool operator==(const RefuseTenant&, const RefuseTenant&) = default;
};
struct Grant {
  TenantKey tenant = 0;
  DeviceIndex device = 0;
  uint64_t grant = 0;      // Unique; the page's epoch follows it.
  bool contended = false;  // Somebody waits already.
  friend bool operator==(const Grant&, const Grant&) = default;
};
// Take the device away. `grant` as it was granted. Answered by GrantReturned, unless the tenant runs nothing there:
// then none is awaited.
struct Revoke {
  TenantKey tenant = 0;
  DeviceIndex device = 0;
  uint64_t grant = 0;
  friend bool operator==(const Revoke&, const Revoke&) = default;
};
// A holder's answer to Revoke is overdue: demote it (CPU) or let the hardware time-slice (GPU). The device is granted
// on.
struct GrantOverdue {
  TenantKey tenant = 0;
  DeviceIndex device = 0;
  uint64_t grant = 0;
  friend bool operator==(const GrantOverdue&, const GrantOverdue&) = default;
};
// The contended flag of a holder's grant changed.
struct SetContended {
  TenantKey tenant = 0;
  DeviceIndex device = 0;
  bool contended = false;
  friend bool operator==(const SetContended&, const SetContended&) = default;
};
using Decision = std::variant<StartJob, RefuseJob, RefuseTenant, Grant, Revoke, GrantOverdue, SetContended>;

class FairShare {
 public:
  FairShare(const FairShareLimits& limits, const FairShareDevices& devices);
  // For what comes from now on; what is queued or runs beyond a smaller limit stays.
  void SetLimits(const FairShareLimits& limits) { limits_ = limits; }

  // `now` never goes back. Events are taken in order; decisions are to be carried out in order.
  std::vector<Decision> Tick(Time now, std::span<const Event> events);
  // When Tick must be called again though nothing happened; kNever when only events matter.
  Time NextTick() const;

  uint32_t queued() const { return queued_; }
  uint32_t running() const { return running_; }
  uint32_t queued(TenantKey tenant) const;
  uint32_t running(TenantKey tenant) const;
  // Time a tenant has held a device, for accounts. Ends with the tenant.
  Duration held(TenantKey tenant, DeviceIndex device, Time now) const;

 private:
  struct QueuedJob {
    int64_t rank_ns = 0;  // Time of arrival minus the worth of its priority: lower starts first.
    uint64_t sequence = 0;
    JobKey job = 0;
    uint64_t devices = 0;
    bool admitted = false;
    friend auto operator<=>(const QueuedJob&, const QueuedJob&) = default;
  };
  struct Tenant {
    std::set<QueuedJob> queue;
    std::map<JobKey, QueuedJob> queued_by_key;
    std::map<JobKey, uint64_t> running;  // Devices by job.
    uint32_t refusable = 0;              // Queued jobs that the limits count.
    uint64_t last_start = 0;             // Turn in which it last started a job: the lowest goes next.
    std::vector<uint32_t> wants;         // Running jobs that name the device, by device.
    std::vector<Duration> held;          // By device, finished grants only.
  };
  struct Holder {
    TenantKey tenant = 0;
    uint64_t grant = 0;
    Time since{0};
    bool contended = false;
    std::optional<Time> revoked;
  };
  struct DeviceState {
    std::optional<Holder> holder;
    std::vector<TenantKey> waiting;  // In order of arrival.
  };

  void Apply(Time now, const Event& event, std::vector<Decision>& out);
  void Queue(Time now, const JobQueued& event, std::vector<Decision>& out);
  void Unqueue(Tenant& tenant, const QueuedJob& job);
  void End(Tenant& tenant, TenantKey key, JobKey job);
  void Leave(Time now, TenantKey key);
  void StartJobs(std::vector<Decision>& out);
  void Want(Tenant& tenant, TenantKey key, uint64_t devices);
  void Unwant(Tenant& tenant, TenantKey key, uint64_t devices);
  void Release(Time now, DeviceState& device, DeviceIndex index);
  void TurnDevice(Time now, DeviceIndex index, std::vector<Decision>& out);

  FairShareLimits limits_;
  std::map<TenantKey, Tenant> tenants_;
  std::vector<DeviceState> devices_;
  uint64_t sequence_ = 0, turn_ = 0, next_grant_ = 1;
  uint32_t queued_ = 0, running_ = 0;
  uint32_t refusable_ = 0;  // Of all tenants.
  Time next_tick_ = kNever;
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_FAIR_SHARE_H_
