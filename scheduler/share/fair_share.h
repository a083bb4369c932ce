// SPDX-License-Identifier: Apache-2.0
// Which tenant may start a job, and which tenant may use a device, now: the daemon's side of scheduling as pure logic.
//
// The caller feeds what happened and carries out what is decided:
//   FairShare share({.running_max = 4}, {.devices = 1});
//   for (const Decision& d : share.Tick(now, events)) { ... }
//   sleep until share.NextTick() or the next event.
//
// Virtual time. Each tenant has a clock that advances by what it uses, divided by its weight: the time that it holds a
// device while its jobs want it, the time that it fills a device's memory (by the part that it fills), and a little for
// each start. Each of these is an account; the clock shows the largest, so the dominant resource counts. Whatever is to
// be given goes to the tenant whose clock is behind. The system's time V is that of the hindmost tenant with something
// to do. Who comes back from having nothing to do begins at V: it gets nothing for the past, but for up to two quanta
// after a gap shorter than a quantum, since a client that asks again after each answer is not idle. No clock is more
// than `debt_max` before V, so what a tenant took while nobody was hindered is held against it for a bounded time; and
// no account that grows is more than `window` behind V, so what one resource dominates does not make another one free.
//
// Jobs. Each tenant has a bounded queue. Whenever a running slot is free, the tenant goes next whose clock is behind,
// counting what its running jobs will probably use; the last `running_spare` slots are for tenants that run nothing.
// Within a tenant the job with the highest priority starts first; one level of priority is worth `priority_step` of
// waiting, so a low one is overtaken for a bounded time only. When the queues together are full, a job of a tenant that
// has fewer than the others for its weight takes the place of the last one of the tenant with most.
//
// Grants. A tenant wants each device that one of its running jobs names. A device has one holder at a time, whose turn
// it is. A lone tenant keeps its grant; when others wait, the holder is marked contended, and after each quantum the
// device goes to the one whose clock is hindmost, which may be the holder again. A revoked holder should answer
// GrantReturned; one that has not within `revoke_grace` is overdue, and the next tenant is granted beside it (it pays
// for what it goes on to use until it answers). Tenants whose work was short lately, and that are not ahead of their
// share, need not wait for a turn: up to `DeviceShare::beside` of them, and more while their jobs are so short that all
// together take `beside_max` on so many processors, hold the device beside the holder, for `beside_max` at most, and
// pay as everybody does.
//
// How long one waits. Let q be the quantum, g the grace, n the other tenants and w their weights in units of the
// default. A tenant that begins to wait is at most debt_max ahead of V; the account of another one for the device, from
// the first use on, at most `window` behind V. That one is granted the device before it only while its clock is behind,
// and 1 ns of use advances the account, and with it the clock once it is the largest, by 1/w ns: so it uses at most
// (debt_max + window)·w, and the turn that carries it over lasts at most q + g. Together at most
//   sum over the n others of ((debt_max + window)·w + q + g),
// and sum of (window·w + q + g) for one that comes from having had nothing to do, since it begins at V, and V stays
// there while it waits. (Not for one that is overdue: it pays while it waits.) Equal clocks go by who was served
// longest ago, so clocks at V + debt_max starve nobody. For starts the same holds with `start_cost` in the place of
// q + g and slots in the place of time: between a tenant's wish to start and its start, while slots come free, another
// one starts at most (debt_max + window)·w / start_cost + 1 jobs.
//
// No threads, no clock, no allocation beyond its tables. The same events at the same times give the same decisions. A
// start, a grant and an end cost a logarithm of the number of tenants; a Tick also looks at each device.
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
inline constexpr uint32_t kShareDevicesMax = 64;  // Jobs name them by bit.

struct FairShareLimits {
  uint32_t tenants_max = 1'000;
  uint32_t queued_per_tenant_max = 1'000;
  uint32_t queued_max = 10'000;
  uint32_t running_per_tenant_max = 4;
  uint32_t running_max = 16;
  uint32_t running_spare = 0;  // Of running_max.
  Duration quantum = std::chrono::milliseconds(5);
  Duration revoke_grace = std::chrono::milliseconds(10);
  Duration beside_max = std::chrono::milliseconds(1);
  Duration priority_step = std::chrono::seconds(1);
  // Virtual time, which is time of a tenant with the default weight.
  Duration debt_max = std::chrono::seconds(1);
  Duration window = std::chrono::milliseconds(250);
  Duration start_cost = std::chrono::microseconds(10);
};

struct FairShareDevices {
  uint32_t devices = 1;  // At most kShareDevicesMax.
};
struct DeviceShare {
  uint32_t beside = 0;        // Tenants with short work that may hold the device beside its holder.
  uint64_t memory_bytes = 0;  // 0: its memory is no part of anybody's share.
};

