// SPDX-License-Identifier: Apache-2.0
// TurnAxes swaps the axes x and y of a kernel: running the result along x runs the kernel itself along y.
#ifndef HPVMD_COMPILER_PASS_GANG_TURN_AXES_H_
#define HPVMD_COMPILER_PASS_GANG_TURN_AXES_H_

#include <optional>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Instance ids along x become those along y, and vice versa; operations keep their ids. Extents, which are uniform,
// remain unchanged. Returns nothing if the entry queries no id along y, or if an instance's position is visible by
// other means than instance_id of a constant dimension: groups, prints, called functions.
std::optional<ir::Module> TurnAxes(const ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_GANG_TURN_AXES_H_
