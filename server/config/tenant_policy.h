// SPDX-License-Identifier: Apache-2.0
// TenantPolicy is what the daemon grants one tenant. Immutable: a change makes a new object.
#ifndef HPVMD_SERVER_CONFIG_TENANT_POLICY_H_
#define HPVMD_SERVER_CONFIG_TENANT_POLICY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/share/resource.h"
#include "server/config/config.h"

namespace hpvm::server {

inline constexpr uint32_t kWeightDefault = 100, kWeightMax = 10'000;

struct TenantPolicy {
  std::string name;
  bool disabled = false;
  std::string disabled_reason;
  uint32_t weight = kWeightDefault;
  scheduler::ResourceLimits limits{};  // The configuration's defaults where the tenant has no limit of its own.
  uint32_t sandbox_level_min = 0;      // At least the configuration's minimum.
  std::vector<std::string> devices;    // Families or ids; all when empty.
  // Always true for the CPU, because executors begin with it.
  bool MayUse(std::string_view device_id) const;
};
using TenantPolicyRef = std::shared_ptr<const TenantPolicy>;

// Returns [quota], and the older [limits] and [jobs] keys, as limits by resource.
scheduler::ResourceLimits DefaultLimits(const Config& config);
TenantPolicyRef DefaultPolicy(std::string_view name, const Config& config);

// Source of policies. Thread-safe; never blocks on a disk.
class TenantPolicies {
 public:
  virtual ~TenantPolicies() = default;
  // Returns null when there is no such tenant, and none may be made.
  virtual TenantPolicyRef Find(std::string_view name, const Config& config) const = 0;
};

// Gives every name the configuration's defaults: for tests, and where callers are trusted.
TenantPolicies& OpenPolicies();

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CONFIG_TENANT_POLICY_H_
