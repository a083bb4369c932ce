// SPDX-License-Identifier: Apache-2.0
// FairShare decides which tenant may start a job, and which tenant may use a device: the daemon's side of scheduling as
// pure logic.
//
// The caller feeds it events and carries out its decisions:
//   FairShare share({.running_max = 4}, {.devices = 1});
//   for (const Decision& d : share.Tick(now, events)) { ... }
//   sleep until share.NextTick() or the next event.
//
// Virtual time. Each tenant has a clock that advances by its usage divided by its weight: the time that it holds a
// device while its jobs want it, the time that it fills a device's memory (scaled by the fraction that it fills), and a
// small amount for each start. Each of these is an account; the clock shows the largest, so the dominant resource
// counts. Resources go to the tenant whose clock is behind. The system's time V follows the smallest clock of any
// tenant with something to do, and never falls. A tenant that was idle resumes at V: it gets no credit for the past,
// except up to two quanta after a gap shorter than a quantum, since a client that sends its next request after each
// answer is not idle. No clock is more than `debt_max` ahead of V, so usage that hindered no other tenant is held
// against a tenant for a bounded time only; and no account that grows is more than `window` behind V, so that dominance
// of one resource does not make another one free.
//
// Jobs. Each tenant has a bounded queue. Whenever a running slot is free, the tenant whose clock is behind goes next,
// counting the probable usage of its running jobs; the last `running_spare` slots are reserved for tenants without
// running jobs. Within a tenant the job with the highest priority starts first; one level of priority is worth
// `priority_step` of waiting, so a low-priority job is overtaken for a bounded time only. When the queues together are
// full, a job of a tenant that has fewer jobs than others for its weight displaces the last job of the tenant with the
// most.
//
// Grants. A tenant wants each device that one of its running jobs names. A device has one holder at a time, whose turn
// it is. A lone tenant keeps its grant; when others wait, the holder is marked contended, and after each quantum the
// device goes to the tenant with the smallest clock, which may be the holder again. A revoked holder should answer
// GrantReturned; if it does not within `revoke_grace`, it is overdue, and the next tenant is granted the device beside
// it (the overdue one pays for its usage until it answers). Tenants whose recent work was short, and that are not ahead
// of their share, need not wait for a turn: up to `DeviceShare::beside` of them, and more while their jobs are so short
// that together they take `beside_max` on that many processors, hold the device beside the holder, for at most
// `beside_max`, and pay like all others.
//
// Bound on waiting. Let q be the quantum, g the grace, n the other tenants and w their weights in units of the default.
// A tenant that begins to wait is at most debt_max ahead of V; another tenant's account for the device is, from its
// first use on, at most `window` behind V. The other tenant is granted the device before it only while its clock is
// behind, and 1 ns of use advances the account, and with it the clock once it is the largest, by 1/w ns: so it uses at
// most (debt_max + window)·w, and the turn that crosses that limit lasts at most q + g. The total is at most
//   sum over the n others of ((debt_max + window)·w + q + g),
// and sum of (window·w + q + g) for a tenant that was idle, since it begins at V, and V stays there while it waits.
// (This does not hold for an overdue tenant, which pays while it waits.) Ties of clocks go to the tenant served longest
// ago, so clocks at V + debt_max starve no tenant. For starts the same holds with `start_cost` in place of q + g and
// slots in place of time: between a tenant's request to start and its start, while slots become free, another tenant
// starts at most (debt_max + window)·w / start_cost + 1 jobs.
//
// No threads, no clock, no allocation beyond its tables. The same events at the same times give the same decisions. A
// start, a grant and an end cost a logarithm of the number of tenants; a Tick also examines each device. A grant beside
// the holder may look at every tenant that waits for the device.
#ifndef HPVMD_SCHEDULER_SHARE_FAIR_SHARE_H_
#define HPVMD_SCHEDULER_SHARE_FAIR_SHARE_H_

#include <array>
#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/clock.h"

