// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/pipeline.h"

#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"
#include "compiler/pass/resolve_provenance.h"

namespace hpvm {
namespace {

// A pass that breaks the IR is our bug; the printed module is what whoever mends it needs.
Status CheckAfter(const ir::Module& module, const char* pass) {
  Diagnostics faults = ir::Verify(module);
  if (!HasErrors(faults)) {
    return absl::OkStatus();
  }
  return Internal("The pass " + std::string(pass) + " broke the kernel IR: " + ToString(faults));
}

}  // namespace

Status RunCpuPipeline(ir::Module& module, const PipelineOptions& options) {
  HPVMD_RETURN_IF_ERROR(ResolveProvenance(module));
  if (options.verify_each) {
    HPVMD_RETURN_IF_ERROR(CheckAfter(module, "ResolveProvenance"));
  }
  return options.verify_each ? absl::OkStatus() : CheckAfter(module, "pipeline");
}

}  // namespace hpvm
