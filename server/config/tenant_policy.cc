// SPDX-License-Identifier: Apache-2.0
#include "server/config/tenant_policy.h"

#include <algorithm>

namespace hpvm::server {
namespace {

using scheduler::Resource;
using scheduler::ResourceLimits;

constexpr uint64_t kNanosecondsPerSecond = 1'000'000'000;

uint64_t& At(ResourceLimits& limits, Resource resource) { return limits[static_cast<size_t>(resource)]; }

// 0 means no limit.
uint64_t Stricter(uint64_t a, uint64_t b) { return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b); }

class ConfiguredPolicies final : public TenantPolicies {
 public:
  TenantPolicyRef Find(std::string_view name, const Config& config) const override {
    return DefaultPolicy(name, config);
  }
};

}  // namespace

bool TenantPolicy::MayUse(std::string_view device_id) const {
  if (devices.empty() || device_id == "cpu") {
    return true;
  }
  const std::string_view family = device_id.substr(0, device_id.find(':'));
  return std::any_of(devices.begin(), devices.end(),
                     [&](const std::string& allowed) { return allowed == device_id || allowed == family; });
}

ResourceLimits DefaultLimits(const Config& config) {
  ResourceLimits limits{};
  At(limits, Resource::kDeviceTime) = config.quota_device_seconds_per_hour * kNanosecondsPerSecond;
  At(limits, Resource::kDeviceBytes) = config.quota_device_bytes_max;
  // [limits] bounds buffers, modules and documents separately; this is their sum.
  At(limits, Resource::kHostBytes) =
      Stricter(config.quota_host_bytes_max, config.limits_buffers_bytes_max + 2 * config.limits_stored_bytes_max);
  At(limits, Resource::kDiskBytes) = Stricter(config.quota_disk_bytes_max, config.jobs_stored_bytes_max);
  At(limits, Resource::kCompileTime) = config.quota_compile_seconds_per_hour * kNanosecondsPerSecond;
  At(limits, Resource::kQueuedJobs) = config.jobs_queued_per_tenant_max;
  At(limits, Resource::kRunningJobs) = config.jobs_running_per_tenant_max;
  At(limits, Resource::kModules) = config.quota_modules_max;
  At(limits, Resource::kRequests) = config.quota_requests_per_second;
  At(limits, Resource::kRequestBytes) = config.quota_request_bytes_per_second;
  At(limits, Resource::kJobWait) = config.quota_job_wait_seconds_max * kNanosecondsPerSecond;
  At(limits, Resource::kJobRun) = config.quota_job_run_seconds_max * kNanosecondsPerSecond;
  At(limits, Resource::kJobDeviceTime) = config.quota_job_device_seconds_max * kNanosecondsPerSecond;
  return limits;
}

TenantPolicyRef DefaultPolicy(std::string_view name, const Config& config) {
  TenantPolicy policy;
  policy.name = std::string(name);
  policy.limits = DefaultLimits(config);
  policy.sandbox_level_min = static_cast<uint32_t>(config.executor_sandbox_min);
  return std::make_shared<const TenantPolicy>(std::move(policy));
}

TenantPolicies& OpenPolicies() {
  static ConfiguredPolicies* policies = new ConfiguredPolicies();
  return *policies;
}

}  // namespace hpvm::server
