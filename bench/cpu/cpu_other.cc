// SPDX-License-Identifier: Apache-2.0
// Kernels outside of any suite: sizes, inputs and references.
#include <cmath>
#include <string>
#include <utility>

#include "base/clock.h"
#include "bench/cpu/cpu_case.h"

namespace hpvm::bench {
namespace {

CpuCase MakeMandelbrot(CpuSize size) {
  const uint64_t width = Pick<uint64_t>(size, 2'048, 512, 61), height = Pick<uint64_t>(size, 1'024, 256, 37);
  constexpr int32_t kLimit = 256;
  const float left = -2.2f, top = -1.1f, step = 3.0f / static_cast<float>(width);
  CpuCase c{.suite = "other",
            .name = "mandelbrot",
            .sizes = std::to_string(width) + " x " + std::to_string(height) + ", at most 256 steps",
            .unit = "pixel"};
  c.arrays.push_back(OutArray("counts", ElementType::kI32, width * height));
  c.scalars = {left, top, step, static_cast<int32_t>(width), kLimit};
  c.extent = {width, height, 1};
  c.work = static_cast<double>(width * height);
  c.tolerance = 0;
  c.strays = 0.02;  // Near the set's edge the last bit decides.
  c.reference = [=](size_t, uint64_t at) {
    const double cx = left + static_cast<double>(at % width) * step, cy = top + static_cast<double>(at / width) * step;
    double x = 0, y = 0;
    int32_t steps = 0;
    while (steps < kLimit && std::hypot(x, y) <= 2) {
      const double next = (x + y) * (x - y) + cx;
      y = 2 * x * y + cy;
      x = next;
      ++steps;
    }
    return static_cast<double>(steps);
  };
  return c;
}

CpuCase MakeBlackScholes(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 4'000'003, 400'003, 1'003, 32'000'000);
  constexpr float kRate = 0.02f, kVolatility = 0.3f;
  CpuCase c{.suite = "other",
            .name = "black_scholes",
            .sizes = std::to_string(n) + " options",
            .is_bitwise = false,
            .unit = "option"};
  c.arrays.push_back(InArray("prices", RandomReals<float>(n, 5, 30, 41)));
  c.arrays.push_back(InArray("strikes", RandomReals<float>(n, 1, 100, 42)));
  c.arrays.push_back(InArray("years", RandomReals<float>(n, 0.25, 10, 43)));
  c.arrays.push_back(OutArray("calls", ElementType::kF32, n));
  c.arrays.push_back(OutArray("puts", ElementType::kF32, n));
  c.scalars = {kRate, kVolatility};
  c.extent = {n, 1, 1};
  c.work = static_cast<double>(n);
  c.tolerance = 1e-6;
  c.magnitude = 50;
  c.reference = [s = c.arrays[0].initial.as<float>(), k = c.arrays[1].initial.as<float>(),
                 t = c.arrays[2].initial.as<float>()](size_t array, uint64_t i) {
    const double spread = static_cast<double>(kVolatility) * std::sqrt(t[i]);
    const double d1 = std::log(static_cast<double>(s[i]) / k[i]) / spread + (kRate / spread) * t[i] + spread / 2;
    const auto below = [](double d) { return std::erfc(-d * M_SQRT1_2) / 2; };
    const double discounted = k[i] * std::exp(-static_cast<double>(kRate) * t[i]);
    const double call = s[i] * below(d1) - discounted * below(d1 - spread);
    return array == 3 ? call : call - s[i] + discounted;  // Parity of call and put.
  };
  return c;
}

CpuCase MakeNBody(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 8'209, 2'053, 131, 65'536);
  constexpr float kSoftening = 0.01f;
  CpuCase c{.suite = "other", .name = "n_body", .sizes = std::to_string(n) + " bodies", .unit = "pair"};
  c.arrays.push_back(InArray("bodies", RandomReals<float>(4 * n, 0.5, 9, 44)));
  c.arrays.push_back(OutArray("accelerations", ElementType::kF32, 3 * n));
  c.scalars = {kSoftening, static_cast<int32_t>(n)};
  c.extent = {n, 1, 1};
  c.work = static_cast<double>(n * n);
  c.tolerance = 1e-4;
  c.magnitude = static_cast<double>(n) / 10;
  c.samples = Pick<uint64_t>(size, 1'000, 1'000, 1'000, 200);
  c.reference = [bodies = c.arrays[0].initial.as<float>(), n](size_t, uint64_t at) {
    const float* self = &bodies[at / 3 * 4];
    double sum = 0;
    for (uint64_t j = 0; j < n; ++j) {
      double square = kSoftening;
      for (uint64_t axis = 0; axis < 3; ++axis) {
        square += std::pow(static_cast<double>(bodies[4 * j + axis]) - self[axis], 2);
      }
      sum += bodies[4 * j + 3] * (static_cast<double>(bodies[4 * j + at % 3]) - self[at % 3]) * std::pow(square, -1.5);
    }
    return sum;
  };
  return c;
}

CpuCase MakeHistogram(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 8'000'003, 500'003, 5'003), bins = Pick<uint64_t>(size, 1'024, 1'024, 64);
  SeededRng rng(45);
  std::vector<int32_t> values(n);
  std::vector<uint64_t> expected(bins);
  // Products of two numbers, so that small values are frequent; the kernel must ignore high bits.
  for (int32_t& value : values) {
    const uint64_t low = rng.Below(bins) * rng.Below(bins) / bins;
    value = static_cast<int32_t>(low + bins * rng.Below(1'000));
    ++expected[low];
  }
  CpuCase c{.suite = "other",
            .name = "histogram",
            .sizes = std::to_string(n) + " i32 into " + std::to_string(bins) + " bins",
            .unit = "element"};
  c.arrays.push_back(InArray("values", std::move(values)));
  c.arrays.push_back(Updated(InArray("counts", std::vector<int32_t>(bins))));
  c.scalars = {static_cast<int32_t>(bins)};
  c.extent = {n, 1, 1};
  c.work = static_cast<double>(n);
  c.tolerance = 0;
  c.reference = [expected = std::move(expected)](size_t, uint64_t bin) { return static_cast<double>(expected[bin]); };
  return c;
}

CpuCase MakeTiledMatmul(CpuSize size) {
  const uint64_t m = Pick<uint64_t>(size, 512, 256, 32), n = Pick<uint64_t>(size, 640, 192, 48),
                 k = Pick<uint64_t>(size, 480, 128, 64);
  CpuCase c{.suite = "other",
            .name = "tiled_matmul",
            .sizes = std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) + " f32, tiles of 16",
            .is_matmul = true,
            .unit = "flop"};
  c.arrays.push_back(InArray("a", RandomReals<float>(m * k, -1, 1, 46)));
  c.arrays.push_back(InArray("b", RandomReals<float>(k * n, 0, 1, 47)));
  c.arrays.push_back(OutArray("c", ElementType::kF32, m * n));
  c.scalars = {static_cast<int32_t>(n), static_cast<int32_t>(k)};
  c.extent = {n, m, 1};
  c.group = {16, 16, 1};
  c.work = 2.0 * static_cast<double>(m * n * k);
  c.tolerance = 2e-6;
  c.magnitude = 32;
  c.reference = [a = c.arrays[0].initial.as<float>(), b = c.arrays[1].initial.as<float>(), n, k](size_t, uint64_t at) {
    double sum = 0;
    for (uint64_t p = 0; p < k; ++p) {
      sum += static_cast<double>(a[at / n * k + p]) * b[p * n + at % n];
    }
    return sum;
  };
  return c;
}

CpuCase MakeTreeSum(CpuSize size) {
  const uint64_t groups = Pick<uint64_t>(size, 32'768, 2'048, 7, 262'144);
  constexpr uint64_t kLeaves = 256;
  CpuCase c{.suite = "other",
            .name = "tree_sum",
            .sizes = std::to_string(groups * 2 * kLeaves) + " f32, groups of 256",
            .unit = "B"};
  c.arrays.push_back(InArray("values", RandomReals<float>(groups * 2 * kLeaves, -1, 2, 48)));
  c.arrays.push_back(OutArray("sums", ElementType::kF32, groups));
  c.extent = {groups * kLeaves, 1, 1};
  c.group = {kLeaves, 1, 1};
  c.work = 8.0 * static_cast<double>(groups * kLeaves);
  c.tolerance = 1e-6;
  c.magnitude = 256;
  c.reference = [values = c.arrays[0].initial.as<float>()](size_t, uint64_t group) {
    double sum = 0;
    for (uint64_t i = 0; i < 2 * kLeaves; ++i) {
      sum += values[group * 2 * kLeaves + i];
    }
    return sum;
  };
  return c;
}

constexpr CpuCaseMaker kCases[] = {
    {"mandelbrot", MakeMandelbrot}, {"black_scholes", MakeBlackScholes}, {"n_body", MakeNBody},
    {"histogram", MakeHistogram},   {"tiled_matmul", MakeTiledMatmul},   {"tree_sum", MakeTreeSum},
};

}  // namespace

std::span<const CpuCaseMaker> OtherCases() { return kCases; }

}  // namespace hpvm::bench
