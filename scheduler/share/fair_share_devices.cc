// SPDX-License-Identifier: Apache-2.0
// Grants: whose turn it is on each device, and which tenants may hold it beside the holder.
// Method: a state machine for each device, advanced once a Tick: waiting, granted, revoked, and overdue or
// returned. The first of the line gets a free device; short work of those behind it is granted beside it.
// Invariants: a device has at most one holder. A tenant is in the line, or holder, or beside, and never two of them
// at once; an overdue tenant may wait as well, and its overdue entry goes when it is granted again. Grant numbers
// are unique and grow.
// A revocation ends after revoke_grace in any case; next_tick_ is at most the earliest end of a slice or grace that
// matters.
#include <algorithm>
#include <utility>

#include "scheduler/share/fair_share.h"

namespace hpvm::scheduler {

void FairShare::Want(Tenant& tenant, TenantKey key, uint64_t devices) {
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    if ((devices >> i & 1) == 0 || tenant.on[i].wants++ > 0) {
      continue;
    }
    tenant.wanted |= uint64_t{1} << i;
    tenant.on[i].busy_since = now_;
    Wait(key, i);
  }
}

void FairShare::Unwant(Tenant& tenant, TenantKey key, uint64_t devices) {
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    Use& use = tenant.on[i];
    if ((devices >> i & 1) == 0 || --use.wants > 0) {
      continue;
    }
    tenant.wanted &= ~(uint64_t{1} << i);
    StopWaiting(tenant, i);
    // A grant for which no other tenant waits is kept, so that the tenant's next job finds it in place.
    DeviceState& device = devices_[i];
    if (device.holder && device.holder->tenant == key) {
      use.was_short = now_ - std::max(use.busy_since, device.holder->since) <= limits_.beside_max;
    }
  }
}

// Puts the tenant in the line, unless it holds the device.
void FairShare::Wait(TenantKey key, DeviceIndex index) {
  DeviceState& device = devices_[index];
  const auto is_its = [&](const Holder& holder) { return holder.tenant == key; };
  if ((device.holder && is_its(*device.holder)) || std::any_of(device.beside.begin(), device.beside.end(), is_its)) {
    return;
  }
  Tenant& tenant = tenants_.at(key);
  // It begins with the current value of its clock, even if it was idle until now.
  Rank(key, tenant);
  const QueuePosition place{tenant.clock, tenant.turn, key};
  tenant.waits |= uint64_t{1} << index;
  tenant.waiting_place = place;
  device.waiting.insert(place);
}

void FairShare::StopWaiting(Tenant& tenant, DeviceIndex index) {
  if ((tenant.waits >> index & 1) != 0) {
    tenant.waits &= ~(uint64_t{1} << index);
    devices_[index].waiting.erase(tenant.waiting_place);
  }
}

bool FairShare::IsAwaited(DeviceIndex index, uint64_t grant) const {
  const DeviceState& device = devices_[index];
  return (device.holder && device.holder->grant == grant) ||
         std::any_of(device.beside.begin(), device.beside.end(),
                     [&](const Holder& holder) { return holder.grant == grant; });
}

// Charges remain; only the account of held time is closed.
void FairShare::EndGrant(const Holder& holder, DeviceIndex index) {
  tenants_.at(holder.tenant).on[index].held += now_ - holder.since;
}

void FairShare::Return(const GrantReturned& event) {
  if (event.device >= devices_.size()) {
    return;
  }
  DeviceState& device = devices_[event.device];
  const auto is_it = [&](const Holder& holder) { return holder.tenant == event.tenant && holder.grant == event.grant; };
  std::erase_if(device.overdue, is_it);
  const auto beside = std::find_if(device.beside.begin(), device.beside.end(), is_it);
  if (device.holder && is_it(*device.holder)) {
    EndGrant(*device.holder, event.device);
    device.holder.reset();
  } else if (beside != device.beside.end()) {
    EndGrant(*beside, event.device);
    device.beside.erase(beside);
  } else {
    return;
  }
  // It gave way; if it still has work it waits again.
  if (tenants_.at(event.tenant).on[event.device].wants > 0) {
    Wait(event.tenant, event.device);
  }
}

void FairShare::TurnDevice(DeviceIndex index, std::vector<Decision>& out) {
  DeviceState& device = devices_[index];
  // A tenant that ended one job and began the next in the meantime has not stopped, and keeps paying.
  std::erase_if(device.overdue, [&](const Holder& holder) { return tenants_.at(holder.tenant).on[index].wants == 0; });
  if (device.holder) {
    TurnHolder(index, out);
  }
  if (!device.beside.empty()) {
    TurnBeside(index, out);
  }
  if (!device.holder && !device.waiting.empty()) {
    GrantNext(index, out);
  }
  if (!device.waiting.empty() && device.share.beside > 0) {
    GrantBeside(index, out);
  }
  if (device.holder && !device.holder->revoked) {
    TellContended(device, index, out);
  }
  PlanNext(device);
}

// Returns true when a revoked holder no longer holds the device.
bool FairShare::TurnRevoked(const Holder& holder, DeviceIndex index, std::vector<Decision>& out) {
  if (tenants_.at(holder.tenant).on[index].wants == 0) {
    EndGrant(holder, index);  // None of its jobs run, so there is nothing to wait for.
    return true;
  }
  if (now_ - *holder.revoked < limits_.revoke_grace) {
    return false;
  }
  out.push_back(GrantOverdue{holder.tenant, index, holder.grant});
  EndGrant(holder, index);
  devices_[index].overdue.push_back(holder);
  return true;
}

