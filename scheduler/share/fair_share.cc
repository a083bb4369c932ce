// SPDX-License-Identifier: Apache-2.0
// Events, queues and starts. The clocks are in fair_share_clock.cc, the grants in fair_share_devices.cc.
// Method: a Tick charges the holders for the time since the last one, applies the events in order, starts jobs
// while slots are free, and then turns each device. The ready tenant whose clock, with the probable use of its
// running jobs, is smallest starts its first job.
// Invariants: queued_, running_ and refusable_ are the sums over the tenants. A job is in its tenant's queue or
// running. Each change of a tenant ends in Rank, so every line has its present clock.
// Each round of StartJobs fills a slot, so the loop ends. Shedding examines all tenants, and only when the queues
// are full.
// Source: fair_share.h derives the bound on waiting.
#include "scheduler/share/fair_share.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace hpvm::scheduler {
namespace {

constexpr int32_t kPriorityMax = 1'000;
// Assumed use of a job before one has ended, and a bound on later estimates.
constexpr Duration kJobCostFirst = std::chrono::milliseconds(1);
constexpr Duration kJobCostMax = std::chrono::seconds(1);
// Weight of the newest job in the smoothed cost: one part in kJobCostPart.
constexpr int64_t kJobCostPart = 8;

}  // namespace

FairShare::FairShare(const FairShareLimits& limits, const FairShareDevices& devices)
    : limits_(limits), devices_(devices.devices) {
  HPVMD_CHECK(devices.devices <= kShareDevicesMax);
}

void FairShare::SetLimits(const FairShareLimits& limits) {
  limits_ = limits;
  for (auto& [key, tenant] : tenants_) {
    Rank(key, tenant);
  }
}

void FairShare::SetDevice(DeviceIndex index, const DeviceShare& share) {
  HPVMD_CHECK(index < kShareDevicesMax);
  if (index >= devices_.size()) {
    devices_.resize(index + 1);
    for (auto& [key, tenant] : tenants_) {
      tenant.on.resize(devices_.size());
    }
  }
  devices_[index].share = share;
}

std::vector<Decision> FairShare::Tick(Time now, std::span<const Event> events) {
  std::vector<Decision> out;
  now_ = now;
  Accrue();
  for (const Event& event : events) {
    Apply(event, out);
  }
  StartJobs(out);
  next_tick_ = kNever;
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    TurnDevice(i, out);
  }
  return out;
}

FairShare::Tenant* FairShare::Find(TenantKey key) {
  const auto found = tenants_.find(key);
  return found == tenants_.end() ? nullptr : &found->second;
}

uint32_t FairShare::queued(TenantKey tenant) const {
  const auto it = tenants_.find(tenant);
  return it == tenants_.end() ? 0 : it->second.queued;
}

uint32_t FairShare::running(TenantKey tenant) const {
  const auto it = tenants_.find(tenant);
  return it == tenants_.end() ? 0 : it->second.running;
}

void FairShare::Apply(const Event& event, std::vector<Decision>& out) {
  if (const auto* queued = std::get_if<JobQueued>(&event)) {
    return Queue(*queued, out);
  }
  if (const auto* arrives = std::get_if<TenantArrives>(&event)) {
    return Arrive(*arrives, out);
  }
  const TenantKey key = std::visit([](const auto& one) { return one.tenant; }, event);
  Tenant* tenant = Find(key);
  if (tenant == nullptr) {
    return;
  }
  if (const auto* ended = std::get_if<JobEnded>(&event)) {
    End(*tenant, key, ended->job);
  } else if (const auto* devices = std::get_if<JobDevices>(&event)) {
    SetDevices(*tenant, key, *devices);
  } else if (const auto* returned = std::get_if<GrantReturned>(&event)) {
    Return(*returned);
  } else if (const auto* settings = std::get_if<TenantSettings>(&event)) {
    AccrueBytes(*tenant);
    tenant->weight = std::clamp(settings->weight, 1u, kShareWeightMax);
    tenant->running_max = settings->running_max;
    Rank(key, *tenant);
  } else if (const auto* charge = std::get_if<Charge>(&event)) {
    if (charge->device < devices_.size() && charge->time > Duration{0}) {
      Spend(key, charge->device, charge->time);
    }
  } else if (const auto* holds = std::get_if<HoldsBytes>(&event)) {
    if (holds->device < devices_.size()) {
      AccrueBytes(*tenant);
      tenant->on[holds->device].bytes = holds->bytes;
      tenant->has_bytes =
          std::any_of(tenant->on.begin(), tenant->on.end(), [](const Use& use) { return use.bytes > 0; });
      Rank(key, *tenant);
    }
  } else if (std::holds_alternative<TenantLeaves>(event)) {
    Leave(key);
  }
}

void FairShare::Arrive(const TenantArrives& event, std::vector<Decision>& out) {
  if (tenants_.contains(event.tenant)) {
    return;
  }
  if (tenants_.size() >= limits_.tenants_max) {
    out.push_back(RefuseTenant{event.tenant});
    return;
  }
  Tenant& tenant = tenants_[event.tenant];
  tenant.weight = std::clamp(event.weight, 1u, kShareWeightMax);
  tenant.on.resize(devices_.size());
  tenant.job_cost = kJobCostFirst;
  tenant.idle_since = now_ - limits_.quantum;
}

