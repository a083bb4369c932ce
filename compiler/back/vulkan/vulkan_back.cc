// SPDX-License-Identifier: Apache-2.0
// The variants of a kernel in one SPIR-V module: checked, unchecked where launches can have a proof, and tiles.
#include "compiler/back/vulkan/vulkan_back.h"

#include <algorithm>
#include <cstring>

#include "compiler/back/gpu/float_sums.h"
#include "compiler/back/gpu/gpu_plan.h"
#include "compiler/back/vulkan/emitter.h"
#include "compiler/back/vulkan/spirv_tools.h"
#include "compiler/ir/launch.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::vulkan {
namespace {

using gpu::Trust;

// The validator's limit on ids.
constexpr uint32_t kIdsMax = 4'194'303;
// NVIDIA's driver refuses pipelines with 64 KiB of private memory, and lavapipe takes time quadratic in private
// elements: minutes for 64 KiB.
constexpr uint64_t kPrivateBytesMax = 16 * 1024;

class Variants {
 public:
  Variants(const ir::Module& module, const gpu::GpuPlan& plan, const GpuTarget& target, const gpu::GpuOptions& options)
      : plan_(plan), target_(target), options_(options), emitter_(module, target) {}

  // Adds the form's variant; before it one for buffers at multiples of 16 bytes, if `has_room` and some accesses gain
  // by that. A tile that gains has only the aligned variant.
  Status Add(const gpu::Form& plain, const pass::GpuTile& tile, Trust trust, bool has_room) {
    const auto improved = gpu::ImproveLoads(plain, plan_, trust, target_);
    const gpu::Form form = improved ? gpu::Form(*improved) : plain;
    const bool is_tile = tile != pass::GpuTile{};
    if (form.HasWideAccesses() && (is_tile || has_room)) {
      HPVMD_RETURN_IF_ERROR(AddForm(form, tile, trust, /*is_aligned=*/true));
      if (is_tile) {
        return absl::OkStatus();
      }
    }
    return AddForm(form, tile, trust, /*is_aligned=*/false);
  }

  size_t size() const { return variants_.size(); }

  // The common part of all variants is known only when the last one is emitted.
  StatusOr<std::vector<uint32_t>> Finish(GpuCode& code) {
    GpuVariant common;
    std::vector<uint32_t> words = emitter_.Finish(common);
    if (emitter_.w.bound() > kIdsMax) {
      return absl::Status(Unimplemented("The kernel is too large for a SPIR-V module: it takes " +
                                        std::to_string(emitter_.w.bound()) + " ids, the limit is " +
                                        std::to_string(kIdsMax) + "."));
    }
    for (GpuVariant& variant : variants_) {
      variant.arguments = common.arguments;
      variant.push_bytes = common.push_bytes;
      variant.group_constant = common.group_constant;
      variant.facts_set = common.facts_set;
      variant.facts_binding = common.facts_binding;
    }
    code.format = GpuFormat::kSpirvShader;
    code.variants = std::move(variants_);
    code.private_bytes = plan_.private_bytes;
    return words;
  }

 private:
  Status AddForm(const gpu::Form& form, const pass::GpuTile& tile, Trust trust, bool is_aligned) {
    const pass::CoarseModule* coarse = form.coarse;
    VariantOptions options;
    options.trust = trust;
    options.fast_math = options_.fast_math;
    options.audits_proofs = options_.audits_proofs;
    options.needs_alignment = is_aligned;
    options.tile = tile.size;
    options.coarse = coarse;
    GpuVariant variant;
    variant.entry = "kernel" + std::to_string(variants_.size());
    variant.tile = tile.size;
    variant.needs_proof = trust != Trust::kNothing;
    variant.needs_words = trust == Trust::kWords;
    variant.needs_alignment = options.needs_alignment;
    if (coarse != nullptr) {
      variant.factors = coarse->factors;
      variant.group = coarse->group;
    }
    KernelEmitter kernel(emitter_, *form.module, *form.plan, options);
    HPVMD_RETURN_IF_ERROR(kernel.Emit(variant.entry, &variant.can_trap));
    variant.local_bytes = form.plan->local_bytes + kernel.own_group_bytes();
    variants_.push_back(std::move(variant));
    return absl::OkStatus();
  }

