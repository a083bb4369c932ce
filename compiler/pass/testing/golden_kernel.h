// SPDX-License-Identifier: Apache-2.0
// Kernels of the benchmarks as a compiler emitted them (tests/golden/bounds), with the launches from their comments.
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
// Fails the test if the file is malformed.
GoldenKernel ReadGoldenKernel(const std::string& name);

// Returns the facts about a launch that ir::ProveBounds uses.
ir::BoundsFacts FactsOf(const ir::Module& module, const ir::Launch& launch);

}  // namespace hpvm::pass::testing

#endif  // HPVMD_COMPILER_PASS_TESTING_GOLDEN_KERNEL_H_
