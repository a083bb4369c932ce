// SPDX-License-Identifier: Apache-2.0
// Comparisons that NVIDIA's compiler for OpenCL (NVVM; seen with 7.0.1 and with CUDA 13.0) gets wrong: in a loop that
// ends by comparing its counter with a number, another comparison of the counter with a number is taken to be of the
// same signedness, and both become one limit. For
//
//   for (i = 0; (int)i < n; ++i) if (i < m) a[i] = 0;   // m unsigned
//
// it makes a loop to min(n, m) as signed numbers, which runs never where m is 2^31 or more.
#ifndef HPVMD_COMPILER_BACK_GPU_MIXED_COMPARES_H_
#define HPVMD_COMPILER_BACK_GPU_MIXED_COMPARES_H_

#include <cstdint>
#include <vector>

#include "compiler/ir/words.h"

namespace hpvm::gpu {

using namespace ir::words;

// By ValueId of the result: 0, or 1 + the place of the operand (0 or 1) that the compiler must not know to be a
// counter. Of the two signednesses with which a counter is compared, the unsigned one is hidden. A loop's parameter is
// a counter, and so is what differs from one by a constant. One that an exclusive or has turned around is always
// hidden.
std::vector<uint8_t> FindMixedCompares(const ir::Function& function);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_MIXED_COMPARES_H_
