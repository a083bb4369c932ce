// SPDX-License-Identifier: Apache-2.0
#include "scheduler/share/resource.h"

#include <algorithm>

namespace hpvm::scheduler {
namespace {

constexpr Duration kHeld{0}, kSecond = std::chrono::seconds(1), kHour = std::chrono::hours(1);

constexpr std::array<ResourceFacts, kResourceCount> kResources = {{
    {Resource::kDeviceTime, "device-seconds", ResourceUnit::kNanoseconds, kHour},
    {Resource::kDeviceBytes, "device-bytes", ResourceUnit::kBytes, kHeld},
    {Resource::kHostBytes, "host-bytes", ResourceUnit::kBytes, kHeld},
    {Resource::kDiskBytes, "disk-bytes", ResourceUnit::kBytes, kHeld},
    {Resource::kCompileTime, "compile-seconds", ResourceUnit::kNanoseconds, kHour},
    {Resource::kQueuedJobs, "queued-jobs", ResourceUnit::kCount, kHeld},
    {Resource::kRunningJobs, "running-jobs", ResourceUnit::kCount, kHeld},
    {Resource::kModules, "modules", ResourceUnit::kCount, kHeld},
    {Resource::kRequests, "requests", ResourceUnit::kCount, kSecond},
    {Resource::kRequestBytes, "request-bytes", ResourceUnit::kBytes, kSecond},
    {Resource::kJobWait, "job-wait-seconds", ResourceUnit::kNanoseconds, kHeld},
    {Resource::kJobRun, "job-run-seconds", ResourceUnit::kNanoseconds, kHeld},
    {Resource::kJobDeviceTime, "job-device-seconds", ResourceUnit::kNanoseconds, kHeld},
}};

constexpr bool InOrder() {
  for (size_t i = 0; i < kResourceCount; ++i) {
    if (static_cast<size_t>(kResources[i].resource) != i) {
      return false;
    }
  }
  return true;
}
static_assert(InOrder());

}  // namespace

const std::array<ResourceFacts, kResourceCount>& Resources() { return kResources; }

const ResourceFacts& FactsOf(Resource resource) { return kResources[static_cast<size_t>(resource)]; }

std::optional<Resource> ResourceNamed(std::string_view name) {
  const auto found = std::find_if(kResources.begin(), kResources.end(),
                                  [&](const ResourceFacts& facts) { return facts.name == name; });
  return found == kResources.end() ? std::nullopt : std::optional(found->resource);
}

}  // namespace hpvm::scheduler
