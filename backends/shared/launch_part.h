// SPDX-License-Identifier: Apache-2.0
// Determines which part of a dispatch runs: extents that are known only at launch, and parts of a launch.
#ifndef HPVMD_BACKENDS_SHARED_LAUNCH_PART_H_
#define HPVMD_BACKENDS_SHARED_LAUNCH_PART_H_

#include <array>
#include <cstdint>

#include "backends/contract/device.h"
#include "base/status.h"

namespace hpvm::backends {

// Instances with from <= id < to of a launch of `extent`.
struct LaunchPart {
  std::array<uint64_t, 3> extent{}, from{}, to{};
  bool is_whole = true;
  bool is_empty = false;
};

// Returns true when all of the given extent runs, as in nearly every dispatch.
inline bool IsPlain(const DispatchCommand& dispatch) {
  bool is_plain = true;
  for (size_t d = 0; d < 3; ++d) {
    is_plain &= dispatch.extent_from[d].slot == kNoSlot && dispatch.first[d] == 0 && dispatch.count[d] == kAllInstances;
  }
  return is_plain;
}

// Reads DispatchCommand::extent_from from host memory. Errors: kAborted when there are more instances than the extent
// allows; kInternal for a part that does not begin at a whole group, or a source that is not an integer in a bound
// buffer.
StatusOr<LaunchPart> PartOf(const DispatchCommand& dispatch, const Submission& submission);

}  // namespace hpvm::backends

#endif  // HPVMD_BACKENDS_SHARED_LAUNCH_PART_H_