void FairShare::TurnHolder(DeviceIndex index, std::vector<Decision>& out) {
  DeviceState& device = devices_[index];
  Holder& holder = *device.holder;
  const TenantKey key = holder.tenant;
  Tenant& tenant = tenants_.at(key);
  if (holder.revoked) {
    if (TurnRevoked(holder, index, out)) {
      device.holder.reset();
      if (tenant.on[index].wants > 0) {
        Wait(key, index);
      }
    }
    return;
  }
  if (device.waiting.empty()) {
    return;
  }
  if (tenant.on[index].wants == 0) {
    out.push_back(Revoke{key, index, holder.grant});
    EndGrant(holder, index);
    device.holder.reset();
    return;
  }
  if (now_ - holder.slice < limits_.quantum) {
    return;
  }
  if (tenant.clock < device.waiting.begin()->time) {
    holder.slice = now_;  // It is its turn again.
    return;
  }
  holder.revoked = now_;
  tenant.on[index].was_short = false;
  out.push_back(Revoke{key, index, holder.grant});
}

// Tenants beside the holder leave at the end of their work, or are asked to when it turns out not to be short.
void FairShare::TurnBeside(DeviceIndex index, std::vector<Decision>& out) {
  DeviceState& device = devices_[index];
  std::vector<Holder> still;
  for (Holder& holder : std::exchange(device.beside, {})) {
    Use& use = tenants_.at(holder.tenant).on[index];
    if (holder.revoked) {
      if (!TurnRevoked(holder, index, out)) {
        still.push_back(holder);
      } else if (use.wants > 0) {
        Wait(holder.tenant, index);
      }
    } else if (use.wants == 0) {
      use.was_short = true;
      out.push_back(Revoke{holder.tenant, index, holder.grant});
      EndGrant(holder, index);
    } else if (now_ - holder.slice < limits_.beside_max) {
      still.push_back(holder);
    } else if (!device.holder && device.waiting.empty()) {
      holder.slice = now_;
      device.holder = holder;  // There is no holder to be beside.
    } else {
      use.was_short = false;
      holder.revoked = now_;
      out.push_back(Revoke{holder.tenant, index, holder.grant});
      still.push_back(holder);
    }
  }
  device.beside = std::move(still);
}

FairShare::Holder FairShare::MakeHolder(TenantKey key, DeviceIndex index, std::vector<Decision>& out, bool contended) {
  DeviceState& device = devices_[index];
  Tenant& tenant = tenants_.at(key);
  StopWaiting(tenant, index);
  std::erase_if(device.overdue, [&](const Holder& holder) { return holder.tenant == key; });
  tenant.turn = ++turn_;
  Rank(key, tenant);
  const Holder holder{.tenant = key,
                      .grant = next_grant_++,
                      .since = now_,
                      .slice = now_,
                      .accrued = now_,
                      .contended = contended,
                      .revoked = {}};
  out.push_back(Grant{key, index, holder.grant, contended});
  return holder;
}

void FairShare::GrantNext(DeviceIndex index, std::vector<Decision>& out) {
  DeviceState& device = devices_[index];
  const bool contended = device.waiting.size() > 1 || !device.beside.empty();
  device.holder = MakeHolder(device.waiting.begin()->tenant, index, out, contended);
}

void FairShare::GrantBeside(DeviceIndex index, std::vector<Decision>& out) {
  DeviceState& device = devices_[index];
  std::vector<TenantKey> chosen;
  // Probable total usage of their jobs.
  Duration together{0};
  for (const Holder& holder : device.beside) {
    together += tenants_.at(holder.tenant).job_cost;
  }
  for (const QueuePosition& place : device.waiting) {
    const Tenant& tenant = tenants_.at(place.tenant);
    together += tenant.job_cost;
    if (device.beside.size() + chosen.size() >= device.share.beside &&
        together > limits_.beside_max * device.share.beside) {
      break;
    }
    const int64_t ahead = limits_.quantum.count() * kShareWeightDefault / tenant.weight;
    if (place.time > SystemTime() + ahead) {
      break;  // It has had its share, and so have those behind it in the line, ignoring weights.
    }
    if (tenant.on[index].was_short) {
      chosen.push_back(place.tenant);
    }
  }
  for (const TenantKey key : chosen) {
    device.beside.push_back(MakeHolder(key, index, out, /*contended=*/true));
  }
}

void FairShare::TellContended(DeviceState& device, DeviceIndex index, std::vector<Decision>& out) {
  const bool contended = !device.waiting.empty() || !device.beside.empty();
  if (contended != device.holder->contended) {
    device.holder->contended = contended;
    out.push_back(SetContended{device.holder->tenant, index, contended});
  }
}

void FairShare::PlanNext(const DeviceState& device) {
  if (device.holder && device.holder->revoked) {
    next_tick_ = std::min(next_tick_, *device.holder->revoked + limits_.revoke_grace);
  } else if (device.holder && !device.waiting.empty()) {
    next_tick_ = std::min(next_tick_, device.holder->slice + limits_.quantum);
  }
  for (const Holder& holder : device.beside) {
    next_tick_ = std::min(next_tick_,
                          holder.revoked ? *holder.revoked + limits_.revoke_grace : holder.slice + limits_.beside_max);
  }
}

}  // namespace hpvm::scheduler
