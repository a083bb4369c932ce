// SPDX-License-Identifier: Apache-2.0
// Size of the pinned memory in which a lane of a device stages copies, and the number of helper threads.
#ifndef HPVMD_BACKENDS_GPU_STAGING_SHAPE_H_
#define HPVMD_BACKENDS_GPU_STAGING_SHAPE_H_

#include <cstddef>
#include <cstdint>

#include "base/limits.h"

namespace hpvm::gpu {

// Number of helper threads that a host of this size can spare for a device; none on small hosts.
uint32_t UsualHelpers();

// Devices use the default, unless a test gives another.
struct StagingShape {
  // At least StagingRing::kSharedBytesMax. Large enough that a transfer of a slot takes longer than submitting it to
  // the driver.
  uint64_t slot_bytes = 8 * limits::kMiB;
  // At least 2, at most kSlotsMax: some are filled or emptied while the device uses others.
  size_t slots = 6;
  static constexpr size_t kSlotsMax = 16;
  uint32_t helpers = UsualHelpers();
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_STAGING_SHAPE_H_
