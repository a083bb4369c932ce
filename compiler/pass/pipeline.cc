// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/pipeline.h"

#include "compiler/ir/verify/verify.h"
#include "compiler/pass/hoist_reciprocals.h"
#include "compiler/pass/inline_calls.h"
#include "compiler/pass/memory/expand_places.h"
#include "compiler/pass/memory/promote_stack.h"
#include "compiler/pass/memory/resolve_provenance.h"
#include "compiler/pass/memory/share_offsets.h"
#include "compiler/pass/memory/stack_values.h"
#include "compiler/pass/memory/unroll_loops.h"
#include "compiler/pass/or_to_add.h"
#include "compiler/pass/remove_barriers.h"
#include "compiler/pass/remove_dead.h"

namespace hpvm::pass {
namespace {

// Reports a pass that breaks the IR as an internal error, with the verifier's diagnostics.
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
  // Runs after ResolveProvenance, which distinguishes accesses to buffers from those to group memory.
  HPVMD_RETURN_IF_ERROR(RemoveBarriers(module, options.report));
  if (options.verify_each) {
    HPVMD_RETURN_IF_ERROR(CheckAfter(module, "RemoveBarriers"));
  }
  return options.verify_each ? absl::OkStatus() : CheckAfter(module, "pipeline");
}

// Turns stack words at constant places into values, if the frame is known.
Status MakeStackValues(ir::Module& module, bool expands) {
  if (expands && ExpandPlaces(module)) {
    HPVMD_RETURN_IF_ERROR(RemoveDead(module));
  }
  return StackValues(module) ? RemoveDead(module) : absl::OkStatus();
}

// Limits of unrolling loops over the stack, and of turning the stack into values.
struct StackLimits {
  UnrollLimits unrolled{};
  UnrollLimits unrolled_plain = kUnrollPlain;  // For kernels compiled without optimisation.
  bool expands = false;                        // Small arrays that are indexed at run time become values, too.
};

// Turns words of the stack into values, and its arrays into memory of a separate space.
Status FindStack(ir::Module& module, const StackLimits& limits) {
  if (PromoteStack(module)) {
    if (!module.stack_frame.has_value()) {
      return absl::OkStatus();
    }
    HPVMD_RETURN_IF_ERROR(UnrollLoops(module, limits.unrolled));
    HPVMD_RETURN_IF_ERROR(RemoveDead(module));
    return MakeStackValues(module, limits.expands);
  }
  // Unoptimised code keeps pointers and counters on the stack, too. The targets of accesses through them are known
  // only after these have become values.
  ir::Module values = module;
  if (!module.stack_pointer.has_value()) {
    return absl::OkStatus();
  }
  const std::vector<StackBytes> assumed = AssumeStackValues(values);
  if (assumed.empty()) {
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(RemoveDead(values));
  HPVMD_RETURN_IF_ERROR(OrToAdd(values));
  HPVMD_RETURN_IF_ERROR(ResolveProvenance(values));
  if (!PromoteStack(values)) {
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(UnrollLoops(values, limits.unrolled_plain));
  HPVMD_RETURN_IF_ERROR(RemoveDead(values));
  if (!AvoidsStack(values, assumed)) {
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(MakeStackValues(values, limits.expands));
  module = std::move(values);
  return absl::OkStatus();
}

Status KnowStack(ir::Module& module) { return FindStack(module, {}); }

// For back ends without a stack space: a stack that does not dissolve completely stays in module memory
// (compiler/back/gpu/own_memory.h).
Status DissolveStackWithin(ir::Module& module, const UnrollLimits& limits) {
  ir::Module values = module;
  HPVMD_RETURN_IF_ERROR(FindStack(values, {.unrolled = limits, .unrolled_plain = limits, .expands = true}));
  if (!values.stack_frame.has_value()) {
    module = std::move(values);
  }
  return absl::OkStatus();
}
Status DissolveStack(ir::Module& module) { return DissolveStackWithin(module, kUnrollWhole); }
// Finds no stack left if DissolveStack has succeeded.
Status DissolveNests(ir::Module& module) { return DissolveStackWithin(module, kUnrollNests); }

}  // namespace

// Each pass leaves less code for the following ones: functions first, then merges, then sums, then addresses.
Status RunCpuPipeline(ir::Module& module, const PipelineOptions& options) {
  return RunPasses(module,
                   {{"InlineCalls", InlineCalls},
                    {"RemoveDead", RemoveDead},
                    {"OrToAdd", OrToAdd},
                    {"ResolveProvenance", ResolveProvenance},
                    {"KnowStack", MayKeepFrame(module) ? KnowStack : DissolveStack}},
                   options);
}

Status RunGpuPipeline(ir::Module& module, const PipelineOptions& options) {
  std::vector<Pass> passes = {{"InlineAllCalls", InlineAllCalls},
                              {"RemoveDead", RemoveDead},
                              {"OrToAdd", OrToAdd},
                              {"ResolveProvenance", ResolveProvenance},
                              {"DissolveStack", DissolveStack}};
  if (options.unrolls_nests) {
    passes.push_back({"DissolveNests", DissolveNests});
  }
  if (options.fast_math) {
    passes.push_back({"HoistReciprocals", HoistReciprocals});
  }
  passes.push_back({"ShareOffsets", ShareOffsets});
  passes.push_back({"RemoveDead", RemoveDead});
  return RunPasses(module, passes, options);
}

}  // namespace hpvm::pass
