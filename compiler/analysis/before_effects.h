// SPDX-License-Identifier: Apache-2.0
// Finds the operations up to which an instance (work item) can restart, because no effect of it is visible yet.
#ifndef HPVMD_COMPILER_ANALYSIS_BEFORE_EFFECTS_H_
#define HPVMD_COMPILER_ANALYSIS_BEFORE_EFFECTS_H_

#include <vector>

#include "compiler/analysis/words.h"

namespace hpvm::analysis {

// Returns true if other instances may observe an effect of the operation. An instance's stack is private, so accesses
// to it do not count.
bool HasEffect(const ir::Op& op);

// The result, by OpId of the entry, is true where no path to the operation, including paths around loops, contains an
// effect.
std::vector<bool> FindBeforeEffects(const ir::Module& module);

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_BEFORE_EFFECTS_H_
