// SPDX-License-Identifier: Apache-2.0
// Kernels whose addresses are sums that wrap around 2^32 on the way: what drivers' compilers get wrong that extend such
// a sum before they have taken a constant off (docs/GPU.md). Wrong code reaches 4 GiB behind the buffer.
#ifndef HPVMD_COMPILER_IR_TESTING_WRAP_KERNELS_H_
#define HPVMD_COMPILER_IR_TESTING_WRAP_KERNELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/launch.h"

namespace hpvm::ir::testing {

struct WrapKernel {
  std::string name;
  std::string text;  // Of the module, whose parameters are the buffers "r" (inout) and "x" (in).
};

// Records of 48 bytes whose two fields instance i reads (or writes), one launch of kWrapInstances instances each.
std::vector<WrapKernel> WrapKernels();

inline constexpr uint64_t kWrapInstances = 4096;

// The content of "r" and "x", in 64-bit words, and a launch on them, which borrows them.
struct WrapBuffers {
  std::vector<uint64_t> r, x;
  WrapBuffers();
  Launch On();
};

}  // namespace hpvm::ir::testing

#endif  // HPVMD_COMPILER_IR_TESTING_WRAP_KERNELS_H_
