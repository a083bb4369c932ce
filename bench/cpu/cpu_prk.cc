// SPDX-License-Identifier: Apache-2.0
// The Parallel Research Kernels: sizes, inputs and references.
#include <cmath>
#include <string>
#include <utility>

#include "base/clock.h"
#include "bench/cpu/cpu_case.h"

namespace hpvm::bench {
namespace {

std::string Square(uint64_t n) { return std::to_string(n) + " x " + std::to_string(n) + " f64"; }

CpuCase MakeNstream(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 8'000'003, 1'000'003, 1'003);
  constexpr double kScalar = 3.25;
  CpuCase c{.suite = "prk", .name = "nstream", .sizes = std::to_string(n) + " f64", .unit = "B"};
  c.arrays.push_back(Updated(InArray("a", RandomReals<double>(n, -1, 1, 1))));
  c.arrays.push_back(InArray("b", RandomReals<double>(n, 2, 3, 2)));
  c.arrays.push_back(InArray("c", RandomReals<double>(n, -7, -5, 3)));
  c.scalars = {kScalar};
  c.extent = {n, 1, 1};
  c.work = 32.0 * static_cast<double>(n);
  c.reference = [a = c.arrays[0].initial.as<double>(), b = c.arrays[1].initial.as<double>(),
                 v = c.arrays[2].initial.as<double>()](size_t, uint64_t i) {
    return static_cast<double>(static_cast<long double>(a[i]) + b[i] + static_cast<long double>(v[i]) * kScalar);
  };
  return c;
}

CpuCase MakeTranspose(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 2'500, 1'000, 61);
  CpuCase c{.suite = "prk", .name = "transpose", .sizes = Square(n), .unit = "B"};
  c.arrays.push_back(Updated(InArray("a", RandomReals<double>(n * n, -1, 1, 4))));
  c.arrays.push_back(Updated(InArray("b", RandomReals<double>(n * n, 5, 9, 5))));
  c.scalars = {static_cast<int32_t>(n)};
  c.extent = {n, n, 1};
  c.work = 32.0 * static_cast<double>(n * n);
  c.reference = [a = c.arrays[0].initial.as<double>(), b = c.arrays[1].initial.as<double>(), n](
                    size_t array, uint64_t i) { return array == 0 ? a[i] + 1.0 : b[i] + a[i % n * n + i / n]; };
  return c;
}

CpuCase MakeStar(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 2'500, 1'000, 61);
  CpuCase c{.suite = "prk", .name = "star", .sizes = "radius 2, " + Square(n), .unit = "flop"};
  c.arrays.push_back(InArray("in", RandomReals<double>(n * n, -1, 1, 6)));
  c.arrays.push_back(InArray("weights", RandomReals<double>(25, 0.1, 1, 7)));
  c.arrays.push_back(Updated(InArray("out", RandomReals<double>(n * n, 2, 3, 8))));
  c.scalars = {static_cast<int32_t>(n)};
  c.extent = {n - 4, n - 4, 1};
  c.work = 18.0 * static_cast<double>((n - 4) * (n - 4));
  c.reference = [in = c.arrays[0].initial.as<double>(), w = c.arrays[1].initial.as<double>(),
                 out = c.arrays[2].initial.as<double>(), n](size_t, uint64_t at) {
    const auto row = static_cast<int64_t>(at / n), column = static_cast<int64_t>(at % n);
    const auto last = static_cast<int64_t>(n) - 3;
    long double sum = out[at];
    if (row < 2 || column < 2 || row > last || column > last) {
      return out[at];
    }
    for (int64_t i = -2; i <= 2; ++i) {
      for (int64_t j = -2; j <= 2; ++j) {
        if (i == 0 || j == 0) {
          sum +=
              static_cast<long double>(w[(i + 2) * 5 + j + 2]) * in[(row + i) * static_cast<int64_t>(n) + column + j];
        }
      }
    }
    return static_cast<double>(sum);
  };
  return c;
}

