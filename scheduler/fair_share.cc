// SPDX-License-Identifier: Apache-2.0
#include "scheduler/fair_share.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace hpvm::scheduler {
namespace {

constexpr int32_t kPriorityMax = 1'000;

}  // namespace

FairShare::FairShare(const FairShareLimits& limits, const FairShareDevices& devices)
    : limits_(limits), devices_(devices.devices) {
  HPVMD_CHECK(devices.devices <= 64);
}

std::vector<Decision> FairShare::Tick(Time now, std::span<const Event> events) {
  std::vector<Decision> out;
  for (const Event& event : events) {
    Apply(now, event, out);
  }
  StartJobs(out);
  next_tick_ = kNever;
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    TurnDevice(now, i, out);
  }
  return out;
}

Time FairShare::NextTick() const { return next_tick_; }

uint32_t FairShare::queued(TenantKey tenant) const {
  auto it = tenants_.find(tenant);
  return it == tenants_.end() ? 0 : static_cast<uint32_t>(it->second.queue.size());
}

uint32_t FairShare::running(TenantKey tenant) const {
  auto it = tenants_.find(tenant);
  return it == tenants_.end() ? 0 : static_cast<uint32_t>(it->second.running.size());
}

Duration FairShare::held(TenantKey tenant, DeviceIndex device, Time now) const {
  auto it = tenants_.find(tenant);
  if (it == tenants_.end() || device >= devices_.size()) {
    return Duration{0};
  }
  const std::optional<Holder>& holder = devices_[device].holder;
  const bool holds = holder.has_value() && holder->tenant == tenant;
  return it->second.held[device] + (holds ? now - holder->since : Duration{0});
}

void FairShare::Apply(Time now, const Event& event, std::vector<Decision>& out) {
  if (const auto* arrives = std::get_if<TenantArrives>(&event)) {
    if (tenants_.contains(arrives->tenant)) {
      return;
    }
    if (tenants_.size() >= limits_.tenants_max) {
      out.push_back(RefuseTenant{arrives->tenant});
      return;
    }
    Tenant& tenant = tenants_[arrives->tenant];
    tenant.wants.resize(devices_.size());
    tenant.held.resize(devices_.size());
  } else if (const auto* leaves = std::get_if<TenantLeaves>(&event)) {
    Leave(now, leaves->tenant);
  } else if (const auto* queued = std::get_if<JobQueued>(&event)) {
    Queue(now, *queued, out);
  } else if (const auto* ended = std::get_if<JobEnded>(&event)) {
    if (auto it = tenants_.find(ended->tenant); it != tenants_.end()) {
      End(it->second, ended->tenant, ended->job);
    }
  } else if (const auto* returned = std::get_if<GrantReturned>(&event)) {
    if (returned->device >= devices_.size()) {
      return;
    }
    DeviceState& device = devices_[returned->device];
    if (!device.holder || device.holder->tenant != returned->tenant || device.holder->grant != returned->grant) {
      return;
    }
    Release(now, device, returned->device);
    // It gave way; if it still has work it queues behind those who wait.
    auto it = tenants_.find(returned->tenant);
    if (it != tenants_.end() && it->second.wants[returned->device] > 0) {
      device.waiting.push_back(returned->tenant);
    }
  }
}

void FairShare::Queue(Time now, const JobQueued& event, std::vector<Decision>& out) {
  const auto refuse = [&](RefuseJob::Limit limit) { out.push_back(RefuseJob{event.tenant, event.job, limit}); };
  auto it = tenants_.find(event.tenant);
  if (it == tenants_.end()) {
    return refuse(RefuseJob::Limit::kUnknownTenant);
  }
  Tenant& tenant = it->second;
  if (tenant.queued_by_key.contains(event.job) || tenant.running.contains(event.job)) {
    return refuse(RefuseJob::Limit::kDuplicate);
  }
  if (!event.admitted && tenant.refusable >= limits_.queued_per_tenant_max) {
    return refuse(RefuseJob::Limit::kTenantQueue);
  }
  if (!event.admitted && refusable_ >= limits_.queued_max) {
    return refuse(RefuseJob::Limit::kQueue);
  }
  const int64_t priority = std::clamp(event.priority, -kPriorityMax, kPriorityMax);
  const uint64_t known = devices_.size() == 64 ? ~uint64_t{0} : (uint64_t{1} << devices_.size()) - 1;
  const QueuedJob job{.rank_ns = now.count() - priority * limits_.priority_step.count(),
                      .sequence = sequence_++,
                      .job = event.job,
                      .devices = event.devices & known,
                      .admitted = event.admitted};
  tenant.queue.insert(job);
  tenant.queued_by_key.emplace(event.job, job);
  ++queued_;
  if (!job.admitted) {
    ++tenant.refusable;
    ++refusable_;
  }
}

void FairShare::Unqueue(Tenant& tenant, const QueuedJob& job) {
  if (!job.admitted) {
    --tenant.refusable;
    --refusable_;
  }
  --queued_;
  tenant.queued_by_key.erase(job.job);
  tenant.queue.erase(job);
}