namespace hpvm::scheduler {

// Chosen by the caller; never reused while the tenant or job lives.
using TenantKey = uint64_t;
using JobKey = uint64_t;
using DeviceIndex = uint32_t;

inline constexpr uint32_t kShareWeightDefault = 100, kShareWeightMax = 10'000;
inline constexpr uint32_t kShareDevicesMax = 64;  // Jobs name devices by bit.

struct FairShareLimits {
  uint32_t tenants_max = 1'000;
  uint32_t queued_per_tenant_max = 1'000;
  uint32_t queued_max = 10'000;
  uint32_t running_per_tenant_max = 4;
  uint32_t running_max = 16;
  uint32_t running_spare = 0;  // The part of running_max reserved for tenants without running jobs.
  Duration quantum = std::chrono::milliseconds(5);
  Duration revoke_grace = std::chrono::milliseconds(10);
  Duration beside_max = std::chrono::milliseconds(1);
  Duration priority_step = std::chrono::seconds(1);
  // Virtual time, measured as time of a tenant with the default weight.
  Duration debt_max = std::chrono::seconds(1);
  Duration window = std::chrono::milliseconds(250);
  Duration start_cost = std::chrono::microseconds(10);
};

struct FairShareDevices {
  uint32_t devices = 1;  // At most kShareDevicesMax.
};
struct DeviceShare {
  uint32_t beside = 0;        // Number of tenants with short work that may hold the device beside its holder.
  uint64_t memory_bytes = 0;  // 0: its memory does not count towards shares.
};

// Events. Events about unknown tenants or jobs are ignored, because the caller may just have dropped them.
struct TenantArrives {
  TenantKey tenant = 0;
  uint32_t weight = kShareWeightDefault;  // Clamped to 1 to kShareWeightMax.
};
// Applies from now on; running jobs beyond a smaller maximum continue.
struct TenantSettings {
  TenantKey tenant = 0;
  uint32_t weight = kShareWeightDefault;
  uint32_t running_max = 0;  // 0: running_per_tenant_max, which is also the upper limit.
};
// Its queued jobs are dropped without a decision; its running jobs count as ended, its grants as returned.
struct TenantLeaves {
  TenantKey tenant = 0;
};
struct JobQueued {
  TenantKey tenant = 0;
  JobKey job = 0;
  int32_t priority = 0;  // Higher starts sooner; clamped to ±1,000.
  uint64_t devices = 1;  // Bit i: the job may use device i while it runs.
  // The caller has its own limit: the job is not refused for a full queue, and does not count towards it.
  bool admitted = false;
};
// The job uses these devices from now on, because they became known only now, or it no longer needs some.
struct JobDevices {
  TenantKey tenant = 0;
  JobKey job = 0;
  uint64_t devices = 0;
};
// The job ended, failed or was cancelled; queued jobs leave the queue.
struct JobEnded {
  TenantKey tenant = 0;
  JobKey job = 0;
};
// The tenant's executor acknowledged a revocation, returned the device by itself, or is gone.
struct GrantReturned {
  TenantKey tenant = 0;
  DeviceIndex device = 0;
  // As in Grant; an answer to an earlier grant only ends the charges of an overdue one.
  uint64_t grant = 0;
};
// Usage of a device that no grant covers.
struct Charge {
  TenantKey tenant = 0;
  DeviceIndex device = 0;
  Duration time{0};
};
// Bytes of the device's memory that the tenant holds from now on.
struct HoldsBytes {
  TenantKey tenant = 0;
  DeviceIndex device = 0;
  uint64_t bytes = 0;
};
using Event = std::variant<TenantArrives, TenantSettings, TenantLeaves, JobQueued, JobDevices, JobEnded, GrantReturned,
                           Charge, HoldsBytes>;

// Decisions.
struct StartJob {
  TenantKey tenant = 0;
  JobKey job = 0;
  friend bool operator==(const StartJob&, const StartJob&) = default;
};
// The job is not queued (kShed: no longer queued); `limit` names the limit that it met.
struct RefuseJob {
  TenantKey tenant = 0;
  JobKey job = 0;
  enum class Limit : uint8_t { kUnknownTenant, kTenantQueue, kQueue, kDuplicate, kShed } limit = Limit::kUnknownTenant;
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
  uint64_t grant = 0;      // Unique; the grant page's epoch follows it.
  bool contended = false;  // Another tenant waits already, or also holds the device.
  friend bool operator==(const Grant&, const Grant&) = default;
};
// Take the device away. `grant` is that of the Grant. Answered by GrantReturned, unless the tenant runs nothing there,
// in which case no answer is awaited.
struct Revoke {
  TenantKey tenant = 0;
  DeviceIndex device = 0;
  uint64_t grant = 0;
  friend bool operator==(const Revoke&, const Revoke&) = default;
};
// A holder's answer to Revoke is overdue: demote it (CPU) or let the hardware time-slice (GPU). The device is granted
// to the next tenant.
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
  // Applies to later jobs; jobs that are queued or run beyond a smaller limit stay.
  void SetLimits(const FairShareLimits& limits);
  // Sets the properties of a device; an index beyond those known so far, below kShareDevicesMax, adds all devices up to
  // it.
  void SetDevice(DeviceIndex index, const DeviceShare& share);
  uint32_t devices() const { return static_cast<uint32_t>(devices_.size()); }