CpuCase MakeDgemm(CpuSize size) {
  const uint64_t m = Pick<uint64_t>(size, 640, 256, 33), n = Pick<uint64_t>(size, 768, 320, 47),
                 k = Pick<uint64_t>(size, 704, 192, 21);
  CpuCase c{.suite = "prk",
            .name = "dgemm",
            .sizes = std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) + " f64",
            .is_matmul = true,
            .unit = "flop"};
  c.arrays.push_back(InArray("a", RandomReals<double>(m * k, -1, 1, 9)));
  c.arrays.push_back(InArray("b", RandomReals<double>(k * n, 0, 1, 10)));
  c.arrays.push_back(Updated(InArray("c", RandomReals<double>(m * n, 2, 3, 11))));
  c.scalars = {static_cast<int32_t>(n), static_cast<int32_t>(k)};
  c.extent = {n, m, 1};
  c.work = 2.0 * static_cast<double>(m * n * k);
  c.magnitude = 32;
  c.reference = [a = c.arrays[0].initial.as<double>(), b = c.arrays[1].initial.as<double>(),
                 out = c.arrays[2].initial.as<double>(), n, k](size_t, uint64_t at) {
    long double sum = out[at];
    for (uint64_t p = k; p-- > 0;) {
      sum += static_cast<long double>(a[at / n * k + p]) * b[p * n + at % n];
    }
    return static_cast<double>(sum);
  };
  c.error_bound = [a = c.arrays[0].initial.as<double>(), b = c.arrays[1].initial.as<double>(),
                   out = c.arrays[2].initial.as<double>(), n, k](size_t, uint64_t at) {
    double magnitudes = std::abs(out[at]);
    for (uint64_t p = 0; p < k; ++p) {
      magnitudes += std::abs(a[at / n * k + p] * b[p * n + at % n]);
    }
    return InnerProductBound<double>(k + 1, magnitudes);
  };
  return c;
}

uint32_t ReverseBits(uint32_t value, int bits) {
  uint32_t out = 0;
  for (int bit = 0; bit < bits; ++bit) {
    out |= (value >> bit & 1) << (bits - 1 - bit);
  }
  return out;
}

// The matrix of a star of radius 2 on a periodic square grid whose points are numbered in bit-reversed order.
std::vector<int32_t> StarColumns(int log_side) {
  const uint32_t side = 1u << log_side, rows = side * side;
  std::vector<int32_t> columns;
  columns.reserve(rows * uint64_t{9});
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t i = row >> log_side, j = row & (side - 1);
    const auto add = [&](uint32_t at_i, uint32_t at_j) {
      const uint32_t point = (at_i & (side - 1)) << log_side | (at_j & (side - 1));
      columns.push_back(static_cast<int32_t>(ReverseBits(point, 2 * log_side)));
    };
    add(i, j);
    for (uint32_t r = 1; r <= 2; ++r) {
      add(i, j + r), add(i, j - r), add(i + r, j), add(i - r, j);
    }
  }
  return columns;
}

CpuCase MakeSparse(CpuSize size) {
  const int log_side = Pick(size, 10, 8, 4);
  const uint64_t rows = uint64_t{1} << 2 * log_side;
  constexpr uint64_t kPerRow = 9;
  CpuCase c{.suite = "prk", .name = "sparse", .sizes = std::to_string(rows) + " rows of 9, f64", .unit = "flop"};
  c.arrays.push_back(InArray("matrix", RandomReals<double>(rows * kPerRow, -1, 2, 12)));
  c.arrays.push_back(InArray("columns", StarColumns(log_side)));
  c.arrays.push_back(InArray("vector", RandomReals<double>(rows, 1, 2, 13)));
  c.arrays.push_back(Updated(InArray("result", RandomReals<double>(rows, -3, -2, 14))));
  c.scalars = {static_cast<int32_t>(kPerRow)};
  c.extent = {rows, 1, 1};
  c.work = 2.0 * static_cast<double>(rows * kPerRow);
  c.magnitude = 10;
  c.reference = [m = c.arrays[0].initial.as<double>(), columns = c.arrays[1].initial.as<int32_t>(),
                 x = c.arrays[2].initial.as<double>(), y = c.arrays[3].initial.as<double>()](size_t, uint64_t row) {
    long double sum = y[row];
    for (uint64_t k = (row + 1) * kPerRow; k-- > row * kPerRow;) {
      sum += static_cast<long double>(m[k]) * x[static_cast<uint32_t>(columns[k])];
    }
    return static_cast<double>(sum);
  };
  return c;
}

CpuCase MakeReduce(CpuSize size) {
  const uint64_t length = Pick<uint64_t>(size, 2'000'003, 250'007, 1'003);
  constexpr uint64_t kCount = 8;
  CpuCase c{.suite = "prk", .name = "reduce", .sizes = "8 vectors of " + std::to_string(length) + " f64", .unit = "B"};
  c.arrays.push_back(InArray("vectors", RandomReals<double>(kCount * length, -1, 2, 15)));
  c.arrays.push_back(OutArray("sum", ElementType::kF64, length));
  c.scalars = {static_cast<int32_t>(kCount), static_cast<int32_t>(length)};
  c.extent = {length, 1, 1};
  c.work = 8.0 * static_cast<double>((kCount + 1) * length);
  c.magnitude = 4;
  c.reference = [v = c.arrays[0].initial.as<double>(), length](size_t, uint64_t i) {
    long double sum = 0;
    for (uint64_t k = kCount; k-- > 0;) {
      sum += v[k * length + i];
    }
    return static_cast<double>(sum);
  };
  return c;
}

