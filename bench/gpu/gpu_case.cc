// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/gpu_case.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace hpvm::bench {
namespace {

CpuCase MakeNstream(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, uint64_t{1} << 26, 1'000'000, 1'003);
  constexpr float kScalar = 0.4f;
  CpuCase c{.suite = "prk", .name = "nstream", .sizes = std::to_string(n) + " f32", .unit = "B"};
  c.arrays.push_back(Updated(InArray("a", RandomReals<float>(n, -1, 2, 61))));
  c.arrays.push_back(InArray("b", RandomReals<float>(n, -1, 2, 62)));
  c.arrays.push_back(InArray("c", RandomReals<float>(n, -1, 2, 63)));
  c.scalars = {kScalar};
  c.extent = {n, 1, 1};
  c.work = 16.0 * static_cast<double>(n);
  c.tolerance = 1e-6;
  c.reference = [a = c.arrays[0].initial.as<float>(), b = c.arrays[1].initial.as<float>(),
                 c = c.arrays[2].initial.as<float>()](size_t, uint64_t i) {
    return static_cast<double>(a[i]) + b[i] + static_cast<double>(kScalar) * c[i];
  };
  return c;
}

CpuCase MakeTranspose(CpuSize size) {
  const uint64_t order = Pick<uint64_t>(size, 8'192, 1'000, 61);
  CpuCase c{.suite = "prk",
            .name = "transpose",
            .sizes = std::to_string(order) + " x " + std::to_string(order) + " f32",
            .unit = "B"};
  c.arrays.push_back(InArray("a", RandomReals<float>(order * order, -1, 2, 64)));
  c.arrays.push_back(OutArray("b", ElementType::kF32, order * order));
  c.scalars = {static_cast<int32_t>(order)};
  c.extent = {order, order, 1};
  c.work = 8.0 * static_cast<double>(order * order);
  c.tolerance = 0;
  c.reference = [a = c.arrays[0].initial.as<float>(), order](size_t, uint64_t at) {
    return static_cast<double>(a[at % order * order + at / order]);
  };
  return c;
}

CpuCase MakeReduce(CpuSize size) {
  const uint64_t length = Pick<uint64_t>(size, 16'000'000, 200'000, 1'003);
  constexpr uint64_t kCount = 8;
  CpuCase c{.suite = "prk",
            .name = "reduce",
            .sizes = std::to_string(kCount) + " vectors of " + std::to_string(length) + " f32",
            .unit = "B"};
  c.arrays.push_back(InArray("vectors", RandomReals<float>(kCount * length, -1, 2, 65)));
  c.arrays.push_back(OutArray("sum", ElementType::kF32, length));
  c.scalars = {static_cast<int32_t>(kCount), static_cast<int32_t>(length)};
  c.extent = {length, 1, 1};
  c.work = 4.0 * static_cast<double>((kCount + 1) * length);
  c.tolerance = 1e-6;
  c.magnitude = 8;
  c.reference = [all = c.arrays[0].initial.as<float>(), length](size_t, uint64_t i) {
    double sum = 0;
    for (uint64_t v = 0; v < kCount; ++v) {
      sum += all[v * length + i];
    }
    return sum;
  };
  return c;
}

// Numbers from 1 to 8: their sums are exact in whatever order.
std::vector<float> SmallNumbers(uint64_t count, SeededRng& rng) {
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    number = static_cast<float>(1 + rng.Below(8));
  }
  return numbers;
}

