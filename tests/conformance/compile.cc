// SPDX-License-Identifier: Apache-2.0
// From a kernel's text to what a device loads. Builds without LLVM have no images.
#include "compiler/ir/text.h"
#include "tests/conformance/conformance.h"

#ifdef HPVMD_HAVE_LLVM_BACK
#include "compiler/back/llvm/llvm_back.h"
#endif

namespace hpvm::conformance {

bool CanCompile(ArtifactKind kind) {
#ifdef HPVMD_HAVE_LLVM_BACK
  return true;
#else
  return kind == ArtifactKind::kInterp;
#endif
}

StatusOr<Artifact> CompileText(std::string_view text, ArtifactKind kind) {
  HPVMD_ASSIGN_OR_RETURN(ir::Module module, ir::ParseModule(text));
  if (kind == ArtifactKind::kCpuImage) {
#ifdef HPVMD_HAVE_LLVM_BACK
    InitializeLlvm();
    HPVMD_ASSIGN_OR_RETURN(const CpuTarget target, HostCpuTarget());
    return EmitCpuImage(module, target);
#else
    return Unimplemented("This build has no back end for CPU images.");
#endif
  }
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

}  // namespace hpvm::conformance
