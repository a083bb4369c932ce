// SPDX-License-Identifier: Apache-2.0
// The passes over the kernel IR that prepare a module for a back end.
#ifndef HPVMD_COMPILER_PASS_PIPELINE_H_
#define HPVMD_COMPILER_PASS_PIPELINE_H_

#include "base/status.h"
#include "compiler/api/report.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

struct PipelineOptions {
  // Verify after each pass instead of once at the end.
  bool verify_each = false;
  KernelReport* report = nullptr;  // May be null.
  // Also unrolls nested loops over the stack; for drivers whose compilers handle long functions well. PoCL takes
  // minutes for code that NVIDIA's compiler processes in seconds.
  bool unrolls_nests = false;
  bool fast_math = false;  // The node's setting; GPUs only.
};

// Prepares a verified module for the CPU back end. The module's meaning stays the same, and it still verifies.
Status RunCpuPipeline(ir::Module& module, const PipelineOptions& options = {});
// Prepares a module for the GPU back ends; calls are inlined up to larger limits, because those devices have no call
// stack.
Status RunGpuPipeline(ir::Module& module, const PipelineOptions& options = {});

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_PIPELINE_H_
