// SPDX-License-Identifier: Apache-2.0
// The part of a device that a submission uses.
#ifndef HPVMD_BASE_LANE_H_
#define HPVMD_BASE_LANE_H_

#include <cstddef>
#include <cstdint>

namespace hpvm {

// Submissions of one lane of a device start in the order of submission; those of different lanes are ordered only by
// their wait points.
enum class Lane : uint8_t { kCompute, kUpload, kDownload };
inline constexpr size_t kLanes = 3;

}  // namespace hpvm

#endif  // HPVMD_BASE_LANE_H_