  const gpu::GpuPlan& plan_;
  const GpuTarget& target_;
  const gpu::GpuOptions& options_;
  ModuleEmitter emitter_;
  std::vector<GpuVariant> variants_;
};

void Fail(const ir::Module& module, const Status& status, Diagnostics& diagnostics) {
  diagnostics.push_back({Severity::kError, "module \"" + module.name + "\"", std::nullopt, Message(status)});
}

// Adds tiles, the best guess first, leaving out those that cannot be made.
Status AddTiles(const ir::Module& module, const gpu::GpuPlan& original, const GpuTarget& target,
                const gpu::GpuOptions& options, Variants& variants) {
  std::vector<pass::GpuTile> tiles = options.tiles;
  if (options.chooses_tiles) {
    tiles = pass::ChooseTiles(module, target, options.report);
  }
  size_t made = 0;
  for (const pass::GpuTile& tile : tiles) {
    if (made == gpu::TilesMax(original)) {
      break;
    }
    const StatusOr<pass::CoarseModule> coarse = pass::Coarsen(module, tile);
    if (!coarse.ok()) {
      if (options.report != nullptr) {
        options.report->Add(KernelRemark::Kind::kTile, 0, Message(coarse.status()));
      }
      continue;
    }
    Diagnostics faults;
    const gpu::GpuPlan plan = gpu::PlanCoarse(*coarse, original, target, faults);
    if (HasErrors(faults)) {
      continue;
    }
    const gpu::Form form(coarse->module, plan, &*coarse);
    if (!original.bounds.accesses.empty()) {
      HPVMD_RETURN_IF_ERROR(variants.Add(form, tile, Trust::kLaunch, true));
    }
    // Checks would cost more than a staged form gains.
    if (!tile.is_staged) {
      HPVMD_RETURN_IF_ERROR(variants.Add(form, tile, Trust::kNothing, true));
    }
    ++made;
  }
  return absl::OkStatus();
}

GpuTarget H200() {
  GpuTarget target = gpu::CommonH200();
  target.exact_divide = target.keeps_denormals = false;  // As backends/vulkan reports it.
  target.exact_fma = true;
  target.buffer_bytes_max = (uint64_t{1} << 32) - 1;
  target.push_bytes_max = 256;
  target.api_version = 13;
  return target;
}

}  // namespace

std::optional<Artifact> EmitVulkan(const ir::Module& module, const GpuTarget& target, const gpu::GpuOptions& options,
                                   Diagnostics& diagnostics) {
  const gpu::GpuPlan plan = gpu::PlanGpu(module, target, diagnostics);
  if (HasErrors(diagnostics)) {
    return std::nullopt;
  }
  if (plan.private_bytes > kPrivateBytesMax) {
    Fail(module,
         Unimplemented("The private memory of each instance of the kernel (" + std::to_string(plan.private_bytes) +
                       " bytes) is larger than the limit of Vulkan drivers (" + std::to_string(kPrivateBytesMax) +
                       " bytes)."),
         diagnostics);
    return std::nullopt;
  }
  if (options.report != nullptr) {
    const auto form = [&](const ir::Op& op, bool is_group) {
      return FloatSumAt(module, op, target, is_group, options.fast_math);
    };
    gpu::ReportFloatSums(module, plan, form, gpu::FindSumPartners(module, plan, target, options.fast_math),
                         *options.report);
  }
  Variants variants(module, plan, target, options);
  Status emitted = AddTiles(module, plan, target, options, variants);
  if (emitted.ok()) {
    const auto write = [&](const gpu::Form& form, Trust trust, bool has_room) {
      return variants.Add(form, {}, trust, has_room);
    };
    emitted = gpu::WriteSingles(module, plan, target, options.report, variants.size(), write);
  }
  Artifact artifact = DescribeModule(module);
  StatusOr<std::vector<uint32_t>> words = std::vector<uint32_t>{};
  if (emitted.ok()) {
    words = variants.Finish(artifact.gpu);
    emitted = words.status();
  }
  if (emitted.ok()) {
    emitted = ValidateSpirv(*words, target.api_version);
  }
  if (!emitted.ok()) {
    Fail(module, emitted, diagnostics);
    return std::nullopt;
  }
  artifact.kind = ArtifactKind::kVulkan;
  artifact.bounds = plan.bounds;
  artifact.fast_math = options.fast_math;
  artifact.code.resize(words->size() * 4);
  std::memcpy(artifact.code.data(), words->data(), artifact.code.size());
  return artifact;
}

const gpu::BackEnd kVulkanBack = {.target = ArtifactKind::kVulkan,
                                  .emit = EmitVulkan,
                                  .h200 = H200,
                                  .probe_name = "kWrapVulkan",
                                  .probe_version = 12};

}  // namespace hpvm::vulkan
