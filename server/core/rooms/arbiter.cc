// SPDX-License-Identifier: Apache-2.0
#include "server/core/rooms/arbiter.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <utility>

#include "base/io/futex.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

// The device to which all work on the processor is charged, whatever the id of the device that does it.
constexpr std::string_view kProcessor = "cpu";
// Number of tenants with short work that may hold a device with a driver beside its holder: the hardware slices its
// time by itself, though coarsely.
constexpr uint32_t kDriverBeside = 1;
// Number of submissions that a driver device may hold while others want it: one that runs and one that is ready.
constexpr uint32_t kContendedInFlight = 2;

}  // namespace

scheduler::FairShareLimits ShareLimits(const Config& config) {
  scheduler::FairShareLimits limits;
  limits.tenants_max = static_cast<uint32_t>(config.tenants_max);
  limits.queued_per_tenant_max = static_cast<uint32_t>(config.jobs_queued_per_tenant_max);
  limits.queued_max = static_cast<uint32_t>(config.jobs_queued_max);
  limits.running_per_tenant_max = static_cast<uint32_t>(config.jobs_running_per_tenant_max);
  limits.running_max = static_cast<uint32_t>(config.jobs_running_max);
  // The spare is at most what a lone tenant cannot use.
  const uint32_t own_max = std::min(limits.running_max, limits.running_per_tenant_max);
  limits.running_spare = std::min(limits.running_max / 4, limits.running_max - own_max);
  limits.quantum = std::chrono::milliseconds(config.scheduling_quantum_ms);
  limits.revoke_grace = std::chrono::milliseconds(config.scheduling_revoke_grace_ms);
  limits.beside_max = limits.quantum / 5;
  return limits;
}

Tenant* Arbiter::TenantByKey(scheduler::TenantKey key) {
  const auto found = tenants_by_key_.find(key);
  return found == tenants_by_key_.end() ? nullptr : found->second.get();
}

void Arbiter::Tick(CoreScope& scope, std::vector<scheduler::Event> events) {
  if (is_ticking_) {
    // Carrying out a decision causes further events: they are handled after the other decisions, so that the stack
    // does not grow with their number.
    more_events_.insert(more_events_.end(), events.begin(), events.end());
    return;
  }
  is_ticking_ = true;
  do {
    const Time start = options_.clock->Now();
    const std::vector<scheduler::Decision> decisions = share_.Tick(start, events);
    options_.observer->On(events::Decided{options_.clock->Now() - start});
    for (const scheduler::Decision& decision : decisions) {
      Apply(scope, decision);
    }
    events = std::exchange(more_events_, {});
  } while (!events.empty());
  is_ticking_ = false;
  tick_due_ = share_.NextTick();
  monitor_.WakeBy(scope, tick_due_);
}

void Arbiter::AddTenant(CoreScope& scope, const TenantRef& tenant) {
  tenants_by_key_.emplace(tenant->key, tenant);
  Tick(scope, {scheduler::TenantArrives{tenant->key}});
  ShareSettings(scope, *tenant);
}

void Arbiter::SetLimits() { share_.SetLimits(ShareLimits(*config_)); }

scheduler::DeviceIndex Arbiter::ShareDevice(const std::string& id) {
  const std::string silicon = devices_.table().SiliconOf(id);
  const auto found = std::find(hardware_.begin(), hardware_.end(), silicon);
  const auto index = static_cast<scheduler::DeviceIndex>(found - hardware_.begin());
  if (found != hardware_.end()) {
    return index;
  }
  if (index == scheduler::kShareDevicesMax) {
    return index - 1;  // Further devices share the turns of the last one.
  }
  hardware_.push_back(silicon);
  share_.SetDevice(index, {.beside = silicon == kProcessor ? options_.cpu_threads : kDriverBeside,
                           .memory_bytes = silicon == kProcessor ? 0 : devices_.table().MemoryOf(id)});
  return index;
}

uint64_t Arbiter::ShareDevices(const Preparation& preparation) {
  uint64_t devices = 0;
  for (const std::string& id : preparation.summary.devices()) {
    devices |= uint64_t{1} << ShareDevice(id);
  }
  return devices != 0 ? devices : 1;
}

