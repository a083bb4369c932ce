// SPDX-License-Identifier: Apache-2.0
// Loops whose iterations wait for few loads each: the driver's compiler is asked to write several iterations out, so
// that their loads are under way together. Sums keep their order.
#ifndef HPVMD_COMPILER_BACK_GPU_LOADS_AHEAD_H_
#define HPVMD_COMPILER_BACK_GPU_LOADS_AHEAD_H_

#include <cstdint>
#include <functional>

#include "compiler/ir/ir.h"

namespace hpvm::gpu {

// How many iterations of a loop are to be written out one behind the other; 1: the driver decides. More than one for
// loops that end in one place, without loops, barriers and atomics in them, with loads of buffers of which none is
// checked: behind a check, or another end, loads wait for it. `omits_check`: of an access, by OpId.
uint32_t IterationsTogether(const ir::Function& function, ir::OpId loop,
                            const std::function<bool(ir::OpId)>& omits_check);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_LOADS_AHEAD_H_
