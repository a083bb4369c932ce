// SPDX-License-Identifier: Apache-2.0
// The tenants that there are, and the policies that they are under.
#ifndef HPVMD_SERVER_CORE_ROOMS_TENANTS_H_
#define HPVMD_SERVER_CORE_ROOMS_TENANTS_H_

#include <map>
#include <string>
#include <string_view>

#include "server/core/rooms/arbiter.h"
#include "server/core/rooms/quotas.h"
#include "server/core/state/core_context.h"

namespace hpvm::server {

// Why calls of a tenant with that policy are refused; null: there is no such tenant.
Status RefusalOf(std::string_view name, const TenantPolicy* policy);

class Tenants : private CoreRoom {
 public:
  Tenants(CoreContext& context, Quotas& quotas, Arbiter& arbiter)
      : CoreRoom(context), quotas_(quotas), arbiter_(arbiter) {}

  // --- For clients; these lock the mutex ---
  // The tenant of that name, made on first use when the policies know it. kNotFound, kPermissionDenied when it is
  // disabled and the call is not for `also_disabled`, kResourceExhausted at tenants.max.
  StatusOr<TenantRef> FindTenant(std::string_view name, bool also_disabled = false);
  // What the tenants of this process have spent, with what they had before it.
  SpentByTenant Spent();

  // --- For other rooms, with the mutex ---
  const std::map<std::string, TenantRef>& all() const { return tenants_; }
  // Null: there is none of that name so far.
  TenantRef FindKnown(std::string_view name) const;
  // The limits of the configuration, which has changed, for all of them.
  void SetLimits();
  // For tenants of the store, whatever the policies say of them.
  TenantRef FindOrAdd(CoreScope& scope, const std::string& name);
  // kPermissionDenied or kNotFound when its calls are refused.
  static Status RefuseTenant(const Tenant& tenant);
  // As a refusal of something that comes back when it may.
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
