// SPDX-License-Identifier: Apache-2.0
// What tenants have quotas of. One table (resource.cc): a new resource is one line there and a place that takes it.
#ifndef HPVMD_SCHEDULER_SHARE_RESOURCE_H_
#define HPVMD_SCHEDULER_SHARE_RESOURCE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.h"

namespace hpvm::scheduler {

enum class Resource : uint8_t {
  kDeviceTime,    // Spent: nanoseconds on devices, all of them together.
  kDeviceBytes,   // Held.
  kHostBytes,     // Held: buffers, tensors on their way, modules and documents.
  kDiskBytes,     // Held: jobs.
  kCompileTime,   // Spent: processor nanoseconds of compilers.
  kQueuedJobs,    // Held. Runs that wait are not jobs.
  kRunningJobs,   // Held; Runs count as jobs.
  kModules,       // Held.
  kRequests,      // Spent.
  kRequestBytes,  // Spent.
};
inline constexpr size_t kResourceCount = 10;

enum class ResourceUnit : uint8_t { kCount, kBytes, kNanoseconds };

struct ResourceFacts {
  Resource resource;
  std::string_view name;  // "device-seconds", as clients write it.
  ResourceUnit unit;
  // What is spent is earned evenly: the limit is what is earned in this time, and as much may be saved (twice as much
  // of what has a period of a second). 0: it is held, and given back.
  Duration period;
};
const std::array<ResourceFacts, kResourceCount>& Resources();
const ResourceFacts& FactsOf(Resource resource);
std::optional<Resource> ResourceNamed(std::string_view name);

// Limits by resource; 0: none.
using ResourceLimits = std::array<uint64_t, kResourceCount>;

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_SHARE_RESOURCE_H_