void Arbiter::ShareSettings(CoreScope& scope, Tenant& tenant) {
  const uint64_t running = tenant.policy->limits[static_cast<size_t>(scheduler::Resource::kRunningJobs)];
  const auto running_max = static_cast<uint32_t>(std::min<uint64_t>(running, UINT32_MAX));
  Tick(scope,
       {scheduler::TenantSettings{.tenant = tenant.key, .weight = tenant.policy->weight, .running_max = running_max}});
}

Arbiter::DeviceTurns Arbiter::TurnsOf(const std::string& device_id) const {
  const auto found = std::find(hardware_.begin(), hardware_.end(), devices_.table().SiliconOf(device_id));
  if (found == hardware_.end()) {
    return {};  // No run has asked for the device so far.
  }
  const auto index = static_cast<scheduler::DeviceIndex>(found - hardware_.begin());
  const scheduler::FairShare::Turns turns = share_.TurnsOf(index);
  DeviceTurns named;
  named.waiting = turns.waiting;
  for (const auto& [key, tenant] : tenants_by_key_) {
    named.used += share_.used(key, index, options_.clock->Now());
    if (std::find(turns.holders.begin(), turns.holders.end(), key) != turns.holders.end()) {
      named.holders.push_back(tenant->name);
    }
  }
  std::sort(named.holders.begin(), named.holders.end());
  return named;
}

void Arbiter::SettleDeviceTime(Tenant& tenant) {
  const Duration used = share_.used(tenant.key, options_.clock->Now());
  if (used > tenant.device_time_paid) {
    quotas_.ChargeDeviceTime(tenant, used - std::exchange(tenant.device_time_paid, used));
  }
}

void Arbiter::UseDevices(CoreScope& scope, const Execution& run, uint64_t devices) {
  Tick(scope, {scheduler::JobDevices{run.tenant->key, run.key, devices}});
}

void Arbiter::Apply(CoreScope& scope, const scheduler::Decision& decision) {
  if (const auto* start = std::get_if<scheduler::StartJob>(&decision)) {
    turns_.start(scope, start->job);
  } else if (const auto* refuse = std::get_if<scheduler::RefuseJob>(&decision)) {
    turns_.refuse(scope, refuse->job, refuse->limit);
  } else if (const auto* grant = std::get_if<scheduler::Grant>(&decision)) {
    WriteGrant(grant->tenant, grant->device, {GrantState::kGranted, grant->contended});
  } else if (const auto* revoke = std::get_if<scheduler::Revoke>(&decision)) {
    WriteGrant(revoke->tenant, revoke->device, {GrantState::kRevoked, true});
    AwaitReturn(scope, *revoke);
  } else if (const auto* contended = std::get_if<scheduler::SetContended>(&decision)) {
    WriteGrant(contended->tenant, contended->device, {GrantState::kGranted, contended->contended});
  } else if (const auto* overdue = std::get_if<scheduler::GrantOverdue>(&decision)) {
    if (const Tenant* tenant = TenantByKey(overdue->tenant)) {
      LogWarning("A tenant's executor holds a device beyond its grant",
                 {{"tenant", tenant->name}, {"device", hardware_[overdue->device]}});
    }
  }
}

void Arbiter::WriteGrant(scheduler::TenantKey key, scheduler::DeviceIndex device, const DeviceGrant& grant) {
  Tenant* tenant = TenantByKey(key);
  if (tenant == nullptr) {
    return;
  }
  ExecutorSlot& slot = tenant->executor;
  slot.grants.resize(std::max<size_t>(slot.grants.size(), device + 1));
  slot.grants[device] = grant;
  // A slot without a page, or without an executor, is written when one starts.
  for (uint32_t entry = 0; entry < slot.entry_devices.size(); ++entry) {
    if (slot.entry_devices[entry] == device) {
      WriteGrantEntry(slot, entry);
    }
  }
}

