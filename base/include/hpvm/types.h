// SPDX-License-Identifier: Apache-2.0
// Errors and time, as every interface speaks of them.
#ifndef HPVMD_BASE_INCLUDE_HPVM_TYPES_H_
#define HPVMD_BASE_INCLUDE_HPVM_TYPES_H_

#include <chrono>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hpvm {

// Messages are full sentences; docs/CLIENTS.md says which code means what.
using absl::Status;
using absl::StatusOr;

// Nanoseconds of a monotonic clock whose zero means nothing.
using Time = std::chrono::nanoseconds;
using Duration = std::chrono::nanoseconds;

// No end: later than every time, longer than every wait.
inline constexpr Time kNever = Time::max();

}  // namespace hpvm

#endif  // HPVMD_BASE_INCLUDE_HPVM_TYPES_H_
