// SPDX-License-Identifier: Apache-2.0
// Finds 64-bit constants that loops use in every iteration. NVIDIA's OpenCL compiler rematerializes an f64 constant at
// each use, in two moves: a fifth of all instructions in a loop of sines. A constant whose bits the compiler does not
// know stays in registers. (NVIDIA's Vulkan compiler gains nothing by this.)
#ifndef HPVMD_COMPILER_BACK_GPU_LOOP_CONSTANTS_H_
#define HPVMD_COMPILER_BACK_GPU_LOOP_CONSTANTS_H_

#include <cstdint>
#include <vector>

#include "compiler/ir/words.h"

namespace hpvm::gpu {

using namespace ir::words;

// Each constant takes a register pair. Fewer than the minimum are not worth their registers.
inline constexpr size_t kLoopConstantsMax = 16, kLoopConstantsMin = 4;

// Returns, by ValueId, true for the f64 constants that operations use in every iteration of a loop, limited to the
// first kLoopConstantsMax distinct numbers. Operations after a jump out of their construct, or in a branch, run in
// some iterations only and do not count.
std::vector<bool> FindLoopConstants(const ir::Function& function);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_LOOP_CONSTANTS_H_