CpuCase MakeRowSums(CpuSize size) {
  const uint64_t length = Pick<uint64_t>(size, 4'096, 512, 64), rows = Pick<uint64_t>(size, 4'096, 256, 16);
  SeededRng rng(66);
  CpuCase c{.suite = "other",
            .name = "row_sums",
            .sizes = std::to_string(rows) + " rows of " + std::to_string(length) + " f32, atomically",
            .unit = "element"};
  c.arrays.push_back(InArray("values", SmallNumbers(rows * length, rng)));
  c.arrays.push_back(Updated(InArray("sums", std::vector<float>(rows))));
  c.scalars = {static_cast<int32_t>(length)};
  c.extent = {rows * length, 1, 1};
  c.work = static_cast<double>(rows * length);
  c.tolerance = 0;
  c.reference = [values = c.arrays[0].initial.as<float>(), length](size_t, uint64_t row) {
    double sum = 0;
    for (const float value : values.subspan(row * length, length)) {
      sum += value;
    }
    return sum;
  };
  return c;
}

CpuCase MakeHistogramF32(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 1 << 24, 1 << 17, 1'024), bins = Pick<uint64_t>(size, 1 << 20, 1 << 12, 64);
  SeededRng rng(67);
  std::vector<int32_t> values(n);
  const std::vector<float> weights = SmallNumbers(n, rng);
  std::vector<double> expected(bins);
  for (uint64_t i = 0; i < n; ++i) {
    values[i] = static_cast<int32_t>(rng.Below(1 << 30));
    expected[static_cast<uint64_t>(values[i]) & (bins - 1)] += weights[i];
  }
  CpuCase c{.suite = "other",
            .name = "histogram_f32",
            .sizes = std::to_string(n) + " f32 into " + std::to_string(bins) + " bins",
            .unit = "element"};
  c.arrays.push_back(InArray("values", std::move(values)));
  c.arrays.push_back(InArray("weights", weights));
  c.arrays.push_back(Updated(InArray("sums", std::vector<float>(bins))));
  c.scalars = {static_cast<int32_t>(bins)};
  c.extent = {n, 1, 1};
  c.work = static_cast<double>(n);
  c.tolerance = 0;
  c.reference = [expected = std::move(expected)](size_t, uint64_t bin) { return expected[bin]; };
  return c;
}

CpuCase (*FindMaker(std::string_view name))(CpuSize) {
  for (std::span<const CpuCaseMaker> makers : {ParboilCases(), OtherCases()}) {
    const auto found = std::find_if(makers.begin(), makers.end(), [&](const auto& one) { return name == one.name; });
    if (found != makers.end()) {
      return found->make;
    }
  }
  return nullptr;
}

}  // namespace

// The large sizes are multiples of 256, so that the peers' launches need no superfluous items and no guard.
std::vector<GpuCaseMaker> GpuCases(CpuSize size) {
  std::vector<GpuCaseMaker> cases;
  const std::pair<const char*, CpuCase (*)(CpuSize)> own[] = {{"nstream", MakeNstream},
                                                              {"transpose", MakeTranspose},
                                                              {"reduce", MakeReduce},
                                                              {"row_sums", MakeRowSums},
                                                              {"histogram_f32", MakeHistogramF32}};
  for (const auto& [name, make] : own) {
    cases.push_back({name, [make = make, size] { return make(size); }});
  }
  for (const char* name : {"heat", "tree_sum", "spmv", "mri_q", "cutcp", "n_body", "black_scholes"}) {
    CpuCase (*make)(CpuSize) = FindMaker(name);
    HPVMD_CHECK(make != nullptr);
    cases.push_back({name, [make, size] { return make(size == CpuSize::kFull ? CpuSize::kGpu : size); }});
  }
  const std::vector<uint64_t> orders = size == CpuSize::kFull    ? std::vector<uint64_t>{1'024, 2'048, 4'096, 8'192}
                                       : size == CpuSize::kQuick ? std::vector<uint64_t>{256}
                                                                 : std::vector<uint64_t>{48};
  for (uint64_t order : orders) {
    cases.push_back({"matmul_" + std::to_string(order), [order] {
                       CpuCase c = MakeSgemmOf(order, order, order);
                       c.magnitude = static_cast<double>(order) / 32;  // Sums of that many terms.
                       c.samples = std::min<uint64_t>(c.samples, 4'000);
                       return c;
                     }});
  }
  return cases;
}

}  // namespace hpvm::bench
