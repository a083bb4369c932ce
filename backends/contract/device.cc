// SPDX-License-Identifier: Apache-2.0
#include "backends/contract/device.h"

namespace hpvm {

std::string_view Name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kNull:
      return "null";
    case DeviceKind::kInterp:
      return "interp";
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kGpu:
      return "gpu";
    case DeviceKind::kFpga:
      return "fpga";
  }
  return "unknown";
}

PointState Poll(const TimelinePoint& point, Status* failure) {
  StatusOr<uint64_t> reached = point.timeline->Query();
  if (reached.ok()) {
    return *reached >= point.value ? PointState::kReached : PointState::kPending;
  }
  // The timeline has failed, perhaps after it reached this point; only Wait tells the two apart.
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
