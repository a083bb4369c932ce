// SPDX-License-Identifier: Apache-2.0
// The kernel with its axes x and y turned: what runs it along x runs the kernel itself along y.
#ifndef HPVMD_COMPILER_PASS_GANG_TURN_AXES_H_
#define HPVMD_COMPILER_PASS_GANG_TURN_AXES_H_

#include <optional>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Instance ids along x become those along y, and the other way round; operations keep their ids. Extents, which are the
// same for all, stay what they are. Nothing where the entry asks for no id along y, or where more than instance_id of a
// constant dimension tells where an instance is: groups, prints, functions that are called.
std::optional<ir::Module> TurnAxes(const ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_TURN_AXES_H_
