// SPDX-License-Identifier: Apache-2.0
// Cuts a launch into parts that each fit a variant's tiles and whole work groups; pure arithmetic.
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

// Number of work items of a group, by dimension.
using GroupShape = std::array<uint32_t, 3>;
using Extent3 = std::array<uint64_t, 3>;

// Returns group shapes worth trying for launches of `dimensions` dimensions (1..3), the best guess first: multiples of
// the SIMD width along x, of a size that every device takes and that leaves registers to each work item, so fewer work
// items for large tiles. At most kGroupShapesMax, the number that fits in a candidate's index.
inline constexpr size_t kGroupShapesMax = 4;
std::vector<GroupShape> ShapesFor(const GpuTarget& target, size_t dimensions,
                                  const std::array<uint32_t, 3>& tile = {1, 1, 1});
// Returns 1 + the index of the last dimension with more than one instance.
size_t DimensionsOf(const Extent3& extent);

// Limits of a variant's code on a device.
struct GroupLimits {
  uint32_t size = 1;
  std::array<uint32_t, 3> extent{1, 1, 1};
  std::array<uint32_t, 3> count{1, 1, 1};
  bool is_listed = false;  // Each shape is a separate build: extents come from a short list.
};

// Returns a group for `items` work items: about as many in total as `wanted` when dimensions are short, with extents
// that divide the dimensions when such are near, so that no further launch is needed for a remainder. Every extent is
// at least 1.
GroupShape FitGroup(const Extent3& items, const GroupShape& wanted, const GroupLimits& limits);

// Instances [first, first + count) of a launch.
struct InstanceBox {
  Extent3 first{}, count{};
};

struct CutVariant {
  uint32_t index = 0;  // Index in GpuCode::variants.
  std::array<uint32_t, 3> tile{1, 1, 1};
  GroupShape fixed{0, 0, 0};  // GpuVariant::group.
  GroupLimits limits;
};

// Cuts a box of independent instances: `variant` runs as much as its tiles and groups cover, from multiples of them on,
// and `plain`, of one instance per work item, runs the remainders at the sides. Everything is below 2^31; no part when
// a count is 0.
std::vector<Part> CutFreely(const InstanceBox& box, const CutVariant& variant, const CutVariant& plain,
                            const GroupShape& wanted);
// Cuts a box of instances in groups: a partial last group of a dimension becomes a separate part. The box begins with a
// group.
std::vector<Part> CutByGroups(const InstanceBox& box, const GroupShape& group, const CutVariant& variant);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_PARTS_H_
