// SPDX-License-Identifier: Apache-2.0
#include "server/identity/tenant_rules.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "scheduler/share/resource.h"
#include "server/config/config.h"
#include "server/config/device_families.h"

namespace hpvm::server {
namespace {

constexpr uint32_t kSandboxLevelMax = 4;
constexpr size_t kNameShownMax = 80;
// Exceeds any real time or number of bytes, and is still far below the values at which sums overflow.
constexpr uint64_t kQuotaMax = 1ull << 60;

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) >= 0x20 && c != 0x7f; });
}

// Returns a name from a request, quoted for an error message: shortened, with "?" for each byte that is not ASCII text.
std::string Shown(std::string_view name) {
  std::string shown(name.substr(0, kNameShownMax));
  std::replace_if(
      shown.begin(), shown.end(),
      [](char c) { return static_cast<uint8_t>(c) < 0x20 || static_cast<uint8_t>(c) >= 0x7f; }, '?');
  return "\"" + shown + "\"";
}

Status CheckQuotaName(const std::string& name) {
  if (scheduler::ResourceNamed(name).has_value()) {
    return absl::OkStatus();
  }
  std::string known;
  for (const scheduler::ResourceFacts& facts : scheduler::Resources()) {
    known += (known.empty() ? "" : ", ") + std::string(facts.name);
  }
  return InvalidArgument("The quota " + Shown(name) + " is none of " + known + ".");
}

Status CheckQuota(const v1::Tenant& tenant) {
  for (const auto& [name, limit] : tenant.quota()) {
    HPVMD_RETURN_IF_ERROR(CheckQuotaName(name));
    if (limit > kQuotaMax) {
      return InvalidArgument("The quota of " + name + " (" + std::to_string(limit) + ") is larger than the limit (" +
                             std::to_string(kQuotaMax) + "); 0 means no quota.");
    }
  }
  return absl::OkStatus();
}

Status CheckCount(std::string_view what, int count, int limit) {
  return count <= limit ? absl::OkStatus()
                        : InvalidArgument("The tenant has " + std::to_string(count) + " " + std::string(what) +
                                          "; the limit is " + std::to_string(limit) + ".");
}

Status CheckDevices(const v1::Tenant& tenant) {
  HPVMD_RETURN_IF_ERROR(CheckCount("devices", tenant.devices_size(), kTenantDevicesMax));
  for (const std::string& device : tenant.devices()) {
    const bool is_one = device.find_first_of(", ") == std::string::npos;
    if (!is_one || (device != "cpu" && !FamiliesOf("cpu," + device).ok())) {
      return InvalidArgument("The device " + Shown(device) + " is none of " + DeviceNameForms() + ".");
    }
  }
  return absl::OkStatus();
}

Status CheckUids(const v1::Tenant& tenant) {
  HPVMD_RETURN_IF_ERROR(CheckCount("user ids", tenant.uids_size(), kTenantUidsMax));
  for (const uint32_t uid : tenant.uids()) {
    if (uid == 0) {
      return InvalidArgument("User id 0 is root, which is an administrator; it cannot belong to a tenant.");
    }
    if (uid == std::numeric_limits<uint32_t>::max()) {
      return InvalidArgument("4294967295 is not a user id.");
    }
  }
  if (std::set<uint32_t>(tenant.uids().begin(), tenant.uids().end()).size() !=
      static_cast<size_t>(tenant.uids_size())) {
    return InvalidArgument("A user id is named twice.");
  }
  return absl::OkStatus();
}

Status CheckGids(const v1::Tenant& tenant) {
  HPVMD_RETURN_IF_ERROR(CheckCount("group ids", tenant.gids_size(), kTenantGidsMax));
  for (const uint32_t gid : tenant.gids()) {
    if (gid == 0) {
      return InvalidArgument("Group id 0 is root's; it cannot belong to a tenant.");
    }
    if (gid == std::numeric_limits<uint32_t>::max()) {
      return InvalidArgument("4294967295 is not a group id.");
    }
  }
  if (std::set<uint32_t>(tenant.gids().begin(), tenant.gids().end()).size() !=
      static_cast<size_t>(tenant.gids_size())) {
    return InvalidArgument("A group id is named twice.");
  }
  return absl::OkStatus();
}

Status CheckCertificates(const v1::Tenant& tenant) {
  HPVMD_RETURN_IF_ERROR(CheckCount("certificate names", tenant.certificate_names_size(), kTenantCertificatesMax));
  for (const std::string& name : tenant.certificate_names()) {
    if (name.empty() || name.size() > kNoteBytesMax || !IsPrintable(name)) {
      return InvalidArgument("The certificate name " + Shown(name) + " (" + std::to_string(name.size()) +
                             " bytes) is not 1 to 255 bytes without control characters.");
    }
  }
  const auto& names = tenant.certificate_names();
  if (std::set<std::string>(names.begin(), names.end()).size() != static_cast<size_t>(names.size())) {
    return InvalidArgument("A certificate name is given twice.");
  }
  return absl::OkStatus();
}

}  // namespace

