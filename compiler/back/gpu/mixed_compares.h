// SPDX-License-Identifier: Apache-2.0
// Finds comparisons that NVIDIA's OpenCL compiler (NVVM; seen with 7.0.1 and with CUDA 13.0) miscompiles: in a loop
// that ends by comparing its counter with a number, it assumes that another comparison of the counter has the same
// signedness, and merges both into one limit. For
//
//   for (i = 0; (int)i < n; ++i) if (i < m) a[i] = 0;   // m unsigned
//
// it generates a loop to min(n, m) as signed numbers, which never runs where m is 2^31 or more.
#ifndef HPVMD_COMPILER_BACK_GPU_MIXED_COMPARES_H_
#define HPVMD_COMPILER_BACK_GPU_MIXED_COMPARES_H_

#include <cstdint>
#include <vector>

#include "compiler/ir/words.h"

namespace hpvm::gpu {

using namespace ir::words;

// Returns, by ValueId of the result, 0, or 1 + the index of the operand (0 or 1) that must be hidden from the
// compiler's counter analysis. When a counter is compared both as signed and as unsigned, the unsigned comparison is
// hidden. A counter is a loop parameter, or a value that differs from one by a constant. A counter that went through
// an exclusive or is always hidden.
std::vector<uint8_t> FindMixedCompares(const ir::Function& function);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_MIXED_COMPARES_H_
