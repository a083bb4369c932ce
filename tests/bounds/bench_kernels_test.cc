// SPDX-License-Identifier: Apache-2.0
// Tests of the compiler's knowledge about the memory accesses of the benchmarks' kernels, after the passes for
// processors and after those for GPUs, which inline all calls including the math library's: whether every access is
// understood, and along which dimensions the halves of a launch access disjoint memory, so that two devices can share
// it.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/driver/explain.h"
#include "compiler/pass/find_bounds.h"

namespace hpvm {
namespace {

struct Known {
  bool is_complete = false;
  std::string apart;  // Dimensions.
};

struct Expected {
  std::string folder, entry;
  std::string apart;
};
void PrintTo(const Expected& expected, std::ostream* out) { *out << expected.folder << "/" << expected.entry; }

std::vector<uint8_t> Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

compile::FrontResult Prepared(const std::string& folder, const std::string& entry, ArtifactKind target) {
  const std::vector<uint8_t> bytes = Read(std::string(HPVMD_BINARY_DIR) + "/" + folder + "/kernels.wasm");
  CompileRequest request;
  request.module_name = folder;
  request.module = bytes;
  request.entry = entry;
  request.infers_params = true;
  request.target = target;
  return compile::PrepareModule(request, bytes, nullptr);
}

Known KnownOf(const std::string& folder, const std::string& entry, ArtifactKind target) {
  const compile::FrontResult front = Prepared(folder, entry, target);
  EXPECT_TRUE(front.module.has_value()) << (front.diagnostics.empty() ? "" : front.diagnostics[0].message);
  if (!front.module.has_value()) {
    return {};
  }
  const ir::BoundsProgram program = pass::FindBounds(*front.module);
  const Known known{program.is_complete, compile::FindHalves(*front.module, program).apart};
  std::printf("  %s/%s %s: %zu operations, %zu atoms, %zu constraints, %zu accesses and %zu others, apart: %s\n",
              folder.c_str(), entry.c_str(), target == ArtifactKind::kCpuImage ? "cpu" : "gpu",
              front.module->function(front.module->entry).ops.size(), program.atoms.size(), program.constraints.size(),
              program.accesses.size(), program.others.size(), known.apart.c_str());
  return known;
}

class BenchKernelsTest : public ::testing::TestWithParam<Expected> {};

TEST_P(BenchKernelsTest, FactsSurviveBothPipelines) {
  const Expected& expected = GetParam();
  for (const ArtifactKind target : {ArtifactKind::kCpuImage, ArtifactKind::kOpenCl}) {
    const Known known = KnownOf(expected.folder, expected.entry, target);
    EXPECT_TRUE(known.is_complete);
    EXPECT_EQ(known.apart, expected.apart) << static_cast<int>(target);
  }
}

// Sparse products and similar kernels depend on indices: a launch that knows the range of its indices needs no check.
TEST(IndicesTest, AreEnough) {
  struct Case {
    std::string folder, entry;
    uint64_t extent;
    std::vector<uint64_t> buffers;               // Bytes.
    std::map<uint32_t, ir::WordRange> words;     // Keyed by parameter: just inside.
    std::map<uint32_t, ir::WordRange> one_more;  // One beyond.
  };
  // values, columns, starts: 400 entries in 100 rows.
  const Case kCases[] = {
      {"bench_gpu", "spmv", 100, {404, 1600, 1600, 2000, 400}, {{0, {0, 400}}, {1, {0, 499}}}, {{0, {0, 401}}}},
      {"bench_gpu", "spmv", 100, {404, 1600, 1600, 2000, 400}, {{0, {0, 400}}, {1, {0, 499}}}, {{1, {0, 500}}}},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.folder + "/" + c.entry);
    const compile::FrontResult front = Prepared(c.folder, c.entry, ArtifactKind::kOpenCl);
    ASSERT_TRUE(front.module.has_value());
    const ir::BoundsProgram program = pass::FindBounds(*front.module);
    EXPECT_TRUE(program.others.empty());
    ir::BoundsFacts facts;
    facts.extent = {c.extent, 1, 1};
    for (size_t i = 0; i < c.buffers.size(); ++i) {
      facts.params.push_back({true, front.module->params[i].is_writable, c.buffers[i], 32, {}});
    }
    for (const auto& [param, range] : c.words) {
      facts.params[param].words = range;
    }
    EXPECT_TRUE(ir::ProveByWords(program, facts));
    for (const auto& [param, range] : c.one_more) {
      facts.params[param].words = range;
    }
    EXPECT_FALSE(ir::ProveByWords(program, facts));
  }
}

// A sort of 1024 numbers by 512 instances needs no check, neither of its buffer nor of group memory.
TEST(SortTest, NeedsNoChecks) {
  const compile::FrontResult front = Prepared("bench_gpu", "bitonic_sort", ArtifactKind::kOpenCl);
  ASSERT_TRUE(front.module.has_value());
  const ir::BoundsProgram program = pass::FindBounds(*front.module);
  EXPECT_EQ(program.accesses.size(), 12u);
  EXPECT_TRUE(program.is_complete && program.others.empty());
  const auto is_proven = [&](uint64_t group, uint64_t bytes) {
    ir::BoundsFacts facts;
    facts.extent = {3 * 512, 1, 1};
    facts.group = {group, 1, 1};
    facts.params = {{true, true, bytes, 32, {}}};
    return ir::ProveBounds(program, facts);
  };
  EXPECT_TRUE(is_proven(512, 3 * 4096));
  EXPECT_FALSE(is_proven(512, 3 * 4096 - 4));
  EXPECT_FALSE(is_proven(513, 4 * 4096));
  EXPECT_FALSE(is_proven(1024, 4 * 4096));
}

INSTANTIATE_TEST_SUITE_P(Gpu, BenchKernelsTest,
                         ::testing::Values(Expected{"bench_gpu", "nstream", "x"},
                                           Expected{"bench_gpu", "transpose", "y"},
                                           Expected{"bench_gpu", "reduce", "x"}, Expected{"bench_gpu", "sgemm", "y"},
                                           Expected{"bench_gpu", "spmv", "x"}, Expected{"bench_gpu", "heat", "z"},
                                           Expected{"bench_gpu", "mri_q", "x"},
                                           Expected{"bench_gpu", "black_scholes", "x"},
                                           Expected{"bench_gpu", "n_body", "x"}, Expected{"bench_gpu", "cutcp", "z"},
                                           Expected{"bench_gpu", "tree_sum", "x"}));
INSTANTIATE_TEST_SUITE_P(Cpu, BenchKernelsTest,
                         ::testing::Values(Expected{"bench_cpu", "lbm", ""}, Expected{"bench_cpu", "pic", "x"},
                                           Expected{"bench_cpu", "mandelbrot", "y"}, Expected{"bench_cpu", "star", "y"},
                                           Expected{"bench_cpu", "histogram", ""}, Expected{"bench_cpu", "sparse", "x"},
                                           Expected{"bench_cpu", "dgemm", "y"}));

}  // namespace
}  // namespace hpvm