constexpr uint64_t kFields = 7;  // PARTICLE_FIELDS in bench/cpu/prk.h: x, y, vx, vy, q, x0, y0.
constexpr double kStep = 0.125;

// Not too close to a grid point, where the force grows without bound.
std::vector<double> Particles(uint64_t count, uint64_t cells) {
  SeededRng rng(16);
  std::vector<double> out(count * kFields);
  const auto real = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(rng.Next() >> 11) * 0x1p-53;
  };
  for (uint64_t i = 0; i < count; ++i) {
    double* p = &out[i * kFields];
    p[0] = p[5] = static_cast<double>(rng.Below(cells)) + real(0.1, 0.9);
    p[1] = p[6] = static_cast<double>(rng.Below(cells)) + real(0.1, 0.9);
    p[2] = real(-3, 2);
    p[3] = real(-1, 4);
    p[4] = real(0.25, 1);
  }
  return out;
}

// Columns of charges of alternating sign and different strengths.
std::vector<double> Charges(uint64_t cells) {
  std::vector<double> out = RandomReals<double>((cells + 1) * (cells + 1), 0.5, 1.5, 17);
  for (uint64_t i = 0; i < out.size(); ++i) {
    out[i] = i % (cells + 1) % 2 == 0 ? out[i] : -out[i];
  }
  return out;
}

// Returns one field of a particle after a step.
double Moved(std::span<const double> particle, std::span<const double> charges, uint64_t cells, uint64_t field) {
  const bool is_y = field == 1 || field == 3;
  if (field > 3) {
    return particle[field];
  }
  const auto column = static_cast<uint64_t>(std::floor(particle[0]));
  const auto row = static_cast<uint64_t>(std::floor(particle[1]));
  long double force = 0;
  for (uint64_t corner = 0; corner < 4; ++corner) {
    const uint64_t at_x = column + corner % 2, at_y = row + corner / 2;
    const long double dx = particle[0] - static_cast<long double>(at_x);
    const long double dy = particle[1] - static_cast<long double>(at_y);
    const long double distance = std::hypot(dx, dy);
    force += particle[4] * charges[at_y * (cells + 1) + at_x] * (is_y ? dy : dx) / (distance * distance * distance);
  }
  const long double velocity = particle[is_y ? 3 : 2];
  if (field > 1) {
    return static_cast<double>(velocity + force * kStep);
  }
  const auto side = static_cast<long double>(cells);
  const long double moved = particle[field] + velocity * kStep + force * kStep * kStep / 2;
  return static_cast<double>(moved - side * std::floor(moved / side));
}

CpuCase MakePic(CpuSize size) {
  const uint64_t count = Pick<uint64_t>(size, 1'000'003, 100'003, 503), cells = Pick<uint64_t>(size, 1'000, 300, 20);
  CpuCase c{.suite = "prk",
            .name = "pic",
            .sizes = std::to_string(count) + " particles on " + Square(cells),
            .unit = "particle"};
  c.arrays.push_back(InArray("charges", Charges(cells)));
  c.arrays.push_back(Updated(InArray("particles", Particles(count, cells))));
  c.scalars = {static_cast<int32_t>(cells), kStep};
  c.extent = {count, 1, 1};
  c.work = static_cast<double>(count);
  c.tolerance = 1e-11;
  c.magnitude = 100;
  c.reference = [charges = c.arrays[0].initial.as<double>(), particles = c.arrays[1].initial.as<double>(), cells](
                    size_t, uint64_t at) {
    return Moved(particles.subspan(at / kFields * kFields, kFields), charges, cells, at % kFields);
  };
  return c;
}

constexpr CpuCaseMaker kCases[] = {
    {"nstream", MakeNstream}, {"transpose", MakeTranspose}, {"star", MakeStar}, {"dgemm", MakeDgemm},
    {"sparse", MakeSparse},   {"reduce", MakeReduce},       {"pic", MakePic},
};

}  // namespace

std::span<const CpuCaseMaker> PrkCases() { return kCases; }

}  // namespace hpvm::bench