  // `now` never decreases. Events are processed in order; decisions are to be carried out in order.
  std::vector<Decision> Tick(Time now, std::span<const Event> events);
  // Returns when Tick must be called again even without events; kNever when only events matter.
  Time NextTick() const { return next_tick_; }

  // Returns true when an answer to the revocation of that grant would change anything.
  bool IsAwaited(DeviceIndex device, uint64_t grant) const;

  uint32_t queued() const { return queued_; }
  uint32_t running() const { return running_; }
  uint32_t queued(TenantKey tenant) const;
  uint32_t running(TenantKey tenant) const;
  // Time for which a tenant has held a device, and the part of it during which its jobs wanted the device plus its
  // usage while it was overdue. Accounts end with the tenant.
  Duration held(TenantKey tenant, DeviceIndex device, Time now) const;
  Duration used(TenantKey tenant, DeviceIndex device, Time now) const;
  // Sum over all devices.
  Duration used(TenantKey tenant, Time now) const;
  // The holders of the device, the one whose turn it is first, and the number of tenants that wait for it.
  struct Turns {
    std::vector<TenantKey> holders;
    size_t waiting = 0;
  };
  Turns TurnsOf(DeviceIndex device) const;
  // Returns the larger of the tenant's recent share (over about ten seconds) of the device that it uses most, and the
  // fraction of a device's memory that it holds: 0 to 1.
  double DominantShare(TenantKey tenant, Time now) const;
  // Virtual times as of the last Tick: the tenant's clock, and V.
  Duration clock(TenantKey tenant) const;
  Duration system() const;

 private:
  // Position in a line; lower goes first.
  struct QueuePosition {
    int64_t time = 0;
    uint64_t turn = 0;
    TenantKey tenant = 0;
    friend auto operator<=>(const QueuePosition&, const QueuePosition&) = default;
  };
  using Line = std::set<QueuePosition>;
  struct QueuedJob {
    int64_t rank_ns = 0;  // Time of arrival minus the value of its priority: lower starts first.
    uint64_t sequence = 0;
    JobKey job = 0;
    friend auto operator<=>(const QueuedJob&, const QueuedJob&) = default;
  };
  struct Job {
    QueuedJob place;
    uint64_t devices = 0;
    bool admitted = false, running = false;
  };
  // State of a tenant on a device.
  struct Use {
    uint32_t wants = 0;     // Number of running jobs that name it.
    bool was_short = true;  // Its last work was done within beside_max.
    Time busy_since{0};
    Duration held{0}, used{0};  // Time of finished grants, and time up to the last accrual.
    uint64_t bytes = 0;
    // Recent usage, which decays linearly over kRecent, as of recent_at.
    double recent_ns = 0;
    Time recent_at{0};
    int64_t time = 0, bytes_time = 0;  // Accounts of virtual time.
  };
  struct Tenant {
    uint32_t weight = kShareWeightDefault;
    uint32_t running_max = 0;
    uint32_t queued = 0, running = 0;
    std::array<std::set<QueuedJob>, 2> queues;  // Jobs that count towards limits, and admitted jobs.
    std::unordered_map<JobKey, Job> jobs;       // Never iterated.
    std::vector<Use> on;                        // Indexed by device.
    uint64_t wanted = 0;                        // Bits of devices that running jobs name.
    uint64_t waits = 0;                         // Bits of devices that it waits for.
    bool has_bytes = false;
    Time bytes_since{0};
    int64_t start_time = 0;  // Account of starts.
    int64_t clock = 0;       // The largest account.
    uint64_t turn = 0;       // When it was last served; tenants with equal clocks take turns.
    Time idle_since{0};
    // Smoothed usage of one of its jobs, and its usage since a job ended.
    Duration job_cost{0}, since_end{0};
    // Its positions in active_, ready_ and the devices' lines.
    bool is_active = false;
    int ready = -1;  // Index in ready_; -1 when in neither.
    QueuePosition active_place, ready_place, waiting_place;
  };
  struct Holder {
    TenantKey tenant = 0;
    uint64_t grant = 0;
    Time since{0};    // When it was granted.
    Time slice{0};    // When its quantum began.
    Time accrued{0};  // Its tenant has paid up to then.
    bool contended = false;
    std::optional<Time> revoked;
  };
  struct DeviceState {
    DeviceShare share;
    std::optional<Holder> holder;
    std::vector<Holder> beside;
    std::vector<Holder> overdue;
    Line waiting;
  };

