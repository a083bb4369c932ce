// SPDX-License-Identifier: Apache-2.0
// What of a device a submission uses.
#ifndef HPVMD_BASE_LANE_H_
#define HPVMD_BASE_LANE_H_

#include <cstddef>
#include <cstdint>

namespace hpvm {

// Submissions of one lane of a device start in the order in which they were submitted; those of different lanes only
// as their wait points say.
enum class Lane : uint8_t { kCompute, kUpload, kDownload };
inline constexpr size_t kLanes = 3;

}  // namespace hpvm

#endif  // HPVMD_BASE_LANE_H_
