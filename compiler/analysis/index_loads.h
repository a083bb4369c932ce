// SPDX-License-Identifier: Apache-2.0
// Finds the loads whose values determine the target of a memory access.
//
// Memory that other instances write may have changed when it is read again, so a back end's compiler must not reload
// such a value between its bounds check and its use: the checked value would differ from the used one. For other
// values a second read yields wrong numbers at worst, as any race does (docs/KERNELS.md, S70). Back ends therefore
// emit these loads so that all uses see one value, by LLVM's `freeze`, by an identity that is opaque to an OpenCL
// driver, or by SPIR-V's Volatile. All other loads remain unchanged.
#ifndef HPVMD_COMPILER_ANALYSIS_INDEX_LOADS_H_
#define HPVMD_COMPILER_ANALYSIS_INDEX_LOADS_H_

#include <vector>

#include "compiler/analysis/words.h"

namespace hpvm::analysis {

// Returns, by ValueId of the function, true for results of loads that reach, on any path through the function, an
// address, a size, a table index, an operand of an operation that may trap, or a condition; and for loaded values that
// are passed to other functions, returned to them, or kept in a global. Floats that are only compared are excluded.
std::vector<bool> FindIndexLoads(const ir::Module& module, ir::FunctionId function);

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_INDEX_LOADS_H_
