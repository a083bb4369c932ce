// SPDX-License-Identifier: Apache-2.0
// Numbers of 64 bits that loops need again in every iteration. NVIDIA's compiler for OpenCL makes a constant of f64
// anew at each use, in two moves: in a loop of sines that is a fifth of all it does. A constant of which it knows no
// bit stays in registers. (Its compiler for Vulkan gains nothing by that.)
#ifndef HPVMD_COMPILER_BACK_GPU_LOOP_CONSTANTS_H_
#define HPVMD_COMPILER_BACK_GPU_LOOP_CONSTANTS_H_

#include <cstdint>
#include <vector>

#include "compiler/ir/words.h"

namespace hpvm::gpu {

using namespace ir::words;

// A register pair each. Fewer than the least are not worth their registers.
inline constexpr size_t kLoopConstantsMax = 16, kLoopConstantsMin = 4;

// By ValueId: the f64 constants that operations ask for in every iteration of a loop, of not more than
// kLoopConstantsMax numbers; those that are met first. What stands behind a jump out of its construct, or in a branch,
// is done in some iterations only.
std::vector<bool> FindLoopConstants(const ir::Function& function);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_LOOP_CONSTANTS_H_
