// SPDX-License-Identifier: Apache-2.0
// Kernels that read and add: sizes, inputs and references.
#include <algorithm>
#include <string>
#include <utility>

#include "base/clock.h"
#include "bench/gpu/gpu_case.h"

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

// The element-wise sum of `count` vectors of `length`.
CpuCase MakeSums(const char* name, uint64_t count, uint64_t length) {
  CpuCase c{.suite = "prk",
            .name = name,
            .sizes = std::to_string(count) + " vectors of " + std::to_string(length) + " f32",
            .unit = "B"};
  c.arrays.push_back(InArray("vectors", RandomReals<float>(count * length, -1, 2, 65)));
  c.arrays.push_back(OutArray("sum", ElementType::kF32, length));
  c.scalars = {static_cast<int32_t>(count), static_cast<int32_t>(length)};
  c.extent = {length, 1, 1};
  c.work = 4.0 * static_cast<double>((count + 1) * length);
  c.tolerance = 1e-6;
  c.magnitude = 8;
  c.reference = [all = c.arrays[0].initial.as<float>(), count, length](size_t, uint64_t i) {
    double sum = 0;
    for (uint64_t v = 0; v < count; ++v) {
      sum += all[v * length + i];
    }
    return sum;
  };
  return c;
}

CpuCase MakeReduce(CpuSize size) { return MakeSums("reduce", 8, Pick<uint64_t>(size, 16'000'000, 200'000, 1'003)); }

// Numbers from 1 to 8: their sums are exact in any order.
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