// Executors read the page by themselves; only revocations, which they must answer, are sent to them.
void Arbiter::AwaitReturn(CoreScope& scope, const scheduler::Revoke& revoke) {
  const Tenant* tenant = TenantByKey(revoke.tenant);
  if (tenant == nullptr || !share_.IsAwaited(revoke.device, revoke.grant)) {
    return;
  }
  const ExecutorSlot& slot = tenant->executor;
  const scheduler::GrantReturned returned{revoke.tenant, revoke.device, revoke.grant};
  if (slot.port == nullptr) {
    Tick(scope, {returned});
    return;
  }
  // The last answer counts of the entries that share the hardware. An executor that ended holds nothing.
  const auto left = std::make_shared<std::atomic<size_t>>(
      std::count(slot.entry_devices.begin(), slot.entry_devices.end(), revoke.device));
  const auto done = [this, left, returned](const StatusOr<internal::Envelope>&) {
    if (left->fetch_sub(1) == 1) {
      CoreScope inner(monitor_);
      Tick(inner, {returned});
    }
  };
  for (uint32_t entry = 0; entry < slot.entry_devices.size(); ++entry) {
    if (slot.entry_devices[entry] == revoke.device) {
      const auto* page = reinterpret_cast<const GrantPage*>(slot.grant_page.data());
      const uint32_t epoch = page->entries[entry].epoch.load(std::memory_order_relaxed);
      scope.Defer([port = slot.port, entry, epoch, done] {
        internal::Envelope changed;
        changed.mutable_grant_changed()->set_entry(entry);
        changed.mutable_grant_changed()->set_epoch(epoch);
        port->Ask(std::move(changed), done);
      });
    }
  }
}

void Arbiter::WriteGrantEntry(ExecutorSlot& slot, uint32_t index) {
  const scheduler::DeviceIndex device = slot.entry_devices[index];
  const DeviceGrant grant = device < slot.grants.size() ? slot.grants[device] : DeviceGrant();
  // Safety: the page was mapped with kGrantPageBytes, zeroed, and both processes use atomics only.
  GrantEntry& entry = reinterpret_cast<GrantPage*>(slot.grant_page.data())->entries[index];
  entry.state.store(static_cast<uint32_t>(grant.state), std::memory_order_relaxed);
  entry.cpu_threads.store(options_.cpu_threads, std::memory_order_relaxed);
  entry.in_flight_max.store(grant.contended ? kContendedInFlight : 0, std::memory_order_relaxed);
  entry.contended.store(grant.contended ? 1 : 0, std::memory_order_relaxed);
  entry.epoch.fetch_add(1, std::memory_order_release);
  if (grant.state == GrantState::kGranted) {
    // Wakes the threads that wait for the grant.
    FutexWake(entry.epoch, std::numeric_limits<uint32_t>::max(), FutexScope::kShared);
  }
}

void Arbiter::WriteClosed() {
  for (const auto& [key, tenant] : tenants_by_key_) {
    ExecutorSlot& slot = tenant->executor;
    for (uint32_t entry = 0; entry < slot.entry_devices.size(); ++entry) {
      WriteClosed(slot, entry);
    }
  }
}

void Arbiter::WriteClosed(ExecutorSlot& slot, uint32_t index) {
  GrantEntry& entry = reinterpret_cast<GrantPage*>(slot.grant_page.data())->entries[index];
  entry.closed.store(devices_.table().IsClosed(slot.profile[index]) ? 1 : 0, std::memory_order_relaxed);
}

void Arbiter::WriteGrantPage(ExecutorSlot& slot) {
  slot.entry_devices.clear();
  for (const std::string& id : slot.profile) {
    slot.entry_devices.push_back(ShareDevice(id));
  }
  auto* page = reinterpret_cast<GrantPage*>(slot.grant_page.data());
  page->device_bytes_max.store(slot.device_bytes_max, std::memory_order_relaxed);
  page->version.store(1, std::memory_order_relaxed);
  page->count.store(static_cast<uint32_t>(slot.profile.size()), std::memory_order_relaxed);
  for (uint32_t entry = 0; entry < slot.profile.size(); ++entry) {
    WriteClosed(slot, entry);
    WriteGrantEntry(slot, entry);
  }
}

}  // namespace hpvm::server
