// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/parts.h"

#include <algorithm>
#include <cmath>

namespace hpvm::gpu {
namespace {

uint64_t Product(const GroupShape& group) { return uint64_t{group[0]} * group[1] * group[2]; }

bool HoldsNone(const Extent3& extent) { return extent[0] == 0 || extent[1] == 0 || extent[2] == 0; }

// Returns how much worse groups of this many work items are than groups of `wanted` along a dimension: idle lanes in
// the last 32, rows that begin anywhere in a cache line, distance.
double Badness(uint64_t extent, uint64_t others, uint32_t wanted) {
  const double size = static_cast<double>(extent * others), lanes = std::ceil(size / 32) * 32;
  const double ratio = static_cast<double>(std::max<uint64_t>(extent, wanted)) / std::min<uint64_t>(extent, wanted);
  return lanes / size * (0.8 + 0.2 * ratio) * (extent % 8 == 0 ? 1 : 1.1);
}

// Returns the best extent near `wanted` that divides `items`, at most `most`; min(wanted, most) if there is none. The
// group has `others` work items in each layer across.
uint32_t FitExtent(uint64_t items, uint32_t wanted, uint64_t others, uint64_t most) {
  wanted = static_cast<uint32_t>(std::max<uint64_t>(std::min<uint64_t>(wanted, most), 1));
  if (items <= wanted) {
    return static_cast<uint32_t>(items);
  }
  if (items % wanted == 0) {
    return wanted;
  }
  uint32_t best = wanted;
  double least = 1e9;
  for (uint32_t extent = wanted / 2 + 1; extent <= std::min<uint64_t>(most, wanted + wanted / 2); ++extent) {
    if (static_cast<uint32_t>(items) % extent == 0 && Badness(extent, others, wanted) < least) {
      best = extent;
      least = Badness(extent, others, wanted);
    }
  }
  return best;
}

// Returns the largest extent of a short list that is at most `most`, which is at least 1.
uint32_t Listed(uint64_t most, uint32_t wanted) {
  for (const uint32_t extent : {256u, 32u, 8u}) {
    if (wanted <= most && wanted >= extent) {
      return wanted;
    }
    if (extent <= most) {
      return extent;
    }
  }
  return wanted <= most ? wanted : 1;
}

// A box of work items of one variant; `first` in instances.
struct Box {
  Extent3 first{}, items{};
};

// Returns the regions beside `whole`, a box of work items that begins where `box` does: along x over all of y and z,
// along y beside the whole, along z above it.
std::array<Box, 3> Beside(const Box& box, const Extent3& whole, const std::array<uint32_t, 3>& tile) {
  std::array<Box, 3> rest = {box, box, box};
  for (size_t d = 0; d < 3; ++d) {
    rest[d].first[d] += whole[d] * tile[d];
    rest[d].items[d] -= whole[d];
    for (size_t inner = 0; inner < d; ++inner) {
      rest[d].items[inner] = whole[inner];
    }
  }
  return rest;
}

class Cutter {
 public:
  explicit Cutter(const GroupShape& wanted) : wanted_(wanted) {}

  // Cuts the box into groups of the best shape, and its remainder into further groups.
  void Items(const Box& box, const CutVariant& variant) {
    if (HoldsNone(box.items)) {
      return;
    }
    const GroupShape group = variant.fixed[0] != 0 ? variant.fixed : FitGroup(box.items, wanted_, variant.limits);
    Extent3 whole{};
    for (size_t d = 0; d < 3; ++d) {
      whole[d] = box.items[d] / group[d] * group[d];
    }
    Groups({box.first, whole}, group, variant);
    for (const Box& rest : Beside(box, whole, variant.tile)) {
      Items(rest, variant);
    }
  }

  // Cuts a box of whole groups into as many parts as the device's limit of groups requires.
  void Groups(const Box& box, const GroupShape& group, const CutVariant& variant) {
    if (HoldsNone(box.items)) {
      return;
    }
    for (size_t d = 0; d < 3; ++d) {
      const uint64_t most = uint64_t{variant.limits.count[d]} * group[d];
      if (box.items[d] <= most) {
        continue;
      }
      for (uint64_t at = 0; at < box.items[d]; at += most) {
        Box piece = box;
        piece.first[d] += at * variant.tile[d];
        piece.items[d] = std::min(most, box.items[d] - at);
        Groups(piece, group, variant);
      }
      return;
    }
    Part part{variant.index, {}, {}, group};
    for (size_t d = 0; d < 3; ++d) {
      part.first[d] = static_cast<uint32_t>(box.first[d]);
      part.groups[d] = static_cast<uint32_t>(box.items[d] / group[d]);
    }
    parts_.push_back(part);
  }

  std::vector<Part> Take() { return std::move(parts_); }

