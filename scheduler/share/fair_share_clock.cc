// SPDX-License-Identifier: Apache-2.0
// Virtual time: accounts, clocks, and the lines ordered by them.
// Method: an account advances by use over weight. Ordered sets hold the tenants by (clock, turn served, key):
// active_, ready_ and each device's line; a tenant is taken out and put back when its position changes.
// Invariants: V follows the smallest clock of the active tenants upwards and never falls. No charge puts an account
// beyond V + debt_max, and an account that is charged is first raised to V - window. A clock is the largest of its
// tenant's accounts. A stored position is the key under which the tenant is in the set, so it can always be erased.
// A change costs a logarithm of the tenants for each line that the tenant is in.
#include <algorithm>
#include <utility>

#include "scheduler/share/fair_share.h"

namespace hpvm::scheduler {
namespace {

constexpr Duration kRecent = std::chrono::seconds(10);

// Returns the remainder of recent usage after some time.
double Faded(double recent_ns, Duration passed) {
  const double part = static_cast<double>(passed.count()) / static_cast<double>(kRecent.count());
  return passed >= kRecent ? 0 : recent_ns * (1 - part);
}

}  // namespace

// Returns the current system time V; it never decreases.
int64_t FairShare::SystemTime() {
  if (!active_.empty()) {
    system_ = std::max(system_, active_.begin()->time);
  }
  return system_;
}

void FairShare::Advance(Tenant& tenant, int64_t& account, int64_t ns) {
  const int64_t system = SystemTime(), most = system + limits_.debt_max.count();
  account = std::max(account, system - limits_.window.count());
  account = std::max(account, std::min(account + ns * kShareWeightDefault / tenant.weight, most));
  tenant.clock = std::max(tenant.clock, account);
}

// Charges holders for the time since the last Tick, during which nothing changed.
void FairShare::Accrue() {
  const auto accrue = [&](Holder& holder, DeviceIndex device) {
    Use& use = tenants_.at(holder.tenant).on[device];
    const Duration time = now_ - std::exchange(holder.accrued, now_);
    if (use.wants > 0 && time > Duration{0}) {
      Spend(holder.tenant, device, time);
    }
  };
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    DeviceState& device = devices_[i];
    if (device.holder) {
      accrue(*device.holder, i);
    }
    for (Holder& holder : device.beside) {
      accrue(holder, i);
    }
    for (Holder& holder : device.overdue) {
      accrue(holder, i);
    }
  }
}

// Memory is charged while the tenant has something to do; idle tenants are asked to give it back instead. Called only
// when something happens to the tenant, so a clock in a line may lag by the time that the tenant waited there.
void FairShare::AccrueBytes(Tenant& tenant) {
  const Duration time = now_ - std::exchange(tenant.bytes_since, now_);
  if (!tenant.has_bytes || !tenant.is_active || time <= Duration{0}) {
    return;
  }
  for (size_t i = 0; i < devices_.size(); ++i) {
    const uint64_t all = devices_[i].share.memory_bytes;
    if (tenant.on[i].bytes > 0 && all > 0) {
      const double part = std::min(1.0, static_cast<double>(tenant.on[i].bytes) / static_cast<double>(all));
      Advance(tenant, tenant.on[i].bytes_time, static_cast<int64_t>(static_cast<double>(time.count()) * part));
    }
  }
}

void FairShare::Spend(TenantKey key, DeviceIndex device, Duration time) {
  Tenant& tenant = tenants_.at(key);
  Use& use = tenant.on[device];
  use.used += time;
  use.recent_ns = Faded(use.recent_ns, now_ - std::exchange(use.recent_at, now_)) + static_cast<double>(time.count());
  tenant.since_end += time;
  AccrueBytes(tenant);
  Advance(tenant, use.time, time.count());
  Rank(key, tenant);
}

// The tenant was idle and has work now: its accounts are raised to V, less two quanta after a short gap.
void FairShare::CatchUp(Tenant& tenant) {
  const bool is_gap = now_ - tenant.idle_since < limits_.quantum;
  const int64_t least = SystemTime() - (is_gap ? 2 * limits_.quantum.count() : 0);
  for (Use& use : tenant.on) {
    use.time = std::max(use.time, least);
    use.bytes_time = std::max(use.bytes_time, least);
  }
  tenant.start_time = std::max(tenant.start_time, least);
  tenant.clock = std::max(tenant.clock, least);
  tenant.bytes_since = now_;
}

bool FairShare::MayStart(const Tenant& tenant) const {
  const uint32_t own = tenant.running_max == 0 ? limits_.running_per_tenant_max : tenant.running_max;
  return tenant.queued > 0 && tenant.running < std::min(own, limits_.running_per_tenant_max);
}

