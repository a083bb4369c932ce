// SPDX-License-Identifier: Apache-2.0
// Kernels of the benchmarks as a compiler made them (tests/golden/bounds), with the launch that their comments name.
#ifndef HPVMD_COMPILER_PASS_TESTING_GOLDEN_KERNEL_H_
#define HPVMD_COMPILER_PASS_TESTING_GOLDEN_KERNEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/bounds.h"
#include "compiler/ir/launch.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass::testing {

struct GoldenKernel {
  ir::Module module;
  ir::Launch launch;
  std::vector<std::vector<uint64_t>> data;  // Zeros; the launch points into it.
};

std::vector<std::string> GoldenKernelNames();  // Sorted.
// Fails the test where the file is malformed.
GoldenKernel ReadGoldenKernel(const std::string& name);

// What a launch shows of itself.
ir::BoundsFacts FactsOf(const ir::Module& module, const ir::Launch& launch);

}  // namespace hpvm::pass::testing

#endif  // HPVMD_COMPILER_PASS_TESTING_GOLDEN_KERNEL_H_
