// SPDX-License-Identifier: Apache-2.0
// How a launch is cut into parts that each fit a variant's tiles and whole work groups; pure arithmetic.
#ifndef HPVMD_BACKENDS_GPU_PARTS_H_
#define HPVMD_BACKENDS_GPU_PARTS_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/gpu/launch.h"
#include "compiler/api/gpu_code.h"
#include "compiler/api/gpu_target.h"

namespace hpvm::gpu {

// Work items of a group, by dimension.
using GroupShape = std::array<uint32_t, 3>;
using Extent3 = std::array<uint64_t, 3>;

// Groups worth trying for launches with so many dimensions (1..3), the best guess first: a multiple of what runs in
// lockstep along x, of a size that every device takes and that leaves registers to each work item: fewer work items
// where each has a large tile. At most
// kGroupShapesMax, as a candidate's number counts them.
inline constexpr size_t kGroupShapesMax = 4;
std::vector<GroupShape> ShapesFor(const GpuTarget& target, size_t dimensions,
                                  const std::array<uint32_t, 3>& tile = {1, 1, 1});
// 1 + the last dimension with more than one instance.
size_t DimensionsOf(const Extent3& extent);

// What a variant's code bears on a device.
struct GroupLimits {
  uint32_t size = 1;
  std::array<uint32_t, 3> extent{1, 1, 1};
  std::array<uint32_t, 3> count{1, 1, 1};
  bool is_listed = false;  // Each shape is a build of its own: extents come from a short list.
};

// A group for so many work items: as many in all as `wanted` where dimensions are short, and extents that divide the
// dimensions where such are near, so that no further launch is needed for what is left. Every extent at least 1.
GroupShape FitGroup(const Extent3& items, const GroupShape& wanted, const GroupLimits& limits);

// Instances [first, first + count) of a launch.
struct InstanceBox {
  Extent3 first{}, count{};
};

struct CutVariant {
  uint32_t index = 0;  // In GpuCode::variants.
  std::array<uint32_t, 3> tile{1, 1, 1};
  GroupShape fixed{0, 0, 0};  // GpuVariant::group.
  GroupLimits limits;
};

// Instances that do not see each other: `variant` runs as much as its tiles and groups cover, from multiples of them
// on, and `plain`, of one instance a work item, what is left at the sides. Everything is below 2^31; no part where a
// count is 0.
std::vector<Part> CutFreely(const InstanceBox& box, const CutVariant& variant, const CutVariant& plain,
                            const GroupShape& wanted);
// Instances in groups: a partial last group of a dimension is a part of its own. The box begins with a group.
std::vector<Part> CutByGroups(const InstanceBox& box, const GroupShape& group, const CutVariant& variant);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_PARTS_H_
