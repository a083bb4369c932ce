// SPDX-License-Identifier: Apache-2.0
// Where an instance can begin anew, since nobody has seen anything of it.
#ifndef HPVMD_COMPILER_ANALYSIS_BEFORE_EFFECTS_H_
#define HPVMD_COMPILER_ANALYSIS_BEFORE_EFFECTS_H_

#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm {

// Whether others may see what the operation does: what an instance has on its stack nobody does.
bool HasEffect(const ir::Op& op);

// By OpId of the entry: on no way to the operation, around loops too, has anything had an effect.
std::vector<bool> FindBeforeEffects(const ir::Module& module);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_ANALYSIS_BEFORE_EFFECTS_H_
