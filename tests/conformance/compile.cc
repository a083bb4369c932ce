// SPDX-License-Identifier: Apache-2.0
// From a kernel's text to what a device loads. Builds without LLVM have no images, those without an emitter no programs
// for its devices.
#include <optional>

#include "compiler/ir/text/text.h"
#include "tests/audit.h"
#include "tests/conformance/conformance.h"

#ifdef HPVMD_HAVE_LLVM_BACK
#include "compiler/back/llvm/llvm_back.h"
#endif
#if defined(HPVMD_HAVE_OPENCL_BACK) || defined(HPVMD_HAVE_VULKAN_BACK)
#include "compiler/pass/pipeline.h"
#endif
#ifdef HPVMD_HAVE_OPENCL_BACK
#include "compiler/back/opencl/opencl_back.h"
#endif
#ifdef HPVMD_HAVE_VULKAN_BACK
#include "compiler/back/vulkan/vulkan_back.h"
#endif

namespace hpvm::conformance {
namespace {

Artifact ForInterp(const ir::Module& module, std::string_view text) {
  Artifact artifact;
  artifact.kind = ArtifactKind::kInterp;
  artifact.module_name = module.name;
  artifact.entry = module.function(module.entry).name;
  artifact.params = module.params;
  artifact.is_memory64 = module.is_memory64;
  artifact.uses_barrier = module.uses_barrier;
  artifact.uses_group_memory = module.uses_group_memory;
  artifact.memory_bytes = module.memory_bytes;
  artifact.memory_bytes_max = module.memory_bytes_max;
  artifact.code.assign(text.begin(), text.end());
  return artifact;
}

#if defined(HPVMD_HAVE_OPENCL_BACK) || defined(HPVMD_HAVE_VULKAN_BACK)
// What an emitter made, or why it did not.
[[maybe_unused]] StatusOr<Artifact> Made(std::optional<Artifact> artifact, const Diagnostics& diagnostics) {
  if (artifact.has_value()) {
    return *std::move(artifact);
  }
  std::string all;
  for (const Diagnostic& diagnostic : diagnostics) {
    all += (all.empty() ? "" : "\n") + diagnostic.message;
  }
  return FailedPrecondition(all);
}
#endif

}  // namespace

bool CanCompile(ArtifactKind kind) {
  switch (kind) {
    case ArtifactKind::kInterp:
      return true;
#ifdef HPVMD_HAVE_LLVM_BACK
    case ArtifactKind::kCpuImage:
      return true;
#endif
#ifdef HPVMD_HAVE_OPENCL_BACK
    case ArtifactKind::kOpenCl:
      return true;
#endif
#ifdef HPVMD_HAVE_VULKAN_BACK
    case ArtifactKind::kVulkan:
      return true;
#endif
    default:
      return false;
  }
}

StatusOr<Artifact> CompileModule(ir::Module module, const Device& device) {
  switch (device.artifact_kind()) {
#ifdef HPVMD_HAVE_LLVM_BACK
    case ArtifactKind::kCpuImage: {
      InitializeLlvm();
      HPVMD_ASSIGN_OR_RETURN(const CpuTarget target, HostCpuTarget());
      return EmitCpuImage(module, target, {.audits_proofs = TestsAuditProofs()});
    }
#endif
#ifdef HPVMD_HAVE_OPENCL_BACK
    case ArtifactKind::kOpenCl: {
      HPVMD_RETURN_IF_ERROR(RunGpuPipeline(module, {.verify_each = true}));
      Diagnostics diagnostics;
      return Made(EmitOpenCl(module, device.info().gpu, {.audits_proofs = TestsAuditProofs()}, diagnostics),
                  diagnostics);
    }
#endif
#ifdef HPVMD_HAVE_VULKAN_BACK
    case ArtifactKind::kVulkan: {
      HPVMD_RETURN_IF_ERROR(RunGpuPipeline(module, {.verify_each = true}));
      Diagnostics diagnostics;
      return Made(EmitVulkan(module, device.info().gpu, {.audits_proofs = TestsAuditProofs()}, diagnostics),
                  diagnostics);
    }
#endif
    default:
      return Unimplemented("This build has no compiler for the device.");
  }
}

StatusOr<Artifact> CompileText(std::string_view text, const Device& device) {
  HPVMD_ASSIGN_OR_RETURN(ir::Module module, ir::ParseModule(text));
  if (device.artifact_kind() == ArtifactKind::kInterp) {
    return ForInterp(module, text);
  }
  return CompileModule(std::move(module), device);
}

}  // namespace hpvm::conformance
