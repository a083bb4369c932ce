// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "server/core/core.h"

namespace hpvm::server {
namespace {

v1::ResourceUsage::Unit UnitOf(scheduler::ResourceUnit unit) {
  switch (unit) {
    case scheduler::ResourceUnit::kCount:
      return v1::ResourceUsage::UNIT_COUNT;
    case scheduler::ResourceUnit::kBytes:
      return v1::ResourceUsage::UNIT_BYTES;
    case scheduler::ResourceUnit::kNanoseconds:
      return v1::ResourceUsage::UNIT_NANOSECONDS;
  }
  return v1::ResourceUsage::UNIT_UNSPECIFIED;
}

}  // namespace

void Core::OnPolicyChanged(std::string_view name) {
  CoreScope scope(context_.monitor);
  if (const TenantRef tenant = tenants_.FindKnown(name)) {
    ApplyPolicy(scope, tenant);
  }
  if (context_.options.shared != nullptr) {
    context_.options.shared->OnPolicyChanged(std::string(name));
  }
}

void Core::ApplyPolicy(CoreScope& scope, const TenantRef& tenant) {
  const bool was_disabled = tenant->policy->disabled;
  tenants_.SetPolicy(*tenant);
  quotas_.ledger().SetLimits(tenant->key, tenant->policy->limits, context_.options.clock->Now());
  arbiter_.ShareSettings(scope, *tenant);
  watchers_.Tell(scope, tenant, Watchers::kAll);
  if (tenant->policy->disabled) {
    if (!was_disabled) {
      lifecycle_.Suspend(scope, tenant);
    }
    return;
  }
  // Jobs that waited for this change, or for device time to be earned, are considered again.
  table_.EachLive(scope, tenant, [this](CoreScope& inner, const ExecutionRef& job) { lifecycle_.Settle(inner, job); });
}

Status Core::Usage(std::string_view name, v1::GetUsageResponse* response) {
  CoreScope scope(context_.monitor);
  const TenantRef tenant = tenants_.FindKnown(name);
  if (tenant != nullptr) {
    arbiter_.SettleDeviceTime(*tenant);
  }
  const TenantPolicyRef policy =
      tenant != nullptr ? tenant->policy : context_.options.policies->Find(name, *context_.config);
  if (policy == nullptr) {
    return RefusalOf(name, nullptr);
  }
  response->set_tenant(std::string(name));
  response->set_weight(policy->weight);
  response->set_dominant_share(
      tenant == nullptr ? 0 : arbiter_.share().DominantShare(tenant->key, context_.options.clock->Now()));
  const Time now = context_.options.clock->Now();
  for (const scheduler::ResourceFacts& facts : scheduler::Resources()) {
    scheduler::Ledger::Balance balance;
    balance.limit = policy->limits[static_cast<size_t>(facts.resource)];
    if (tenant != nullptr) {
      balance = quotas_.ledger().BalanceOf(tenant->key, facts.resource, now);
    } else if (facts.period.count() > 0) {
      balance.available = balance.limit;
    }
    v1::ResourceUsage& usage = *response->add_resources();
    usage.set_resource(std::string(facts.name));
    usage.set_unit(UnitOf(facts.unit));
    usage.set_used(balance.used);
    usage.set_limit(balance.limit);
    usage.set_period_ns(static_cast<uint64_t>(facts.period.count()));
    usage.set_available(balance.available);
    usage.set_refused(balance.refused);
    usage.set_peak(balance.peak);
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