void FairShare::Queue(const JobQueued& event, std::vector<Decision>& out) {
  const auto refuse = [&](RefuseJob::Limit limit) { out.push_back(RefuseJob{event.tenant, event.job, limit}); };
  Tenant* tenant = Find(event.tenant);
  if (tenant == nullptr) {
    return refuse(RefuseJob::Limit::kUnknownTenant);
  }
  if (tenant->jobs.contains(event.job)) {
    return refuse(RefuseJob::Limit::kDuplicate);
  }
  if (!event.admitted && tenant->queues[0].size() >= limits_.queued_per_tenant_max) {
    return refuse(RefuseJob::Limit::kTenantQueue);
  }
  if (!event.admitted && refusable_ >= limits_.queued_max && !MakeRoom(*tenant, event.tenant, out)) {
    return refuse(RefuseJob::Limit::kQueue);
  }
  const int64_t priority = std::clamp(event.priority, -kPriorityMax, kPriorityMax);
  const uint64_t known = devices_.size() == 64 ? ~uint64_t{0} : (uint64_t{1} << devices_.size()) - 1;
  Job& job = tenant->jobs[event.job];
  job.place = {now_.count() - priority * limits_.priority_step.count(), sequence_++, event.job};
  job.devices = event.devices & known;
  job.admitted = event.admitted;
  tenant->queues[job.admitted ? 1 : 0].insert(job.place);
  ++tenant->queued;
  ++queued_;
  refusable_ += job.admitted ? 0 : 1;
  Rank(event.tenant, *tenant);
}

// The queues are full: the last job of the tenant with the most jobs for its weight is shed, if that tenant has more
// than this one would have. Linear in tenants, but only in this case.
bool FairShare::MakeRoom(const Tenant& tenant, TenantKey key, std::vector<Decision>& out) {
  const auto is_heavier = [](uint64_t jobs, uint32_t weight, uint64_t than_jobs, uint32_t than_weight) {
    return jobs * than_weight > than_jobs * weight;
  };
  TenantKey heaviest_key = key;
  Tenant* heaviest = nullptr;
  uint64_t jobs = tenant.queues[0].size() + 1;
  uint32_t weight = tenant.weight;
  for (auto& [other_key, other] : tenants_) {
    if (other_key != key && is_heavier(other.queues[0].size(), other.weight, jobs, weight)) {
      heaviest = &other;
      heaviest_key = other_key;
      jobs = other.queues[0].size();
      weight = other.weight;
    }
  }
  if (heaviest == nullptr) {
    return false;
  }
  const JobKey last = heaviest->queues[0].rbegin()->job;
  out.push_back(RefuseJob{heaviest_key, last, RefuseJob::Limit::kShed});
  End(*heaviest, heaviest_key, last);
  return true;
}

void FairShare::Unqueue(Tenant& tenant, const Job& job) {
  tenant.queues[job.admitted ? 1 : 0].erase(job.place);
  --tenant.queued;
  --queued_;
  refusable_ -= job.admitted ? 0 : 1;
}

void FairShare::End(Tenant& tenant, TenantKey key, JobKey job) {
  const auto found = tenant.jobs.find(job);
  if (found == tenant.jobs.end()) {
    return;
  }
  if (!found->second.running) {
    Unqueue(tenant, found->second);
  } else {
    Unwant(tenant, key, found->second.devices);
    --tenant.running;
    --running_;
    const Duration cost = std::min(std::exchange(tenant.since_end, Duration{0}), kJobCostMax);
    tenant.job_cost += (cost - tenant.job_cost) / kJobCostPart;
  }
  tenant.jobs.erase(found);
  Rank(key, tenant);
}

void FairShare::SetDevices(Tenant& tenant, TenantKey key, const JobDevices& event) {
  const auto found = tenant.jobs.find(event.job);
  if (found == tenant.jobs.end()) {
    return;
  }
  const uint64_t known = devices_.size() == 64 ? ~uint64_t{0} : (uint64_t{1} << devices_.size()) - 1;
  const uint64_t next = event.devices & known, before = std::exchange(found->second.devices, next);
  if (found->second.running) {
    Unwant(tenant, key, before & ~next);
    Want(tenant, key, next & ~before);
    Rank(key, tenant);
  }
}

void FairShare::Leave(TenantKey key) {
  Tenant& tenant = tenants_.at(key);
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    DeviceState& device = devices_[i];
    StopWaiting(tenant, i);
    const auto is_its = [&](const Holder& holder) { return holder.tenant == key; };
    if (device.holder && is_its(*device.holder)) {
      device.holder.reset();
    }
    std::erase_if(device.beside, is_its);
    std::erase_if(device.overdue, is_its);
  }
  queued_ -= tenant.queued;
  refusable_ -= static_cast<uint32_t>(tenant.queues[0].size());
  running_ -= tenant.running;
  tenant.queued = tenant.running = 0;
  tenant.wanted = 0;
  Rank(key, tenant);  // Removes it from every line.
  tenants_.erase(key);
}

void FairShare::StartJobs(std::vector<Decision>& out) {
  while (running_ < limits_.running_max) {
    const bool has_spare = running_ + limits_.running_spare >= limits_.running_max;
    const Line* line = &ready_[0];
    if (!has_spare && !ready_[1].empty() && (line->empty() || *ready_[1].begin() < *line->begin())) {
      line = &ready_[1];
    }
    if (line->empty()) {
      return;
    }
    const TenantKey key = line->begin()->tenant;
    Tenant& tenant = tenants_.at(key);
    const auto& [own, admitted] = tenant.queues;
    const bool is_admitted = own.empty() || (!admitted.empty() && *admitted.begin() < *own.begin());
    Job& job = tenant.jobs.at((is_admitted ? admitted : own).begin()->job);
    Unqueue(tenant, job);
    job.running = true;
    ++tenant.running;
    ++running_;
    tenant.turn = ++turn_;
    Advance(tenant, tenant.start_time, limits_.start_cost.count());
    out.push_back(StartJob{key, job.place.job});
    Want(tenant, key, job.devices);
    Rank(key, tenant);
  }
}

}  // namespace hpvm::scheduler
