// SPDX-License-Identifier: Apache-2.0
// Finds the operations up to which an instance can begin anew, since nobody has seen anything of it.
#ifndef HPVMD_COMPILER_ANALYSIS_BEFORE_EFFECTS_H_
#define HPVMD_COMPILER_ANALYSIS_BEFORE_EFFECTS_H_

#include <vector>

#include "compiler/analysis/words.h"

namespace hpvm::analysis {

// True if others may see what the operation does. Nobody else sees what an instance has on its stack.
bool HasEffect(const ir::Op& op);

// The result, by OpId of the entry, is true where nothing has had an effect on any way to the operation, around loops
// too.
std::vector<bool> FindBeforeEffects(const ir::Module& module);

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_BEFORE_EFFECTS_H_
