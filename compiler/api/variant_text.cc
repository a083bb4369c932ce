// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/variant_text.h"

namespace hpvm {
namespace {

std::string CpuText(const CpuVariant& variant) {
  if (variant.unit == CpuVariant::Unit::kGroup) {
    return "groups, " + std::to_string(variant.lanes) + " lanes";
  }
  const bool is_single = variant.unit == CpuVariant::Unit::kInstance || variant.lanes * variant.columns == 1;
  return is_single && variant.rows == 1
             ? "one at a time"
             : "tiles of " + std::to_string(variant.width()) + " x " + std::to_string(variant.height()) +
                   (variant.is_for_edges ? " for edges" : "");
}

std::string GpuText(const GpuVariant& variant) {
  const auto& [x, y, z] = variant.tile;
  return variant.tile == std::array<uint32_t, 3>{1, 1, 1}
             ? "one instance per work item"
             : std::to_string(x) + " x " + std::to_string(y) + " x " + std::to_string(z) + " instances per work item";
}

std::string UncheckedText(const GpuVariant& variant) {
  return variant.needs_words ? ", unchecked where its indices are known" : variant.needs_proof ? ", unchecked" : "";
}

}  // namespace

std::string VariantText(const Artifact& artifact, uint32_t index) {
  if (artifact.kind == ArtifactKind::kInterp) {
    return "interpreter";
  }
  if (IsGpuCode(artifact.kind)) {
    if (index >= artifact.gpu.variants.size()) {
      return "";
    }
    const GpuVariant& variant = artifact.gpu.variants[index];
    return artifact.gpu.is_native ? "as written" : GpuText(variant) + UncheckedText(variant);
  }
  if (artifact.kind != ArtifactKind::kCpuImage || index > artifact.variants.size()) {
    return "";
  }
  const CpuVariant variant = index < artifact.variants.size() ? artifact.variants[index] : CpuVariant();
  return CpuText(variant) + (variant.needs_proof ? ", unchecked" : "");
}

}  // namespace hpvm
