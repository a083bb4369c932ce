// SPDX-License-Identifier: Apache-2.0
#include "server/core/rooms/tenants.h"

#include <algorithm>
#include <utility>

#include "server/process/log.h"

namespace hpvm::server {
namespace {

// Limit on a tenant's idle memory that is kept for reuse.
constexpr uint64_t kIdleBytesMax = 512 * limits::kMiB;

BufferLimits BufferLimitsOf(const Config& config) {
  return {config.limits_buffer_bytes_max, config.limits_buffers_bytes_max, config.limits_buffers_max};
}

}  // namespace

Status RefusalOf(std::string_view name, const TenantPolicy* policy) {
  if (policy == nullptr) {
    return NotFound("There is no tenant \"" + std::string(name) + "\".");
  }
  return MakeStatus(absl::StatusCode::kPermissionDenied,
                    "The tenant \"" + std::string(name) + "\" is disabled" +
                        (policy->disabled_reason.empty() ? "" : ": " + policy->disabled_reason) + ".");
}

TenantRef Tenants::FindKnown(std::string_view name) const {
  const auto found = tenants_.find(std::string(name));
  return found == tenants_.end() ? nullptr : found->second;
}

TenantRef Tenants::FindOrAdd(CoreScope& scope, const std::string& name) {
  const TenantRef known = FindKnown(name);
  return known != nullptr ? known : AddTenant(scope, name);
}

void Tenants::SetLimits() {
  for (const auto& [name, tenant] : tenants_) {
    tenant->buffers.SetLimits(BufferLimitsOf(*config_));
    tenant->modules.SetLimit(config_->limits_stored_bytes_max);
    tenant->graphs.SetLimit(config_->limits_stored_bytes_max);
  }
}

StatusOr<TenantRef> Tenants::FindTenant(std::string_view name, bool also_disabled) {
  CoreScope scope(monitor_);
  if (const auto found = tenants_.find(std::string(name)); found != tenants_.end()) {
    const Tenant& tenant = *found->second;
    HPVMD_RETURN_IF_ERROR(also_disabled && tenant.is_known ? absl::OkStatus() : RefuseTenant(tenant));
    return found->second;
  }
  if (!IsTenantName(name)) {
    return InvalidArgument("The tenant's name (\"" + std::string(name.substr(0, 80)) +
                           "\") is not 1 to 63 characters of a-z, 0-9, - and _ that start with a letter.");
  }
  const TenantPolicyRef policy = options_.policies->Find(name, *config_);
  if (policy == nullptr || (policy->disabled && !also_disabled)) {
    return RefusalOf(name, policy.get());
  }
  if (tenants_.size() >= config_->tenants_max) {
    return ResourceExhausted("The server has " + std::to_string(config_->tenants_max) +
                             " tenants, which is the limit (tenants.max).");
  }
  return AddTenant(scope, std::string(name));
}

TenantRef Tenants::AddTenant(CoreScope& scope, const std::string& name) {
  const Config& config = *config_;
  auto tenant = std::make_shared<Tenant>(name, scheduler::Account{&quotas_.ledger(), tenants_.size() + 1},
                                         config.limits_stored_bytes_max, BufferLimitsOf(config),
                                         std::min(kIdleBytesMax, config.limits_buffers_bytes_max), options_.clock);
  SetPolicy(*tenant);
  quotas_.ledger().AddTenant(tenant->key, tenant->policy->limits, options_.clock->Now());
  RestoreSpent(*tenant);
  tenants_.emplace(name, tenant);
  arbiter_.AddTenant(scope, tenant);
  LogInfo("Tenant used for the first time since the start", {{"tenant", tenant->name}});
  return tenant;
}

Status Tenants::RefuseTenant(const Tenant& tenant) {
  return tenant.policy->disabled ? RefusalOf(tenant.name, tenant.is_known ? tenant.policy.get() : nullptr)
                                 : absl::OkStatus();
}

Outcome Tenants::Suspended(const Tenant& tenant) {
  return Later(Unavailable(Message(RefuseTenant(tenant))), std::chrono::seconds(1));
}

void Tenants::SetPolicy(Tenant& tenant) {
  tenant.policy = options_.policies->Find(tenant.name, *config_);
  tenant.is_known = tenant.policy != nullptr;
  if (!tenant.is_known) {
    TenantPolicy gone = *DefaultPolicy(tenant.name, *config_);
    gone.disabled = true;
    tenant.policy = std::make_shared<const TenantPolicy>(std::move(gone));
  }
}

void Tenants::RestoreSpent(const Tenant& tenant) {
  const auto found = options_.spent.find(tenant.name);
  if (found == options_.spent.end()) {
    return;
  }
  const TenantSpent& before = found->second;
  const Duration ago(std::max<int64_t>(options_.clock->WallNs() - before.unix_ns, 0));
  for (size_t i = 0; i < scheduler::kResourceCount; ++i) {
    quotas_.ledger().RestoreSpent(tenant.key, static_cast<scheduler::Resource>(i), before.spent[i], ago,
                                  options_.clock->Now());
  }
}

SpentByTenant Tenants::Spent() {
  CoreScope scope(monitor_);
  SpentByTenant spent;
  const Time now = options_.clock->Now();
  const int64_t unix_ns = options_.clock->WallNs();
  for (const auto& [name, tenant] : tenants_) {
    TenantSpent& one = spent[name];
    one.unix_ns = unix_ns;
    for (size_t i = 0; i < scheduler::kResourceCount; ++i) {
      one.spent[i] = quotas_.ledger().SpentOf(tenant->key, static_cast<scheduler::Resource>(i), now);
    }
  }
  return spent;
}

}  // namespace hpvm::server
