// SPDX-License-Identifier: Apache-2.0
// Tenants holds the tenants with their policies.
#ifndef HPVMD_SERVER_CORE_ROOMS_TENANTS_H_
#define HPVMD_SERVER_CORE_ROOMS_TENANTS_H_

#include <map>
#include <string>
#include <string_view>

#include "server/core/rooms/arbiter.h"
#include "server/core/rooms/quotas.h"
#include "server/core/state/core_context.h"

namespace hpvm::server {

// Returns why calls of a tenant with that policy are refused, or OK; a null policy means that there is no such tenant.
Status RefusalOf(std::string_view name, const TenantPolicy* policy);

class Tenants : private CoreRoom {
 public:
  Tenants(CoreContext& context, Quotas& quotas, Arbiter& arbiter)
      : CoreRoom(context), quotas_(quotas), arbiter_(arbiter) {}

  // --- For clients; these lock the mutex ---
  // Returns the tenant of that name, created on first use when the policies know it. kNotFound; kPermissionDenied when
  // the tenant is disabled and the call is not allowed to disabled tenants (`also_disabled`); kResourceExhausted at
  // tenants.max.
  StatusOr<TenantRef> FindTenant(std::string_view name, bool also_disabled = false);
  // Returns what the tenants of this process have spent, including what they had spent before it.
  SpentByTenant Spent();

  // --- For other rooms; the caller holds the mutex ---
  const std::map<std::string, TenantRef>& all() const { return tenants_; }
  // Returns null when no tenant of that name exists yet.
  TenantRef FindKnown(std::string_view name) const;
  // Applies the limits of the changed configuration to all tenants.
  void SetLimits();
  // For tenants in the store, whatever the policies say of them.
  TenantRef FindOrAdd(CoreScope& scope, const std::string& name);
  // Returns kPermissionDenied or kNotFound when the tenant's calls are refused.
  static Status RefuseTenant(const Tenant& tenant);
  // Returns the refusal for work that continues when the tenant is allowed again.
  static Outcome Suspended(const Tenant& tenant);
  void SetPolicy(Tenant& tenant);

 private:
  TenantRef AddTenant(CoreScope& scope, const std::string& name);
  void RestoreSpent(const Tenant& tenant);

  Quotas& quotas_;
  Arbiter& arbiter_;
  std::map<std::string, TenantRef> tenants_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_TENANTS_H_