 private:
  const GroupShape wanted_;
  std::vector<Part> parts_;
};

}  // namespace

size_t DimensionsOf(const Extent3& extent) { return extent[2] > 1 ? 3 : extent[1] > 1 ? 2 : 1; }

std::vector<GroupShape> ShapesFor(const GpuTarget& target, size_t dimensions, const std::array<uint32_t, 3>& tile) {
  if (target.is_processor) {
    return {{64, 1, 1}};
  }
  // Matrices: rows and columns of a group share their loads.
  constexpr uint32_t kLarge = 16;
  if (dimensions == 2 && tile[0] * tile[1] >= kLarge) {
    return {{32, 4, 1}, {16, 16, 1}, {64, 2, 1}, {16, 8, 1}};
  }
  const uint32_t row = std::clamp<uint32_t>(target.subgroup_size, 32, 64);
  const uint32_t rows = 256 / row;
  switch (dimensions) {
    case 1:
      // The last is for few instances, so that more cores get some.
      return {{256, 1, 1}, {128, 1, 1}, {512, 1, 1}, {64, 1, 1}};
    case 2:
      return {{row, rows, 1}, {16, 16, 1}, {128, 2, 1}, {row / 4, rows * 4, 1}};
    default:
      return {{row, rows, 1}, {row, rows / 2, 2}, {row / 2, rows / 2, 4}, {128, 2, 1}};
  }
}

GroupShape FitGroup(const Extent3& items, const GroupShape& wanted, const GroupLimits& limits) {
  const uint64_t budget = std::min<uint64_t>(Product(wanted), limits.size);
  GroupShape group{1, 1, 1};
  uint64_t product = 1;
  const auto grow = [&](size_t d, uint64_t most) {
    most = std::min<uint64_t>({most, items[d], limits.extent[d], budget / (product / group[d])});
    most = limits.is_listed ? Listed(most, wanted[d]) : most;
    product = product / group[d] * most;
    group[d] = static_cast<uint32_t>(most);
  };
  for (size_t d = 0; d < 3; ++d) {
    grow(d, wanted[d]);
  }
  for (size_t d = 0; d < 3; ++d) {
    grow(d, budget);
  }
  if (limits.is_listed) {
    return group;
  }
  const uint64_t most = std::min<uint64_t>(budget + budget / 4, limits.size);
  for (size_t d = 0; d < 3; ++d) {
    const uint64_t others = Product(group) / group[d];
    group[d] = FitExtent(items[d], group[d], others, std::min<uint64_t>(limits.extent[d], most / others));
  }
  return group;
}

std::vector<Part> CutFreely(const InstanceBox& box, const CutVariant& variant, const CutVariant& plain,
                            const GroupShape& wanted) {
  Cutter cutter(wanted);
  Box core{box.first, {}};
  for (size_t d = 0; d < 3; ++d) {
    // Code for tiles may assume their alignment, staged code also that of its groups.
    const uint64_t grain = uint64_t{variant.tile[d]} * (variant.fixed[0] != 0 ? variant.fixed[d] : 1);
    const uint64_t begin = (box.first[d] + grain - 1) / grain * grain, end = box.first[d] + box.count[d];
    core.first[d] = begin;
    core.items[d] = begin < end ? (end - begin) / grain * (grain / variant.tile[d]) : 0;
  }
  if (HoldsNone(core.items)) {
    cutter.Items({box.first, box.count}, plain);
    return cutter.Take();
  }
  cutter.Items(core, variant);
  // Along x over all of y and z, along y beside the core, along z above and below it.
  Box rest{box.first, box.count};
  for (size_t d = 0; d < 3; ++d) {
    const uint64_t begin = core.first[d], covered = core.items[d] * variant.tile[d];
    Box low = rest, high = rest;
    low.items[d] = begin - rest.first[d];
    high.first[d] = begin + covered;
    high.items[d] = rest.first[d] + rest.items[d] - high.first[d];
    cutter.Items(low, plain);
    cutter.Items(high, plain);
    rest.first[d] = begin;
    rest.items[d] = covered;
  }
  return cutter.Take();
}

std::vector<Part> CutByGroups(const InstanceBox& box, const GroupShape& group, const CutVariant& variant) {
  Cutter cutter(group);
  for (uint32_t corner = 0; corner < 8; ++corner) {
    Box piece;
    GroupShape shape = group;
    for (size_t d = 0; d < 3; ++d) {
      const uint64_t left = box.count[d] % group[d];
      const bool is_last = (corner >> d & 1) != 0;
      piece.first[d] = box.first[d] + (is_last ? box.count[d] - left : 0);
      piece.items[d] = is_last ? left : box.count[d] - left;
      shape[d] = is_last ? static_cast<uint32_t>(std::max<uint64_t>(left, 1)) : group[d];
    }
    cutter.Groups(piece, shape, variant);
  }
  return cutter.Take();
}

}  // namespace hpvm::gpu
