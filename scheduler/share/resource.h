// SPDX-License-Identifier: Apache-2.0
// Resources that have quotas. There is one table (resource.cc): a new resource is one line there and the code that
// takes it.
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
  kDeviceTime,    // Spent: nanoseconds on devices, summed over devices.
  kDeviceBytes,   // Held.
  kHostBytes,     // Held: buffers, tensors in transit, modules and documents.
  kDiskBytes,     // Held: jobs.
  kCompileTime,   // Spent: processor nanoseconds of compilers.
  kQueuedJobs,    // Held. Waiting runs are not jobs.
  kRunningJobs,   // Held; Runs count as jobs.
  kModules,       // Held.
  kRequests,      // Spent.
  kRequestBytes,  // Spent.
  // Limits of each job; no amount is taken from these.
  kJobWait,        // Nanoseconds from when the job could start to its first start.
  kJobRun,         // Nanoseconds of an attempt.
  kJobDeviceTime,  // kDeviceTime of an attempt.
};
inline constexpr size_t kResourceCount = 13;

enum class ResourceUnit : uint8_t { kCount, kBytes, kNanoseconds };

struct ResourceFacts {
  Resource resource;
  std::string_view name;  // The name used by clients, such as "device-seconds".
  ResourceUnit unit;
  // Spent resources are earned evenly: the limit is the amount earned in this time, and as much may be saved (twice as
  // much when the period is a second). 0: the resource is held and returned.
  Duration period;
};
const std::array<ResourceFacts, kResourceCount>& Resources();
const ResourceFacts& FactsOf(Resource resource);
std::optional<Resource> ResourceNamed(std::string_view name);

// Limits by resource; 0: none.
using ResourceLimits = std::array<uint64_t, kResourceCount>;

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_SHARE_RESOURCE_H_
