// SPDX-License-Identifier: Apache-2.0
// Kernels whose addresses are sums that temporarily wrap around 2^32. Some drivers' compilers extend such a sum
// before they subtract a constant (docs/GPU.md); the wrong code accesses 4 GiB beyond the buffer.
#ifndef HPVMD_COMPILER_IR_TESTING_WRAP_KERNELS_H_
#define HPVMD_COMPILER_IR_TESTING_WRAP_KERNELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/launch.h"

namespace hpvm::ir::testing {

struct WrapKernel {
  std::string name;
  std::string text;  // Text of a module with the buffers "r" (inout) and "x" (in) as parameters.
};

// Returns kernels on records of 48 bytes: instance i reads (or writes) two fields; one launch has kWrapInstances
// instances.
std::vector<WrapKernel> WrapKernels();

inline constexpr uint64_t kWrapInstances = 4096;

// The contents of "r" and "x", in 64-bit words, and a launch that borrows them.
struct WrapBuffers {
  std::vector<uint64_t> r, x;
  WrapBuffers();
  Launch On();
};

}  // namespace hpvm::ir::testing

#endif  // HPVMD_COMPILER_IR_TESTING_WRAP_KERNELS_H_
