// SPDX-License-Identifier: Apache-2.0
// Kernels of groups that share memory: sizes, inputs and references.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/clock.h"
#include "bench/gpu/gpu_case.h"

namespace hpvm::bench {
namespace {

CpuCase MakeLayerNorm(CpuSize size) {
  const uint64_t rows = Pick<uint64_t>(size, 65'536, 1'024, 5);
  constexpr uint64_t kRow = 1'024, kGroup = 256;
  CpuCase c{.suite = "other",
            .name = "layer_norm",
            .sizes = std::to_string(rows) + " rows of 1024 f32, groups of 256",
            .unit = "B"};
  c.arrays.push_back(InArray("in", RandomReals<float>(rows * kRow, -1, 3, 78)));
  c.arrays.push_back(OutArray("out", ElementType::kF32, rows * kRow));
  c.extent = {rows * kGroup, 1, 1};
  c.group = {kGroup, 1, 1};
  c.work = 8.0 * static_cast<double>(rows * kRow);
  c.tolerance = 1e-5;
  c.samples = 2'000;
  c.reference = [in = c.arrays[0].initial.as<float>()](size_t, uint64_t at) {
    const std::span<const float> row = in.subspan(at / kRow * kRow, kRow);
    double mean = 0, squares = 0;
    for (const float value : row) {
      mean += value / static_cast<double>(kRow);
    }
    for (const float value : row) {
      squares += (value - mean) * (value - mean);
    }
    return (row[at % kRow] - mean) / std::sqrt(squares / kRow + 1e-5);
  };
  return c;
}

CpuCase MakeBitonicSort(CpuSize size) {
  const uint64_t blocks = Pick<uint64_t>(size, 16'384, 256, 3);
  constexpr uint64_t kBlock = 1'024;
  CpuCase c{.suite = "other",
            .name = "bitonic_sort",
            .sizes = std::to_string(blocks) + " blocks of 1024 i32, groups of 512",
            .unit = "element"};
  SeededRng rng(79);
  std::vector<int32_t> values(blocks * kBlock);
  for (int32_t& value : values) {
    value = static_cast<int32_t>(static_cast<uint32_t>(rng.Next()));
  }
  std::vector<int32_t> sorted = values;
  for (uint64_t block = 0; block < blocks; ++block) {
    std::sort(sorted.begin() + static_cast<int64_t>(block * kBlock),
              sorted.begin() + static_cast<int64_t>((block + 1) * kBlock));
  }
  c.arrays.push_back(Updated(InArray("values", std::move(values))));
  c.extent = {blocks * kBlock / 2, 1, 1};
  c.group = {kBlock / 2, 1, 1};
  c.work = static_cast<double>(blocks * kBlock);
  c.tolerance = 0;
  c.reference = [sorted = std::move(sorted)](size_t, uint64_t at) { return static_cast<double>(sorted[at]); };
  return c;
}

constexpr CpuCaseMaker kCases[] = {{"layer_norm", MakeLayerNorm}, {"bitonic_sort", MakeBitonicSort}};

}  // namespace

std::span<const CpuCaseMaker> GpuGroupCases() { return kCases; }

}  // namespace hpvm::bench
