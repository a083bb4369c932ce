// SPDX-License-Identifier: Apache-2.0
// The size of the pinned memory that a lane of a device stages copies in, and the number of threads that help.
#ifndef HPVMD_BACKENDS_GPU_STAGING_SHAPE_H_
#define HPVMD_BACKENDS_GPU_STAGING_SHAPE_H_

#include <cstddef>
#include <cstdint>

#include "base/limits.h"

namespace hpvm::gpu {

// As many helpers as a host of so many processors can spare for a device, none on small ones.
uint32_t UsualHelpers();

// Devices have the usual one, unless a test gives another.
struct StagingShape {
  // At least StagingRing::kSharedBytesMax. Large enough that a transfer of a slot outlasts what handing it to the
  // driver costs.
  uint64_t slot_bytes = 8 * limits::kMiB;
  // At least 2, at most kSlotsMax: some are filled or emptied while the device has others.
  size_t slots = 6;
  static constexpr size_t kSlotsMax = 16;
  uint32_t helpers = UsualHelpers();
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_STAGING_SHAPE_H_
