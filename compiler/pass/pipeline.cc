// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/pipeline.h"

#include "compiler/ir/verify/verify.h"
#include "compiler/pass/inline_calls.h"
#include "compiler/pass/memory/promote_stack.h"
#include "compiler/pass/memory/resolve_provenance.h"
#include "compiler/pass/memory/unroll_loops.h"
#include "compiler/pass/or_to_add.h"
#include "compiler/pass/remove_barriers.h"
#include "compiler/pass/remove_dead.h"

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

struct Pass {
  const char* name;
  Status (*run)(ir::Module&);
};

Status RunPasses(ir::Module& module, const std::vector<Pass>& passes, const PipelineOptions& options) {
  for (const Pass& pass : passes) {
    HPVMD_RETURN_IF_ERROR(pass.run(module));
    if (options.verify_each) {
      HPVMD_RETURN_IF_ERROR(CheckAfter(module, pass.name));
    }
  }
  // Behind ResolveProvenance, which tells accesses to buffers from those to group memory.
  HPVMD_RETURN_IF_ERROR(RemoveBarriers(module, options.report));
  if (options.verify_each) {
    HPVMD_RETURN_IF_ERROR(CheckAfter(module, "RemoveBarriers"));
  }
  return options.verify_each ? absl::OkStatus() : CheckAfter(module, "pipeline");
}

}  // namespace

// Each pass leaves less to look through for those behind it: functions first, then merges, then sums, then addresses.
Status RunCpuPipeline(ir::Module& module, const PipelineOptions& options) {
  return RunPasses(module,
                   {{"InlineCalls", InlineCalls},
                    {"RemoveDead", RemoveDead},
                    {"OrToAdd", OrToAdd},
                    {"ResolveProvenance", ResolveProvenance},
                    {"PromoteStack", PromoteStack},
                    {"UnrollLoops", UnrollLoops}},
                   options);
}

Status RunGpuPipeline(ir::Module& module, const PipelineOptions& options) {
  return RunPasses(module,
                   {{"InlineAllCalls", InlineAllCalls},
                    {"RemoveDead", RemoveDead},
                    {"OrToAdd", OrToAdd},
                    {"ResolveProvenance", ResolveProvenance}},
                   options);
}

}  // namespace hpvm
