// SPDX-License-Identifier: Apache-2.0
// Lays out the parts of module memory and of the state that a kernel reaches: constant arrays, and parts of which each
// work item has a copy.
#ifndef HPVMD_COMPILER_BACK_GPU_OWN_MEMORY_H_
#define HPVMD_COMPILER_BACK_GPU_OWN_MEMORY_H_

#include <vector>

#include "base/diagnostic.h"
#include "compiler/analysis/value_ranges.h"
#include "compiler/back/gpu/gpu_plan.h"
#include "compiler/ir/ir.h"

namespace hpvm::gpu {

// Fills in reach, module_memory, state, private_bytes, constant_bytes and uses_flat. Memory that cannot be laid out,
// or is too large, gives an error.
void PlanOwnMemory(const ir::Module& module, const std::vector<analysis::ValueRange>& ranges, GpuPlan& plan,
                   Diagnostics& diagnostics);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_OWN_MEMORY_H_
