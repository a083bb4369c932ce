// SPDX-License-Identifier: Apache-2.0
// Compiles a kernel's text to an artifact that a device can load. Builds without LLVM have no images.
#include <optional>

#include "compiler/back/back_ends.h"
#include "compiler/ir/text/text.h"
#include "compiler/pass/pipeline.h"
#include "tests/audit.h"
#include "tests/conformance/conformance.h"

#ifdef HPVMD_HAVE_LLVM_BACK
#include "compiler/back/llvm/llvm_back.h"
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

// Returns what an emitter made, or why it failed.
StatusOr<Artifact> Made(std::optional<Artifact> artifact, const Diagnostics& diagnostics) {
  if (artifact.has_value()) {
    return *std::move(artifact);
  }
  std::string all;
  for (const Diagnostic& diagnostic : diagnostics) {
    all += (all.empty() ? "" : "\n") + diagnostic.message;
  }
  return FailedPrecondition(all);
}

}  // namespace

bool CanCompile(ArtifactKind kind) {
#ifdef HPVMD_HAVE_LLVM_BACK
  if (kind == ArtifactKind::kCpuImage) {
    return true;
  }
#endif
  return kind == ArtifactKind::kInterp || gpu::FindBackEnd(kind) != nullptr;
}

StatusOr<Artifact> CompileModule(ir::Module module, const Device& device) {
#ifdef HPVMD_HAVE_LLVM_BACK
  if (device.artifact_kind() == ArtifactKind::kCpuImage) {
    cpu::InitializeLlvm();
    HPVMD_ASSIGN_OR_RETURN(const cpu::CpuTarget target, cpu::HostCpuTarget());
    return cpu::EmitCpuImage(module, target, {.audits_proofs = TestsAuditProofs()});
  }
#endif
  const gpu::BackEnd* const back = gpu::FindBackEnd(device.artifact_kind());
  if (back == nullptr) {
    return Unimplemented("This build has no compiler for the device.");
  }
  HPVMD_RETURN_IF_ERROR(pass::RunGpuPipeline(module, {.verify_each = true}));
  Diagnostics diagnostics;
  return Made(back->emit(module, device.info().gpu, {.audits_proofs = TestsAuditProofs()}, diagnostics), diagnostics);
}

StatusOr<Artifact> CompileText(std::string_view text, const Device& device) {
  HPVMD_ASSIGN_OR_RETURN(ir::Module module, ir::ParseModule(text));
  if (device.artifact_kind() == ArtifactKind::kInterp) {
    return ForInterp(module, text);
  }
  return CompileModule(std::move(module), device);
}

}  // namespace hpvm::conformance
