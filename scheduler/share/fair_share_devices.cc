// SPDX-License-Identifier: Apache-2.0
// Grants: whose turn it is on each device, and who may hold it beside.
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
    // A grant that nobody else waits for is kept: the tenant's next job then finds it in place.
    DeviceState& device = devices_[i];
    if (device.holder && device.holder->tenant == key) {
      use.was_short = now_ - std::max(use.busy_since, device.holder->since) <= limits_.beside_max;
    }
  }
}

// Into the line, unless it holds the device.
void FairShare::Wait(TenantKey key, DeviceIndex index) {
  DeviceState& device = devices_[index];
  const auto is_its = [&](const Holder& holder) { return holder.tenant == key; };
  if ((device.holder && is_its(*device.holder)) || std::any_of(device.beside.begin(), device.beside.end(), is_its)) {
    return;
  }
  Tenant& tenant = tenants_.at(key);
  // What it begins with is what its clock is worth now, also when it had nothing to do until now.
  Rank(key, tenant);
  const Place place{tenant.clock, tenant.turn, key};
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

// What was charged stays; only the account of held time is closed.
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
  // Who ended one job and began the next meanwhile has not stopped, and goes on paying.
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

// A revoked one: true when it does not hold the device any longer.
bool FairShare::TurnRevoked(const Holder& holder, DeviceIndex index, std::vector<Decision>& out) {
  if (tenants_.at(holder.tenant).on[index].wants == 0) {
    EndGrant(holder, index);  // None of its jobs run: there is nothing to wait for.
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

// Those beside the holder leave with the end of their work, or are asked to when it is not short after all.
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
      device.holder = holder;  // There is nobody to be beside.
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
  // What their jobs will probably use together.
  Duration together{0};
  for (const Holder& holder : device.beside) {
    together += tenants_.at(holder.tenant).job_cost;
  }
  for (const Place& place : device.waiting) {
    const Tenant& tenant = tenants_.at(place.tenant);
    together += tenant.job_cost;
    if (device.beside.size() + chosen.size() >= device.share.beside &&
        together > limits_.beside_max * device.share.beside) {
      break;
    }
    const int64_t ahead = limits_.quantum.count() * kShareWeightDefault / tenant.weight;
    if (place.time > SystemTime() + ahead) {
      break;  // It has had its share, and so have those behind it in the line; weights aside.
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
