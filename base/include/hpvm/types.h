// SPDX-License-Identifier: Apache-2.0
// Errors and time, as used in every interface.
#ifndef HPVMD_BASE_INCLUDE_HPVM_TYPES_H_
#define HPVMD_BASE_INCLUDE_HPVM_TYPES_H_

#include <chrono>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hpvm {

// Messages are full sentences; docs/CLIENTS.md lists the meaning of each code.
using absl::Status;
using absl::StatusOr;

// Nanoseconds of a monotonic clock with an arbitrary zero.
using Time = std::chrono::nanoseconds;
using Duration = std::chrono::nanoseconds;

// Infinity: later than every time, longer than every wait.
inline constexpr Time kNever = Time::max();

}  // namespace hpvm

#endif  // HPVMD_BASE_INCLUDE_HPVM_TYPES_H_
