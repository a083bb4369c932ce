// SPDX-License-Identifier: Apache-2.0
// Rules for tenants and tokens: pure functions that check administrators' requests and apply the requested changes.
#ifndef HPVMD_SERVER_IDENTITY_TENANT_RULES_H_
#define HPVMD_SERVER_IDENTITY_TENANT_RULES_H_

#include "base/status.h"
#include "hpvm/v1/admin.pb.h"
#include "server/config/tenant_policy.h"
#include "server/identity/principal.h"

namespace hpvm::server {

inline constexpr int kTenantUidsMax = 1'000, kTenantGidsMax = 100, kTenantCertificatesMax = 100, kTenantDevicesMax = 64;
inline constexpr size_t kNoteBytesMax = 255;
inline constexpr uint64_t kTokenLifetimeDefaultNs = 90ull * 86'400 * 1'000'000'000;
inline constexpr uint64_t kTokenLifetimeMaxNs = 3'650ull * 86'400 * 1'000'000'000;
inline constexpr size_t kTokensPerTenantMax = 1'000;

// Returns kInvalidArgument with the field, the value and the limit. Does not check whether another tenant has the name,
// user id, group id or certificate name.
Status CheckTenant(const v1::Tenant& tenant);
// Changes `tenant` as the request says, without a check of the result.
void ApplyUpdate(const v1::UpdateTenantRequest& update, v1::Tenant* tenant);
// Returns kInvalidArgument for quotas that do not exist, which ApplyUpdate would ignore in `reset_quota`, and for
// quotas that are both set and reset.
Status CheckUpdate(const v1::UpdateTenantRequest& update);

// Returns the tenant's policy, with the configuration's values where the tenant has none of its own.
TenantPolicy PolicyOf(const v1::Tenant& tenant, const Config& config);

// Returns kInvalidArgument for a note that is too long or has control characters.
Status CheckNote(std::string_view what, std::string_view note);
StatusOr<Role> RoleOf(v1::Role role);
v1::Role ToMessage(Role role);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_TENANT_RULES_H_
