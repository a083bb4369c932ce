// SPDX-License-Identifier: Apache-2.0
// The variants in which an image can run a launch, the unit of each, and the units that make up a part of a launch.
#ifndef HPVMD_BACKENDS_CPU_VARIANTS_H_
#define HPVMD_BACKENDS_CPU_VARIANTS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/shared/launch_class.h"
#include "compiler/api/artifact.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {

// Numbered as in Artifact::variants, followed by one instance at a time, which every image supports.
struct Variant {
  CpuVariant shape;
  ir::CpuEntry entry = nullptr;  // Borrowed from the image.
  bool is_usable = true;         // Tiles when instances do not interact, groups when they do.

  uint64_t width() const { return shape.width(); }
  uint64_t height() const { return shape.height(); }
  // Returns true if tiles count along y first.
  bool counts_along_y() const { return height() > 1; }
};

// `entries` are those of the artifact's variants; the last is the image's own.
std::vector<Variant> VariantsOf(const Artifact& artifact, std::span<const ir::CpuEntry> entries);

// Returns the bytes of group_values needed by a group of this size; ~0 when they exceed limits::kGroupValueBytesMax.
uint64_t GroupValueBytes(const CpuVariant& shape, const backends::Extent& group);

// Returns the variants that a launch allows: those that need a proof only if `is_proven`; those that do not only when
// no better one is equivalent; groups that are not too large, with as many lanes as their rows fill; lanes along y
// instead of x when `extent`, that of the running part, has no row that fills half of the lanes. One instance at a time
// is always allowed.
backends::VariantMask AllowedVariants(std::span<const Variant> variants, bool is_proven, const backends::Extent& extent,
                                      const backends::Extent& group);
// Returns true if the variant can run such a launch, quickly or not.
bool MayRun(const Variant& variant, bool is_proven, const backends::Extent& group);

inline uint64_t CeilDivide(uint64_t a, uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// Returns the number of units of instances or tiles in a launch (compiler/ir/cpu_abi.h defines their order).
inline uint64_t UnitCount(const Variant& variant, const backends::Extent& extent) {
  return CeilDivide(extent[0], variant.width()) * CeilDivide(extent[1], variant.height()) * extent[2];
}

// A part of a launch: instances with from <= id < to.
struct Box {
  backends::Extent from{}, to{};
  uint64_t instances() const { return (to[0] - from[0]) * (to[1] - from[1]) * (to[2] - from[2]); }
};

// A box divided into a core of whole tiles of each of some variants, and ragged edges. Either may be empty.
struct BoxCut {
  Box core;
  std::array<Box, 4> edges;
};
// `step` is a whole number of tiles of each variant.
BoxCut CutBox(const Box& box, const backends::Extent& extent, const backends::Extent& step);
// Returns the smallest whole number of tiles of each variant in `mask`.
backends::Extent StepOf(std::span<const Variant> variants, backends::VariantMask mask);

// Calls `run(begin, end)` for the units of instances or tiles that make up the box, in as few ranges as possible. The
// box begins at whole tiles and ends at whole tiles or at the launch's end. Stops when `run` returns false, and returns
// its last result.
template <typename F>
bool ForEachRange(const Variant& variant, const backends::Extent& extent, const Box& box, F run) {
  const uint64_t tiles[2] = {CeilDivide(extent[0], variant.width()), CeilDivide(extent[1], variant.height())};
  const uint64_t from[2] = {box.from[0] / variant.width(), box.from[1] / variant.height()};
  const uint64_t to[2] = {CeilDivide(box.to[0], variant.width()), CeilDivide(box.to[1], variant.height())};
  // One row: x runs fastest, otherwise y.
  const size_t inner = variant.counts_along_y() ? 1 : 0, outer = 1 - inner;
  const bool is_whole_inner = from[inner] == 0 && to[inner] == tiles[inner];
  const bool is_whole_plane = is_whole_inner && from[outer] == 0 && to[outer] == tiles[outer];
  const uint64_t plane = tiles[0] * tiles[1];
  if (is_whole_plane) {
    return run(box.from[2] * plane, box.to[2] * plane);
  }
  for (uint64_t z = box.from[2]; z < box.to[2]; ++z) {
    if (is_whole_inner) {
      if (!run(z * plane + from[outer] * tiles[inner], z * plane + to[outer] * tiles[inner])) {
        return false;
      }
      continue;
    }
    for (uint64_t o = from[outer]; o < to[outer]; ++o) {
      const uint64_t first = z * plane + o * tiles[inner];
      if (!run(first + from[inner], first + to[inner])) {
        return false;
      }
    }
  }
  return true;
}

// Slices divides a launch, or the core of a part of one, along one dimension into slices that each variant can run by
// itself: during measurement, slices of one launch go to different variants.
class Slices {
 public:
  // `variants` are tiles or instances; the product of the extents is below 2^63 and not 0. `core` comes from CutBox and
  // is not empty.
  Slices(const Box& core, std::span<const Variant> variants, backends::VariantMask mask);
  Slices(const backends::Extent& extent, std::span<const Variant> variants, backends::VariantMask mask)
      : Slices(Box{{}, extent}, variants, mask) {}

  uint64_t count() const { return count_; }
  // Returns slices [begin, end) as one box.
  Box BoxOf(uint64_t begin, uint64_t end) const;
  // The smallest part at the beginning of a slice that each variant can run, and the rest of the slice beside it, after
  // it and behind it.
  struct Cut {
    Box corner;
    std::array<Box, 3> rest;  // Some may have no instances.
  };
  Cut CornerOf(uint64_t slice) const;

 private:
  Box core_;
  backends::Extent step_;  // Whole tiles of each variant.
  size_t axis_ = 0;
  uint64_t count_ = 1;
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_VARIANTS_H_
