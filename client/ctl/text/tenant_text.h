// SPDX-License-Identifier: Apache-2.0
// Tenants, tokens, use and sandboxes as text for people. Fields come from others; Table and Printable escape them.
#ifndef HPVMD_CLIENT_CTL_TEXT_TENANT_TEXT_H_
#define HPVMD_CLIENT_CTL_TEXT_TENANT_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "hpvm/v1/admin.pb.h"
#include "hpvm/v1/service.pb.h"

namespace hpvm::ctl {

// "user", "operator", "admin".
std::string RoleText(v1::Role role);

// A line each; `wide` has quota and identities.
std::string TenantsTable(const std::vector<v1::Tenant>& tenants, bool wide);
// Everything about one, a line a fact.
std::string TenantText(const v1::Tenant& tenant);

// "valid", "expired" or "revoked", at `now_ns` of the Unix epoch.
std::string TokenState(const v1::Token& token, int64_t now_ns);
std::string TokensTable(const std::vector<v1::Token>& tokens, int64_t now_ns);

// What a tenant uses and may use, a resource a line.
std::string UsageTable(const v1::GetUsageResponse& usage);

// What a sandbox level keeps kernels from, in a sentence.
std::string_view SandboxMeaning(uint32_t level);
// The level, its meaning, what was and was not possible, and the least that is demanded; a line each.
std::string SandboxText(const v1::Sandbox& sandbox);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_TENANT_TEXT_H_
