// SPDX-License-Identifier: Apache-2.0
// The passes over the kernel IR that a back end's module goes through.
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
  // Loops in loops over the stack are written out, too: the driver's compiler takes long functions well. PoCL takes
  // minutes for what NVIDIA's compiles in seconds.
  bool unrolls_nests = false;
  bool fast_math = false;  // The node's. GPUs.
};

// Prepares a verified module for the CPU back end. The module's meaning stays the same, and it still verifies.
Status RunCpuPipeline(ir::Module& module, const PipelineOptions& options = {});
// For the GPU back ends: the same, but calls are inlined whatever their size, as those devices have no stack.
Status RunGpuPipeline(ir::Module& module, const PipelineOptions& options = {});

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_PIPELINE_H_
