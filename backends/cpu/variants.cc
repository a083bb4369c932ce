// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/variants.h"

#include <numeric>

#include "base/limits.h"
#include "base/status.h"

namespace hpvm::cpu {
namespace {

using backends::Extent;

// This many slices let samples of several variants alternate, and leave enough for the pool to share.
constexpr uint64_t kSlicesEnough = 32;

bool SameShape(const CpuVariant& a, const CpuVariant& b) {
  return a.unit == b.unit && a.lanes == b.lanes && a.columns == b.columns && a.rows == b.rows &&
         a.is_along_y == b.is_along_y && a.is_for_edges == b.is_for_edges;
}

// Lanes beyond a row's end are wasted; fewer lanes than fit cost more vectors.
bool FitsBetter(uint32_t lanes, uint32_t other, uint64_t row) {
  const bool fits = lanes <= row, other_fits = other <= row;
  return fits != other_fits ? fits : fits ? lanes > other : lanes < other;
}

}  // namespace

std::vector<Variant> VariantsOf(const Artifact& artifact, std::span<const ir::CpuEntry> entries) {
  HPVMD_CHECK(entries.size() == artifact.variants.size() + 1 && artifact.variants.size() <= limits::kCpuVariantsMax);
  const bool has_groups = artifact.uses_barrier || artifact.uses_group_memory;
  const CpuVariant::Unit wanted = has_groups ? CpuVariant::Unit::kGroup : CpuVariant::Unit::kTile;
  std::vector<Variant> variants;
  for (size_t i = 0; i < artifact.variants.size(); ++i) {
    variants.push_back({artifact.variants[i], entries[i], artifact.variants[i].unit == wanted});
  }
  variants.push_back({CpuVariant{}, entries.back(), true});
  return variants;
}

uint64_t GroupValueBytes(const CpuVariant& shape, const Extent& group) {
  // At most kGroupInstancesMax instances and 64 lanes per row, each of 64 KiB: far from overflow.
  const uint64_t lanes = CeilDivide(group[0], shape.lanes) * shape.lanes * group[1] * group[2];
  const uint64_t bytes = shape.value_bytes * lanes;
  return bytes <= limits::kGroupValueBytesMax ? bytes : ~uint64_t{0};
}

bool MayRun(const Variant& variant, bool is_proven, const Extent& group) {
  return variant.is_usable && (is_proven || !variant.shape.needs_proof) &&
         (variant.shape.unit != CpuVariant::Unit::kGroup || GroupValueBytes(variant.shape, group) != ~uint64_t{0});
}

backends::VariantMask AllowedVariants(std::span<const Variant> variants, bool is_proven, const Extent& extent,
                                      const Extent& group) {
  const auto is_for_narrow = [&](const Variant& variant) {
    return variant.shape.is_along_y && 2 * extent[0] <= variant.shape.lanes && extent[0] < extent[1];
  };
  const bool is_narrow = std::any_of(variants.begin(), variants.end(), [&](const Variant& variant) {
    return is_for_narrow(variant) && MayRun(variant, is_proven, group);
  });
  const auto may_run = [&](const Variant& variant) {
    const bool fits = variant.shape.is_along_y ? is_for_narrow(variant) : variant.shape.lanes == 1 || !is_narrow;
    return fits && MayRun(variant, is_proven, group);
  };
  const auto is_beaten_by = [&](const CpuVariant& shape, const CpuVariant& other) {
    return (SameShape(shape, other) && other.needs_proof && !shape.needs_proof) ||
           (shape.unit == CpuVariant::Unit::kGroup && other.unit == shape.unit &&
            other.needs_proof == shape.needs_proof && FitsBetter(other.lanes, shape.lanes, group[0]));
  };
  backends::VariantMask mask = 0;
  for (size_t i = 0; i < variants.size(); ++i) {
    const bool is_beaten = std::any_of(variants.begin(), variants.end(), [&](const Variant& other) {
      return may_run(other) && is_beaten_by(variants[i].shape, other.shape);
    });
    mask |= may_run(variants[i]) && !is_beaten ? backends::VariantMask{1} << i : 0;
  }
  return mask;
}

Extent StepOf(std::span<const Variant> variants, backends::VariantMask mask) {
  Extent step{1, 1, 1};
  for (size_t i = 0; i < variants.size(); ++i) {
    if ((mask >> i & 1) != 0) {
      step[0] = std::lcm(step[0], variants[i].width());
      step[1] = std::lcm(step[1], variants[i].height());
    }
  }
  return step;
}

BoxCut CutBox(const Box& box, const Extent& extent, const Extent& step) {
  BoxCut cut{box, {box, box, box, box}};
  for (size_t d = 0; d < 3; ++d) {
    uint64_t& from = cut.core.from[d];
    uint64_t& to = cut.core.to[d];
    if (const uint64_t beyond = from % step[d]; beyond != 0) {
      from += std::min(step[d] - beyond, to - from);
    }
    if (to != extent[d]) {
      to = std::max(from, to - to % step[d]);
    }
  }
  // Whole rows above and below, then the remainder on both sides. Tiles are one instance deep.
  cut.edges[0].to[1] = cut.core.from[1];
  cut.edges[1].from[1] = cut.core.to[1];
  for (Box* side : {&cut.edges[2], &cut.edges[3]}) {
    side->from[1] = cut.core.from[1];
    side->to[1] = cut.core.to[1];
  }
  cut.edges[2].to[0] = cut.core.from[0];
  cut.edges[3].from[0] = cut.core.to[0];
  return cut;
}

Slices::Slices(const Box& core, std::span<const Variant> variants, backends::VariantMask mask)
    : core_(core), step_(StepOf(variants, mask)) {
  // From the outermost dimension: slices along z or y keep rows along x together.
  count_ = 0;
  for (size_t d = 3; d-- > 0 && count_ < kSlicesEnough;) {
    const uint64_t count = CeilDivide(core_.to[d] - core_.from[d], step_[d]);
    if (count > count_) {
      axis_ = d;
      count_ = count;
    }
  }
}

Box Slices::BoxOf(uint64_t begin, uint64_t end) const {
  Box box = core_;
  box.from[axis_] = core_.from[axis_] + begin * step_[axis_];
  box.to[axis_] = end == count_ ? core_.to[axis_] : core_.from[axis_] + end * step_[axis_];
  return box;
}

Slices::Cut Slices::CornerOf(uint64_t slice) const {
  const Box whole = BoxOf(slice, slice + 1);
  Cut cut;
  cut.corner = whole;
  for (size_t d = 0; d < 3; ++d) {
    cut.corner.to[d] = std::min(whole.to[d], whole.from[d] + step_[d]);
  }
  cut.rest = {whole, whole, whole};
  cut.rest[0].from[0] = cut.corner.to[0];  // Beside the corner: the rest of its rows and planes.
  cut.rest[0].to[1] = cut.corner.to[1];
  cut.rest[0].to[2] = cut.corner.to[2];
  cut.rest[1].from[1] = cut.corner.to[1];  // The remaining rows of its planes.
  cut.rest[1].to[2] = cut.corner.to[2];
  cut.rest[2].from[2] = cut.corner.to[2];  // The remaining planes.
  return cut;
}

}  // namespace hpvm::cpu