Status CheckNote(std::string_view what, std::string_view note) {
  if (note.size() > kNoteBytesMax || !IsPrintable(note)) {
    return InvalidArgument("The " + std::string(what) + " (" + std::to_string(note.size()) +
                           " bytes) is longer than 255 bytes or has control characters.");
  }
  return absl::OkStatus();
}

Status CheckTenant(const v1::Tenant& tenant) {
  if (!IsTenantName(tenant.name())) {
    return InvalidArgument("The tenant name " + Shown(tenant.name()) +
                           " is not 1 to 63 characters of a-z, 0-9, - and _, a letter first.");
  }
  HPVMD_RETURN_IF_ERROR(CheckNote("reason", tenant.disabled_reason()));
  if (tenant.weight() < 1 || tenant.weight() > kWeightMax) {
    return InvalidArgument("The weight (" + std::to_string(tenant.weight()) + ") is not from 1 to " +
                           std::to_string(kWeightMax) + ".");
  }
  if (tenant.sandbox_level_min() > kSandboxLevelMax) {
    return InvalidArgument("The sandbox level (" + std::to_string(tenant.sandbox_level_min()) +
                           ") is larger than the limit (4).");
  }
  HPVMD_RETURN_IF_ERROR(CheckQuota(tenant));
  HPVMD_RETURN_IF_ERROR(CheckDevices(tenant));
  HPVMD_RETURN_IF_ERROR(CheckUids(tenant));
  HPVMD_RETURN_IF_ERROR(CheckGids(tenant));
  return CheckCertificates(tenant);
}

Status CheckUpdate(const v1::UpdateTenantRequest& update) {
  for (const std::string& name : update.reset_quota()) {
    HPVMD_RETURN_IF_ERROR(CheckQuotaName(name));
    if (update.set_quota().count(name) != 0) {
      return InvalidArgument("The quota of " + name + " is set and reset at once.");
    }
  }
  return absl::OkStatus();
}

void ApplyUpdate(const v1::UpdateTenantRequest& update, v1::Tenant* tenant) {
  if (update.has_disabled()) {
    tenant->set_disabled(update.disabled());
    tenant->set_disabled_reason(update.disabled() ? update.disabled_reason() : "");
  }
  if (update.has_weight()) {
    tenant->set_weight(update.weight());
  }
  for (const auto& [name, limit] : update.set_quota()) {
    (*tenant->mutable_quota())[name] = limit;
  }
  for (const std::string& name : update.reset_quota()) {
    tenant->mutable_quota()->erase(name);
  }
  if (update.has_sandbox_level_min()) {
    tenant->set_sandbox_level_min(update.sandbox_level_min());
  }
  if (update.has_devices()) {
    *tenant->mutable_devices() = update.devices().values();
  }
  if (update.has_uids()) {
    *tenant->mutable_uids() = update.uids().values();
  }
  if (update.has_gids()) {
    *tenant->mutable_gids() = update.gids().values();
  }
  if (update.has_certificate_names()) {
    *tenant->mutable_certificate_names() = update.certificate_names().values();
  }
}

TenantPolicy PolicyOf(const v1::Tenant& tenant, const Config& config) {
  TenantPolicy policy;
  policy.name = tenant.name();
  policy.disabled = tenant.disabled();
  policy.disabled_reason = tenant.disabled_reason();
  policy.weight = tenant.weight();
  policy.limits = DefaultLimits(config);
  for (const auto& [name, limit] : tenant.quota()) {
    if (const std::optional<scheduler::Resource> resource = scheduler::ResourceNamed(name)) {
      policy.limits[static_cast<size_t>(*resource)] = limit;
    }
  }
  policy.sandbox_level_min = std::max(tenant.sandbox_level_min(), static_cast<uint32_t>(config.executor_sandbox_min));
  policy.devices.assign(tenant.devices().begin(), tenant.devices().end());
  return policy;
}

StatusOr<Role> RoleOf(v1::Role role) {
  switch (role) {
    case v1::ROLE_UNSPECIFIED:
    case v1::ROLE_USER:
      return Role::kUser;
    case v1::ROLE_OPERATOR:
      return Role::kOperator;
    case v1::ROLE_ADMIN:
      return Role::kAdmin;
    default:
      return InvalidArgument("The role (" + std::to_string(static_cast<int>(role)) +
                             ") is none of user, operator and admin.");
  }
}

v1::Role ToMessage(Role role) { return static_cast<v1::Role>(role); }

}  // namespace hpvm::server
