// SPDX-License-Identifier: Apache-2.0
// What a tenant and a token may be: pure checks of what administrators send, and the changes that they ask for.
#ifndef HPVMD_SERVER_IDENTITY_TENANT_RULES_H_
#define HPVMD_SERVER_IDENTITY_TENANT_RULES_H_

#include "base/status.h"
#include "hpvm/v1/admin.pb.h"
#include "server/config/tenant_policy.h"
#include "server/identity/principal.h"

namespace hpvm::server {

inline constexpr int kTenantUidsMax = 1'000, kTenantCertificatesMax = 100, kTenantDevicesMax = 64;
inline constexpr size_t kNoteBytesMax = 255;
inline constexpr uint64_t kTokenLifetimeDefaultNs = 90ull * 86'400 * 1'000'000'000;
inline constexpr uint64_t kTokenLifetimeMaxNs = 3'650ull * 86'400 * 1'000'000'000;
inline constexpr size_t kTokensPerTenantMax = 1'000;

// kInvalidArgument with the field, the value and the limit. Not whether another tenant has a name, user id or
// certificate.
Status CheckTenant(const v1::Tenant& tenant);
// `tenant` as the request would have it; not checked.
void ApplyUpdate(const v1::UpdateTenantRequest& update, v1::Tenant* tenant);
// kInvalidArgument for names of limits that do not exist, which ApplyUpdate would overlook.
Status CheckUpdate(const v1::UpdateTenantRequest& update);

// With the configuration's values where the tenant has none of its own.
TenantPolicy PolicyOf(const v1::Tenant& tenant, const Config& config);

// kInvalidArgument for a note that is too long or has control characters.
Status CheckNote(std::string_view what, std::string_view note);
StatusOr<Role> RoleOf(v1::Role role);
v1::Role ToMessage(Role role);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_TENANT_RULES_H_
