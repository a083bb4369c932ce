// SPDX-License-Identifier: Apache-2.0
// Loads whose value decides where an access goes.
//
// Memory that others write may hold something else the next time it is read, so a back end's compiler must not read
// such a value again between its check and its use: what was checked would not be what is used. For other values a
// second reading gives wrong numbers at worst, as any race does (docs/KERNELS.md, S70). So back ends emit these loads
// such that all uses see one value: LLVM's `freeze`, an identity that an OpenCL driver cannot see through, SPIR-V's
// Volatile. All others stay as they are.
#ifndef HPVMD_COMPILER_ANALYSIS_INDEX_LOADS_H_
#define HPVMD_COMPILER_ANALYSIS_INDEX_LOADS_H_

#include <vector>

#include "compiler/analysis/words.h"

namespace hpvm::analysis {

// By ValueId of the function: results of loads that reach, by whatever way through the function, an address, a size, a
// table's index, an operand of an operation that may trap, or a condition; and what is passed to other functions,
// returned to them, or kept in a global. Floats that are only compared are not among them.
std::vector<bool> FindIndexLoads(const ir::Module& module, ir::FunctionId function);

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_INDEX_LOADS_H_
