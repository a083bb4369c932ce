// SPDX-License-Identifier: Apache-2.0
// Text about tenants, tokens, usage and sandboxes for people. Fields come from other users; Table and Printable
// escape them.
#ifndef HPVMD_CLIENT_CTL_TEXT_TENANT_TEXT_H_
#define HPVMD_CLIENT_CTL_TEXT_TENANT_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "hpvm/v1/admin.pb.h"
#include "hpvm/v1/service.pb.h"

namespace hpvm::ctl {

// Returns "user", "operator" or "admin".
std::string RoleText(v1::Role role);

// Returns one line per tenant; `wide` adds quotas and identities.
std::string TenantsTable(const std::vector<v1::Tenant>& tenants, bool wide);
// Returns all facts about a tenant, one per line.
std::string TenantText(const v1::Tenant& tenant);

// Returns "valid", "expired" or "revoked" at `now_ns` since the Unix epoch.
std::string TokenState(const v1::Token& token, int64_t now_ns);
std::string TokensTable(const std::vector<v1::Token>& tokens, int64_t now_ns);

// Returns a tenant's usage and limits, one resource per line.
std::string UsageTable(const v1::GetUsageResponse& usage);

// Returns a sentence that says what a sandbox level prevents kernels from doing.
std::string_view SandboxMeaning(uint32_t level);
// Returns the level, its meaning, which mechanisms were available, and the required minimum, one per line.
std::string SandboxText(const v1::Sandbox& sandbox);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_TENANT_TEXT_H_
