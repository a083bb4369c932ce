// SPDX-License-Identifier: Apache-2.0
// Computations of `hpvm-bench sched real/`: one launch that may be split, or several that may run on different
// devices.
#ifndef HPVMD_BENCH_SCHED_SCHED_PROBLEMS_H_
#define HPVMD_BENCH_SCHED_SCHED_PROBLEMS_H_

#include <memory>
#include <string>
#include <vector>

#include "bench/sched/sched_graph.h"

namespace hpvm::bench {

enum class RealSize : uint8_t { kQuick, kSmall, kLarge };

// An array of a launch, whose rows belong to the rows of instances, or which every row needs.
struct RowArray {
  std::string name;
  Access access = Access::kIn;
  uint64_t row_elements = 0;  // Number of f32 per row; when 0, all rows share `elements`.
  uint64_t elements = 0;
  PageMemory initial{};
};

// A launch whose instances form rows, any number of which may run separately.
struct RowLaunch {
  std::string name, entry;
  std::vector<RowArray> arrays;
  std::vector<CpuScalar> scalars;
  uint64_t rows = 0, columns = 0;  // Instances; one dimension when columns is 0.
  uint64_t grain = 64;             // Rows that are kept together.
  bool takes_first = false;        // One more scalar is the part's first row.

  struct Part {
    std::string device;
    uint64_t first = 0, rows = 0;
  };
  // Returns nodes `name`0, `name`1 ..., each with slices of the arrays as its own inputs and outputs.
  BenchGraph Parts(const std::vector<Part>& parts) const;
  BenchGraph Whole(const std::string& device) const { return Parts({{device, 0, rows}}); }
};

std::vector<std::unique_ptr<RowLaunch>> SplitProblems(RealSize size);

// Several launches; `devices`, by node, may be shorter: the remaining nodes run anywhere.
struct MixedProblem {
  std::string name;
  BenchGraph graph;
  std::vector<PageMemory> memory;

  BenchGraph On(const std::vector<std::string>& devices) const;
};

std::vector<std::unique_ptr<MixedProblem>> MixedProblems(RealSize size);

// `nodes` launches on the same data, one after the other: a += b + c / 2 over `elements` elements; and the expected
// result.
MixedProblem LaunchChain(uint64_t elements, int nodes);
std::vector<float> LaunchChainResult(const MixedProblem& chain);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SCHED_SCHED_PROBLEMS_H_