void FairShare::End(Tenant& tenant, TenantKey key, JobKey job) {
  if (auto queued = tenant.queued_by_key.find(job); queued != tenant.queued_by_key.end()) {
    Unqueue(tenant, QueuedJob(queued->second));
    return;
  }
  auto running = tenant.running.find(job);
  if (running == tenant.running.end()) {
    return;
  }
  const uint64_t devices = running->second;
  tenant.running.erase(running);
  --running_;
  Unwant(tenant, key, devices);
}

void FairShare::Leave(Time now, TenantKey key) {
  auto it = tenants_.find(key);
  if (it == tenants_.end()) {
    return;
  }
  queued_ -= static_cast<uint32_t>(it->second.queue.size());
  refusable_ -= it->second.refusable;
  running_ -= static_cast<uint32_t>(it->second.running.size());
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    std::erase(devices_[i].waiting, key);
    if (devices_[i].holder && devices_[i].holder->tenant == key) {
      Release(now, devices_[i], i);
    }
  }
  tenants_.erase(it);
}

void FairShare::StartJobs(std::vector<Decision>& out) {
  while (running_ < limits_.running_max) {
    // The tenant whose last turn lies furthest back. Linear in tenants (bounded by tenants_max), once a started job.
    TenantKey next_key = 0;
    Tenant* next = nullptr;
    for (auto& [key, tenant] : tenants_) {
      if (tenant.queue.empty() || tenant.running.size() >= limits_.running_per_tenant_max) {
        continue;
      }
      if (next == nullptr || tenant.last_start < next->last_start) {
        next = &tenant;
        next_key = key;
      }
    }
    if (next == nullptr) {
      return;
    }
    const QueuedJob job = *next->queue.begin();
    Unqueue(*next, job);
    next->running.emplace(job.job, job.devices);
    next->last_start = ++turn_;
    ++running_;
    out.push_back(StartJob{next_key, job.job});
    Want(*next, next_key, job.devices);
  }
}

void FairShare::Want(Tenant& tenant, TenantKey key, uint64_t devices) {
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    if ((devices >> i & 1) == 0 || tenant.wants[i]++ > 0) {
      continue;
    }
    const bool holds = devices_[i].holder && devices_[i].holder->tenant == key;
    if (!holds) {
      devices_[i].waiting.push_back(key);
    }
  }
}

void FairShare::Unwant(Tenant& tenant, TenantKey key, uint64_t devices) {
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    if ((devices >> i & 1) == 0 || --tenant.wants[i] > 0) {
      continue;
    }
    // A grant that nobody else waits for is kept: the tenant's next job then finds it in place.
    std::erase(devices_[i].waiting, key);
  }
}

void FairShare::Release(Time now, DeviceState& device, DeviceIndex index) {
  if (auto it = tenants_.find(device.holder->tenant); it != tenants_.end()) {
    it->second.held[index] += now - device.holder->since;
  }
  device.holder.reset();
}

void FairShare::TurnDevice(Time now, DeviceIndex index, std::vector<Decision>& out) {
  DeviceState& device = devices_[index];
  if (device.holder && !device.waiting.empty()) {
    Holder& holder = *device.holder;
    if (tenants_.at(holder.tenant).wants[index] == 0) {
      // None of its jobs run: there is nothing to wait for.
      if (!holder.revoked) {
        out.push_back(Revoke{holder.tenant, index, holder.grant});
      }
      Release(now, device, index);
    } else if (!holder.revoked && now - holder.since >= limits_.quantum) {
      holder.revoked = now;
      out.push_back(Revoke{holder.tenant, index, holder.grant});
    } else if (holder.revoked && now - *holder.revoked >= limits_.revoke_grace) {
      const TenantKey overdue = holder.tenant;
      out.push_back(GrantOverdue{overdue, index, holder.grant});
      Release(now, device, index);
      if (tenants_.at(overdue).wants[index] > 0) {
        device.waiting.push_back(overdue);
      }
    }
  }
  if (!device.holder && !device.waiting.empty()) {
    const TenantKey next = device.waiting.front();
    device.waiting.erase(device.waiting.begin());
    const bool contended = !device.waiting.empty();
    device.holder = Holder{.tenant = next, .grant = next_grant_++, .since = now, .contended = contended, .revoked = {}};
    out.push_back(Grant{next, index, device.holder->grant, contended});
  }
  if (!device.holder) {
    return;
  }
  Holder& holder = *device.holder;
  const bool contended = !device.waiting.empty();
  if (contended != holder.contended && !holder.revoked) {
    holder.contended = contended;
    out.push_back(SetContended{holder.tenant, index, contended});
  }
  if (contended) {
    next_tick_ =
        std::min(next_tick_, holder.revoked ? *holder.revoked + limits_.revoke_grace : holder.since + limits_.quantum);
  }
}

}  // namespace hpvm::scheduler