// Integers of both signs: their products, and sums of those in any order, are exact.
CpuCase MakeDotProduct(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 1 << 24, 1 << 17, 1'024);
  SeededRng rng(73);
  std::vector<float> a = SmallNumbers(n, rng);
  const std::vector<float> b = SmallNumbers(n, rng);
  double expected = 0;
  for (uint64_t i = 0; i < n; ++i) {
    a[i] = i % 2 == 0 ? a[i] : -a[i];
    expected += static_cast<double>(a[i]) * b[i];
  }
  CpuCase c{.suite = "other",
            .name = "dot_product",
            .sizes = std::to_string(n) + " f32, atomically to one sum",
            .unit = "element"};
  c.arrays.push_back(InArray("a", a));
  c.arrays.push_back(InArray("b", b));
  c.arrays.push_back(Updated(InArray("sum", std::vector<float>(1))));
  c.extent = {n, 1, 1};
  c.work = static_cast<double>(n);
  c.tolerance = 0;
  c.reference = [expected](size_t, uint64_t) { return expected; };
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

CpuCase MakeColumnSums(CpuSize size) {
  CpuCase c = MakeSums("column_sums", Pick<uint64_t>(size, 4'096, 256, 16), Pick<uint64_t>(size, 16'384, 4'096, 128));
  c.magnitude = 1 << 15;  // Sums of thousands, one term after the other.
  return c;
}

CpuCase MakeRowProducts(CpuSize size) {
  const uint64_t rows = Pick<uint64_t>(size, 65'536, 4'096, 64), width = Pick<uint64_t>(size, 1'024, 256, 32);
  CpuCase c{.suite = "other",
            .name = "row_products",
            .sizes = std::to_string(rows) + " rows of " + std::to_string(width) + " f32",
            .unit = "B"};
  c.arrays.push_back(InArray("matrix", RandomReals<float>(rows * width, -1, 1, 68)));
  c.arrays.push_back(InArray("x", RandomReals<float>(width, -1, 1, 69)));
  c.arrays.push_back(OutArray("y", ElementType::kF32, rows));
  c.scalars = {static_cast<int32_t>(width)};
  c.extent = {rows, 1, 1};
  c.work = 4.0 * static_cast<double>(rows * width);
  c.tolerance = 1e-6;
  c.magnitude = static_cast<double>(width) / 4;
  c.reference = [matrix = c.arrays[0].initial.as<float>(), x = c.arrays[1].initial.as<float>(), width](size_t,
                                                                                                       uint64_t row) {
    double sum = 0;
    for (uint64_t k = 0; k < width; ++k) {
      sum += static_cast<double>(matrix[row * width + k]) * x[k];
    }
    return sum;
  };
  return c;
}

CpuCase MakeNearest(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 131'072, 8'192, 128), count = Pick<uint64_t>(size, 16'384, 512, 64);
  CpuCase c{.suite = "other",
            .name = "nearest",
            .sizes = std::to_string(n) + " points, the nearest of " + std::to_string(count),
            .unit = "pair"};
  c.arrays.push_back(InArray("points", RandomReals<float>(3 * n, -1, 1, 70)));
  c.arrays.push_back(InArray("others", RandomReals<float>(3 * count, -1, 1, 71)));
  c.arrays.push_back(OutArray("squares", ElementType::kF32, n));
  c.scalars = {static_cast<int32_t>(count)};
  c.extent = {n, 1, 1};
  c.work = static_cast<double>(n * count);
  c.tolerance = 1e-6;
  c.samples = 1'000;
  c.reference = [points = c.arrays[0].initial.as<float>(), others = c.arrays[1].initial.as<float>(), count](
                    size_t, uint64_t at) {
    double least = 3.4e38;
    for (uint64_t k = 0; k < count; ++k) {
      double square = 0;
      for (uint64_t d = 0; d < 3; ++d) {
        const double along = static_cast<double>(others[3 * k + d]) - points[3 * at + d];
        square += along * along;
      }
      least = std::min(least, square);
    }
    return least;
  };
  return c;
}

// Points and centres are small integers: distances, and sums in any order, are exact.
CpuCase MakeKmeans(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 1 << 22, 1 << 15, 1'024);
  constexpr uint64_t kCentres = 16;
  SeededRng rng(72);
  const std::vector<float> points = SmallNumbers(2 * n, rng), centres = SmallNumbers(2 * kCentres, rng);
  std::vector<double> expected(3 * kCentres);
  for (uint64_t i = 0; i < n; ++i) {
    uint64_t nearest = 0;
    double least = 1e9;
    for (uint64_t k = 0; k < kCentres; ++k) {
      const double dx = centres[2 * k] - points[2 * i], dy = centres[2 * k + 1] - points[2 * i + 1];
      nearest = dx * dx + dy * dy < least ? k : nearest;
      least = std::min(least, dx * dx + dy * dy);
    }
    expected[3 * nearest] += points[2 * i];
    expected[3 * nearest + 1] += points[2 * i + 1];
    expected[3 * nearest + 2] += 1;
  }
  CpuCase c{.suite = "other", .name = "kmeans", .sizes = std::to_string(n) + " points, 16 centres", .unit = "point"};
  c.arrays.push_back(InArray("points", points));
  c.arrays.push_back(InArray("centres", centres));
  c.arrays.push_back(Updated(InArray("sums", std::vector<float>(3 * kCentres))));
  c.extent = {n, 1, 1};
  c.work = static_cast<double>(n);
  c.tolerance = 0;
  c.reference = [expected = std::move(expected)](size_t, uint64_t at) { return expected[at]; };
  return c;
}

constexpr CpuCaseMaker kCases[] = {
    {"nstream", MakeNstream},        {"transpose", MakeTranspose},      {"reduce", MakeReduce},
    {"column_sums", MakeColumnSums}, {"row_products", MakeRowProducts}, {"nearest", MakeNearest},
    {"row_sums", MakeRowSums},       {"dot_product", MakeDotProduct},   {"histogram_f32", MakeHistogramF32},
    {"kmeans", MakeKmeans},
};

}  // namespace

std::span<const CpuCaseMaker> GpuStreamCases() { return kCases; }

}  // namespace hpvm::bench
