// SPDX-License-Identifier: Apache-2.0
#include "backends/contract/device.h"

#include <array>

namespace hpvm {

std::string_view Name(DeviceKind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"null", "interp", "cpu", "gpu", "fpga"};
  const auto index = static_cast<size_t>(kind);
  return index < kNames.size() ? kNames[index] : "unknown";
}

PointState Poll(const TimelinePoint& point, Status* failure) {
  StatusOr<uint64_t> reached = point.timeline->Query();
  if (reached.ok()) {
    return *reached >= point.value ? PointState::kReached : PointState::kPending;
  }
  // The timeline has failed, perhaps after it reached this point; only Wait can tell.
  Status status = point.timeline->Wait(point.value, Time::zero());
  if (status.ok()) {
    return PointState::kReached;
  }
  if (failure != nullptr) {
    *failure = std::move(status);
  }
  return PointState::kFailed;
}

}  // namespace hpvm