// What happened. Events about unknown tenants or jobs are ignored: the caller may have dropped them a moment ago.
struct TenantArrives {
  TenantKey tenant = 0;
  uint32_t weight = kShareWeightDefault;  // Clamped to 1 to kShareWeightMax.
};
// From now on; what runs beyond a smaller maximum stays.
struct TenantSettings {
  TenantKey tenant = 0;
  uint32_t weight = kShareWeightDefault;
  uint32_t running_max = 0;  // 0: running_per_tenant_max, which is never passed.
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
// The job uses these devices from now on: known only now, or it is done with some.
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
// The tenant's executor acknowledged a revocation, or gave the device back by itself, or is gone.
struct GrantReturned {
  TenantKey tenant = 0;
  DeviceIndex device = 0;
  uint64_t grant = 0;  // As in Grant; an answer to an earlier grant changes nothing but what an overdue one pays.
};
// Use of a device that no grant shows.
struct Charge {
  TenantKey tenant = 0;
  DeviceIndex device = 0;
  Duration time{0};
};
// What the tenant holds of the device's memory from now on.
struct HoldsBytes {
  TenantKey tenant = 0;
  DeviceIndex device = 0;
  uint64_t bytes = 0;
};
using Event = std::variant<TenantArrives, TenantSettings, TenantLeaves, JobQueued, JobDevices, JobEnded, GrantReturned,
                           Charge, HoldsBytes>;

// What to do.
struct StartJob {
  TenantKey tenant = 0;
  JobKey job = 0;
  friend bool operator==(const StartJob&, const StartJob&) = default;
};
// The job is not queued (any more: kShed): `limit` names the limit it met.
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
  uint64_t grant = 0;      // Unique; the page's epoch follows it.
  bool contended = false;  // Somebody waits already, or holds the device too.
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
  void SetLimits(const FairShareLimits& limits);
  // Facts of a device; one beyond those known so far, below kShareDevicesMax, adds all up to it.
  void SetDevice(DeviceIndex index, const DeviceShare& share);
  uint32_t devices() const { return static_cast<uint32_t>(devices_.size()); }

  // `now` never goes back. Events are taken in order; decisions are to be carried out in order.
  std::vector<Decision> Tick(Time now, std::span<const Event> events);
  // When Tick must be called again though nothing happened; kNever when only events matter.
  Time NextTick() const { return next_tick_; }

  // Whether the answer to the revocation of that grant changes anything.
  bool IsAwaited(DeviceIndex device, uint64_t grant) const;

  uint32_t queued() const { return queued_; }
  uint32_t running() const { return running_; }
  uint32_t queued(TenantKey tenant) const;
  uint32_t running(TenantKey tenant) const;
  // Time a tenant has held a device, and of that the time in which its jobs wanted it, with what it used while it was
  // overdue. Accounts; they end with the tenant.
  Duration held(TenantKey tenant, DeviceIndex device, Time now) const;
  Duration used(TenantKey tenant, DeviceIndex device, Time now) const;
  // Of all devices.
  Duration used(TenantKey tenant, Time now) const;
  // Who has the device, the one whose turn it is first, and how many tenants wait for it.
  struct Turns {
    std::vector<TenantKey> holders;
    size_t waiting = 0;
  };
  Turns TurnsOf(DeviceIndex device) const;
  // The part that it lately had (over some ten seconds) of the device that it uses most, or the part of a device's
  // memory that it holds, whichever is more: 0 to 1.
  double DominantShare(TenantKey tenant, Time now) const;
  // Virtual times, as of the last Tick: the tenant's clock, and V.
  Duration clock(TenantKey tenant) const;
  Duration system() const;

 private:
  // Lower goes first.
  struct Place {
    int64_t time = 0;
    uint64_t turn = 0;
    TenantKey tenant = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  using Line = std::set<Place>;
  struct QueuedJob {
    int64_t rank_ns = 0;  // Time of arrival minus the worth of its priority: lower starts first.
    uint64_t sequence = 0;
    JobKey job = 0;
    friend auto operator<=>(const QueuedJob&, const QueuedJob&) = default;
  };
  struct Job {
    QueuedJob place;
    uint64_t devices = 0;
    bool admitted = false, running = false;
  };
  // A tenant on a device.
  struct Use {
    uint32_t wants = 0;     // Running jobs that name it.
    bool was_short = true;  // Its last work was done within beside_max.
    Time busy_since{0};
    Duration held{0}, used{0};  // Finished grants; and up to the last accrual.
    uint64_t bytes = 0;
    // What it used lately: fades evenly over kRecent, as of recent_at.
    double recent_ns = 0;
    Time recent_at{0};
    int64_t time = 0, bytes_time = 0;  // Accounts of virtual time.
  };
  struct Tenant {
    uint32_t weight = kShareWeightDefault;
    uint32_t running_max = 0;
    uint32_t queued = 0, running = 0;
    std::array<std::set<QueuedJob>, 2> queues;  // Those that the limits count; those that were admitted.
    std::unordered_map<JobKey, Job> jobs;       // Never iterated.
    std::vector<Use> on;                        // By device.
    uint64_t wanted = 0;                        // Bits of devices that running jobs name.
    uint64_t waits = 0;                         // Bits of devices that it waits for.
    bool has_bytes = false;
    Time bytes_since{0};
    int64_t start_time = 0;  // Account of starts.
    int64_t clock = 0;       // The largest account.
    uint64_t turn = 0;       // When it was last served: equal clocks take turns.
    Time idle_since{0};
    // What one of its jobs uses, smoothed; and what it used since one ended.
    Duration job_cost{0}, since_end{0};
    // Where it stands in active_, ready_ and the devices' lines.
    bool is_active = false;
    int ready = -1;  // Which line of ready_.
    Place active_place, ready_place, waiting_place;
  };
  struct Holder {
    TenantKey tenant = 0;
    uint64_t grant = 0;
    Time since{0};    // It was granted.
    Time slice{0};    // Its quantum began.
    Time accrued{0};  // Until then its tenant has paid.
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

  // fair_share_clock.cc: virtual time, and who stands where.
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
  Line active_;                // Those that want a device or may start a job.
  std::array<Line, 2> ready_;  // Those that may start a job: who runs nothing; the others.
  Time now_{0};
  int64_t system_ = 0;
  uint64_t sequence_ = 0, turn_ = 0, next_grant_ = 1;
  uint32_t queued_ = 0, running_ = 0;
  uint32_t refusable_ = 0;  // Queued jobs that the limits count.
  Time next_tick_ = kNever;
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_SHARE_FAIR_SHARE_H_