// Updates the tenant's positions after any change of what it wants, runs or has used.
void FairShare::Rank(TenantKey key, Tenant& tenant) {
  const bool active = tenant.wanted != 0 || MayStart(tenant);
  if (active && !tenant.is_active) {
    CatchUp(tenant);
  }
  const QueuePosition place{tenant.clock, tenant.turn, key};
  if (tenant.is_active != active || (active && tenant.active_place != place)) {
    if (tenant.is_active) {
      active_.erase(tenant.active_place);
    }
    if (active) {
      active_.insert(place);
    } else {
      tenant.idle_since = now_;
      system_ = active_.empty() ? std::max(system_, tenant.clock) : SystemTime();
    }
    tenant.is_active = active;
    tenant.active_place = place;
  }
  if (tenant.waits != 0 && tenant.waiting_place != place) {
    for (DeviceIndex i = 0; i < devices_.size(); ++i) {
      if ((tenant.waits >> i & 1) != 0) {
        devices_[i].waiting.erase(tenant.waiting_place);
        devices_[i].waiting.insert(place);
      }
    }
    tenant.waiting_place = place;
  }
  RankReady(key, tenant);
}

// For starts, running jobs count as if they had already used their share.
void FairShare::RankReady(TenantKey key, Tenant& tenant) {
  const int line = !MayStart(tenant) ? -1 : tenant.running == 0 ? 0 : 1;
  const int64_t runs = tenant.running * tenant.job_cost.count() * kShareWeightDefault / tenant.weight;
  const QueuePosition place{tenant.clock + runs, tenant.turn, key};
  if (line == tenant.ready && (line < 0 || place == tenant.ready_place)) {
    return;
  }
  if (tenant.ready >= 0) {
    ready_[static_cast<size_t>(tenant.ready)].erase(tenant.ready_place);
  }
  if (line >= 0) {
    ready_[static_cast<size_t>(line)].insert(place);
  }
  tenant.ready = line;
  tenant.ready_place = place;
}

Duration FairShare::held(TenantKey key, DeviceIndex device, Time now) const {
  const auto it = tenants_.find(key);
  if (it == tenants_.end() || device >= devices_.size()) {
    return Duration{0};
  }
  Duration sum = it->second.on[device].held;
  const auto add = [&](const Holder& holder) { sum += holder.tenant == key ? now - holder.since : Duration{0}; };
  if (devices_[device].holder) {
    add(*devices_[device].holder);
  }
  std::for_each(devices_[device].beside.begin(), devices_[device].beside.end(), add);
  return sum;
}

Duration FairShare::used(TenantKey key, DeviceIndex device, Time now) const {
  const auto it = tenants_.find(key);
  if (it == tenants_.end() || device >= devices_.size()) {
    return Duration{0};
  }
  const Use& use = it->second.on[device];
  Duration sum = use.used;
  const auto add = [&](const Holder& holder) {
    sum += holder.tenant == key && use.wants > 0 ? now - holder.accrued : Duration{0};
  };
  if (devices_[device].holder) {
    add(*devices_[device].holder);
  }
  std::for_each(devices_[device].beside.begin(), devices_[device].beside.end(), add);
  std::for_each(devices_[device].overdue.begin(), devices_[device].overdue.end(), add);
  return sum;
}

FairShare::Turns FairShare::TurnsOf(DeviceIndex device) const {
  Turns turns;
  if (device < devices_.size()) {
    const DeviceState& state = devices_[device];
    if (state.holder) {
      turns.holders.push_back(state.holder->tenant);
    }
    for (const std::vector<Holder>* more : {&state.beside, &state.overdue}) {
      std::transform(more->begin(), more->end(), std::back_inserter(turns.holders),
                     [](const Holder& h) { return h.tenant; });
    }
    turns.waiting = state.waiting.size();
  }
  return turns;
}

Duration FairShare::used(TenantKey key, Time now) const {
  Duration sum{0};
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    sum += used(key, i, now);
  }
  return sum;
}

double FairShare::DominantShare(TenantKey key, Time now) const {
  const auto it = tenants_.find(key);
  double most = 0;
  for (DeviceIndex i = 0; it != tenants_.end() && i < devices_.size(); ++i) {
    const Use& use = it->second.on[i];
    const auto unpaid = static_cast<double>((used(key, i, now) - use.used).count());
    // Continuous usage adds up to kRecent, as each part of it decays.
    const double recent = Faded(use.recent_ns, now - use.recent_at) + unpaid;
    most = std::max(most, recent / static_cast<double>(kRecent.count()));
    if (const uint64_t all = devices_[i].share.memory_bytes; all > 0) {
      most = std::max(most, static_cast<double>(use.bytes) / static_cast<double>(all));
    }
  }
  return std::min(most, 1.0);
}

Duration FairShare::clock(TenantKey key) const {
  const auto it = tenants_.find(key);
  return Duration(it == tenants_.end() ? 0 : it->second.clock);
}

Duration FairShare::system() const {
  return Duration(active_.empty() ? system_ : std::max(system_, active_.begin()->time));
}

}  // namespace hpvm::scheduler