  // fair_share.cc: events and jobs.
  void Apply(const Event& event, std::vector<Decision>& out);
  void Arrive(const TenantArrives& event, std::vector<Decision>& out);
  void Leave(TenantKey key);
  void Queue(const JobQueued& event, std::vector<Decision>& out);
  bool MakeRoom(const Tenant& tenant, TenantKey key, std::vector<Decision>& out);
  void Unqueue(Tenant& tenant, const Job& job);
  void End(Tenant& tenant, TenantKey key, JobKey job);
  void SetDevices(Tenant& tenant, TenantKey key, const JobDevices& event);
  void StartJobs(std::vector<Decision>& out);
  Tenant* Find(TenantKey key);

  // fair_share_clock.cc: virtual time and positions in lines.
  void Accrue();
  void AccrueBytes(Tenant& tenant);
  void Spend(TenantKey key, DeviceIndex device, Duration time);
  void Advance(Tenant& tenant, int64_t& account, int64_t ns);
  void CatchUp(Tenant& tenant);
  void Rank(TenantKey key, Tenant& tenant);
  void RankReady(TenantKey key, Tenant& tenant);
  int64_t SystemTime();
  bool MayStart(const Tenant& tenant) const;

  // fair_share_devices.cc: grants.
  void Want(Tenant& tenant, TenantKey key, uint64_t devices);
  void Unwant(Tenant& tenant, TenantKey key, uint64_t devices);
  void Wait(TenantKey key, DeviceIndex index);
  void StopWaiting(Tenant& tenant, DeviceIndex index);
  void Return(const GrantReturned& event);
  void EndGrant(const Holder& holder, DeviceIndex index);
  void TurnDevice(DeviceIndex index, std::vector<Decision>& out);
  void TurnHolder(DeviceIndex index, std::vector<Decision>& out);
  void TurnBeside(DeviceIndex index, std::vector<Decision>& out);
  bool TurnRevoked(const Holder& holder, DeviceIndex index, std::vector<Decision>& out);
  void GrantNext(DeviceIndex index, std::vector<Decision>& out);
  void GrantBeside(DeviceIndex index, std::vector<Decision>& out);
  Holder MakeHolder(TenantKey key, DeviceIndex index, std::vector<Decision>& out, bool contended);
  void TellContended(DeviceState& device, DeviceIndex index, std::vector<Decision>& out);
  void PlanNext(const DeviceState& device);

  FairShareLimits limits_;
  std::map<TenantKey, Tenant> tenants_;
  std::vector<DeviceState> devices_;
  Line active_;                // Tenants that want a device or may start a job.
  std::array<Line, 2> ready_;  // Tenants that may start a job: those without running jobs, and the others.
  Time now_{0};
  int64_t system_ = 0;
  uint64_t sequence_ = 0, turn_ = 0, next_grant_ = 1;
  uint32_t queued_ = 0, running_ = 0;
  uint32_t refusable_ = 0;  // Number of queued jobs that count towards the limits.
  Time next_tick_ = kNever;
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_SHARE_FAIR_SHARE_H_
