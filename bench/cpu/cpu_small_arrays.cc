// SPDX-License-Identifier: Apache-2.0
// Kernels whose instances keep small private arrays or read several neighbours: sizes, inputs and references.
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/hash.h"
#include "bench/cpu/cpu_case.h"

namespace hpvm::bench {
namespace {

using Complex = std::complex<double>;

Complex ComplexAt(std::span<const float> values, uint64_t i) { return {values[2 * i], values[2 * i + 1]}; }
double PartOf(const Complex& value, uint64_t at) { return at % 2 == 0 ? value.real() : value.imag(); }

CpuCase MakeOf(const char* name, std::string sizes, const char* unit, uint64_t n, double work) {
  CpuCase c{.suite = "small_arrays", .name = name, .sizes = std::move(sizes), .unit = unit};
  c.extent = {n, 1, 1};
  c.work = work;
  return c;
}

CpuCase MakeComplexProduct(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 4'000'003, 400'003, 1'003, 1 << 24);
  CpuCase c = MakeOf("complex_product", std::to_string(n) + " complex f32", "B", n, 24.0 * static_cast<double>(n));
  c.arrays.push_back(InArray("a", RandomReals<float>(2 * n, -1, 1, 61)));
  c.arrays.push_back(InArray("b", RandomReals<float>(2 * n, -1, 1, 62)));
  c.arrays.push_back(OutArray("c", ElementType::kF32, 2 * n));
  c.tolerance = 1e-6;
  c.reference = [a = c.arrays[0].initial.as<float>(), b = c.arrays[1].initial.as<float>()](size_t, uint64_t at) {
    return PartOf(ComplexAt(a, at / 2) * ComplexAt(b, at / 2), at);
  };
  return c;
}

CpuCase MakeUnitVectors(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 400'003, 100'003, 1'003, 1 << 24);
  CpuCase c = MakeOf("unit_vectors", std::to_string(n) + " vectors of 4 f32", "B", n, 32.0 * static_cast<double>(n));
  c.arrays.push_back(InArray("in", RandomReals<float>(4 * n, -1, 1, 74)));
  c.arrays.push_back(OutArray("out", ElementType::kF32, 4 * n));
  c.tolerance = 1e-6;
  c.reference = [in = c.arrays[0].initial.as<float>()](size_t, uint64_t at) {
    const std::span<const float> v = in.subspan(at / 4 * 4, 4);
    return v[at % 4] / std::hypot(std::hypot(v[0], v[1]), std::hypot(double{v[2]}, double{v[3]}));
  };
  return c;
}

CpuCase MakeComplexMatrices(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 200'003, 20'003, 103, 1 << 21);
  constexpr uint64_t kNumbers = 18;
  CpuCase c = MakeOf("complex_matrices", std::to_string(n) + " products of 3 x 3 complex f32", "flop", n,
                     216.0 * static_cast<double>(n));
  c.arrays.push_back(InArray("a", RandomReals<float>(kNumbers * n, -1, 1, 63)));
  c.arrays.push_back(InArray("b", RandomReals<float>(kNumbers * n, -1, 1, 64)));
  c.arrays.push_back(OutArray("c", ElementType::kF32, kNumbers * n));
  c.tolerance = 2e-6;
  c.magnitude = 6;
  c.reference = [a = c.arrays[0].initial.as<float>(), b = c.arrays[1].initial.as<float>()](size_t, uint64_t at) {
    const uint64_t matrix = at / kNumbers * 9, row = at % kNumbers / 6, column = at % 6 / 2;
    Complex sum = 0;
    for (uint64_t k = 0; k < 3; ++k) {
      sum += ComplexAt(a, matrix + 3 * row + k) * ComplexAt(b, matrix + 3 * k + column);
    }
    return PartOf(sum, at);
  };
  return c;
}

// Decrypts one block of XTEA: the inputs are decrypted random blocks, so that the kernel must return the random
// blocks.
std::array<uint32_t, 2> Decrypt(const std::vector<int32_t>& key, uint32_t rounds, std::array<uint32_t, 2> block) {
  constexpr uint32_t kDelta = 0x9e3779b9;
  for (uint32_t sum = rounds * kDelta; sum != 0;) {
    const auto mix = [&](uint32_t half, uint32_t word) {
      return (((half << 4) ^ (half >> 5)) + half) ^ (sum + static_cast<uint32_t>(key[word]));
    };
    block[1] -= mix(block[0], (sum >> 11) % 4);
    sum -= kDelta;
    block[0] -= mix(block[1], sum % 4);
  }
  return block;
}

CpuCase MakeXtea(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 1'000'003, 100'003, 1'003, 1 << 22);
  constexpr uint32_t kRounds = 32;
  const std::vector<int32_t> key = {0x01234567, -0x76543211, 0x0badcafe, -0x12345678};
  CpuCase c = MakeOf("xtea", std::to_string(n) + " blocks, 32 rounds", "block", n, static_cast<double>(n));
  SeededRng rng(65);
  std::vector<int32_t> plain(2 * n), expected(2 * n);
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t bits = rng.Next();
    const std::array<uint32_t, 2> block{static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
    const std::array<uint32_t, 2> before = Decrypt(key, kRounds, block);
    for (uint64_t half = 0; half < 2; ++half) {
      plain[2 * i + half] = static_cast<int32_t>(before[half]);
      expected[2 * i + half] = static_cast<int32_t>(block[half]);
    }
  }
  c.arrays.push_back(InArray("key", key));
  c.arrays.push_back(Updated(InArray("blocks", std::move(plain))));
  c.scalars = {static_cast<int32_t>(kRounds)};
  c.tolerance = 0;
  c.reference = [expected = std::move(expected)](size_t, uint64_t at) { return static_cast<double>(expected[at]); };
  return c;
}

// FIPS 180-4, sections 4.2.2 and 5.3.3: the first 32 bits of the fractional parts of the cube roots of the first 64
// primes, and of the square roots of the first 8.
std::vector<int32_t> Sha256Constants() {
  std::vector<int32_t> constants, state;
  for (int candidate = 2; constants.size() < 64; ++candidate) {
    int divisor = 2;
    while (candidate % divisor != 0) {
      ++divisor;
    }
    if (divisor != candidate) {
      continue;
    }
    const auto fraction = [](long double root) {
      return static_cast<int32_t>(static_cast<uint32_t>((root - std::floor(root)) * 0x1p32L));
    };
    constants.push_back(fraction(std::cbrt(static_cast<long double>(candidate))));
    if (state.size() < 8) {
      state.push_back(fraction(std::sqrt(static_cast<long double>(candidate))));
    }
  }
  constants.insert(constants.end(), state.begin(), state.end());
  return constants;
}

CpuCase MakeSha256(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 200'003, 20'003, 203, 1 << 21);
  constexpr uint64_t kWords = 13;
  CpuCase c = MakeOf("sha256", std::to_string(n) + " messages of 52 B", "message", n, static_cast<double>(n));
  SeededRng rng(66);
  std::vector<int32_t> messages(kWords * n);
  for (int32_t& word : messages) {
    word = static_cast<int32_t>(static_cast<uint32_t>(rng.Next()));
  }
  c.arrays.push_back(InArray("messages", std::move(messages)));
  c.arrays.push_back(InArray("constants", Sha256Constants()));
  c.arrays.push_back(OutArray("hashes", ElementType::kI32, 8 * n));
  c.tolerance = 0;
  c.reference = [words = c.arrays[0].initial.as<int32_t>()](size_t, uint64_t at) {
    std::array<uint8_t, 4 * kWords> message{};
    for (uint64_t i = 0; i < message.size(); ++i) {
      message[i] = static_cast<uint8_t>(static_cast<uint32_t>(words[at / 8 * kWords + i / 4]) >> (24 - 8 * (i % 4)));
    }
    const Sha256 hash = HashOf(std::span<const uint8_t>(message));
    uint32_t word = 0;
    for (uint64_t i = 0; i < 4; ++i) {
      word = word << 8 | hash.bytes[at % 8 * 4 + i];
    }
    return static_cast<double>(static_cast<int32_t>(word));
  };
  return c;
}

CpuCase MakeBinomial(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 20'003, 4'003, 203, 1 << 20);
  constexpr int kSteps = 64;
  // A step of a year's 64th at a volatility of 0.3 and a rate of 0.02.
  const float up = std::exp(0.3f / 8), growth = std::exp(0.02f / 64);
  const float weight = (growth - 1 / up) / (up - 1 / up);
  const float up_weight = weight / growth, down_weight = (1 - weight) / growth;
  CpuCase c = MakeOf("binomial", std::to_string(n) + " American puts, 64 steps", "option", n, static_cast<double>(n));
  c.arrays.push_back(InArray("prices", RandomReals<float>(n, 5, 30, 67)));
  c.arrays.push_back(InArray("strikes", RandomReals<float>(n, 5, 30, 68)));
  c.arrays.push_back(OutArray("puts", ElementType::kF32, n));
  c.scalars = {up, up_weight, down_weight};
  c.tolerance = 2e-5;
  c.magnitude = 30;
  c.samples = 400;
  c.reference = [=, prices = c.arrays[0].initial.as<float>(), strikes = c.arrays[1].initial.as<float>()](size_t,
                                                                                                         uint64_t at) {
    const auto worth = [&](int step, int ups) {
      return std::max(0.0, strikes[at] - prices[at] * std::pow(static_cast<double>(up), 2 * ups - step));
    };
    std::vector<double> values;
    for (int ups = 0; ups <= kSteps; ++ups) {
      values.push_back(worth(kSteps, ups));
    }
    for (int step = kSteps - 1; step >= 0; --step) {
      for (int ups = 0; ups <= step; ++ups) {
        const auto k = static_cast<size_t>(ups);
        values[k] = std::max(worth(step, ups), up_weight * values[k + 1] + down_weight * values[k]);
      }
    }
    return values[0];
  };
  return c;
}

CpuCase MakeSortRows(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 500'003, 100'003, 203, 1 << 23);
  constexpr uint64_t kRow = 8;
  CpuCase c = MakeOf("sort_rows", std::to_string(n) + " rows of 8 f32", "element", n, static_cast<double>(kRow * n));
  std::vector<float> values = RandomReals<float>(kRow * n, -1, 1, 69), sorted = values;
  for (auto row = sorted.begin(); row != sorted.end(); row += kRow) {
    std::sort(row, row + kRow);
  }
  c.arrays.push_back(Updated(InArray("values", std::move(values))));
  c.tolerance = 0;
  c.reference = [sorted = std::move(sorted)](size_t, uint64_t at) { return static_cast<double>(sorted[at]); };
  return c;
}

CpuCase MakeDocking(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 8'003, 1'003, 103, 1 << 17),
                 atoms = Pick<uint64_t>(size, 512, 256, 32, 1'024);
  constexpr uint64_t kLigand = 16;
  constexpr float kReach = 4;
  CpuCase c = MakeOf("docking", std::to_string(n) + " poses of 16 atoms, " + std::to_string(atoms) + " atoms", "pair",
                     n, static_cast<double>(n * atoms * kLigand));
  c.is_bitwise = false;
  c.arrays.push_back(InArray("ligand", RandomReals<float>(4 * kLigand, -1, 1, 70)));
  c.arrays.push_back(InArray("protein", RandomReals<float>(4 * atoms, -4, 4, 71)));
  c.arrays.push_back(InArray("poses", RandomReals<float>(4 * n, -3, 3, 72)));
  c.arrays.push_back(OutArray("scores", ElementType::kF32, n));
  c.scalars = {kReach, static_cast<int32_t>(atoms)};
  c.tolerance = 1e-5;
  c.magnitude = static_cast<double>(atoms);
  c.samples = 1'000;
  c.reference = [ligand = c.arrays[0].initial.as<float>(), protein = c.arrays[1].initial.as<float>(),
                 poses = c.arrays[2].initial.as<float>(), atoms](size_t, uint64_t at) {
    const std::span<const float> pose = poses.subspan(4 * at, 4);
    double score = 0;
    for (uint64_t k = 0; k < kLigand; ++k) {
      const std::span<const float> own = ligand.subspan(4 * k, 4);
      const Complex turned = ComplexAt(own, 0) * std::polar(1.0, static_cast<double>(pose[0]));
      for (uint64_t p = 0; p < atoms; ++p) {
        const std::span<const float> other = protein.subspan(4 * p, 4);
        const double distance = std::hypot(turned.real() + pose[1] - other[0], turned.imag() + pose[2] - other[1],
                                           static_cast<double>(own[2]) + pose[3] - other[2]);
        score += static_cast<double>(own[3]) * other[3] * std::max(0.0, 1 - distance / kReach);
      }
    }
    return score;
  };
  return c;
}

CpuCase MakeStencil27(CpuSize size) {
  const uint64_t nx = Pick<uint64_t>(size, 250, 130, 37, 512), ny = Pick<uint64_t>(size, 200, 66, 9, 512),
                 nz = Pick<uint64_t>(size, 64, 34, 5, 256);
  constexpr float kOwn = 0.5f, kOthers = 1.0f / 54;
  CpuCase c = MakeOf("stencil27",
                     std::to_string(nx) + " x " + std::to_string(ny) + " x " + std::to_string(nz) + ", clamped borders",
                     "element", nx, static_cast<double>(nx * ny * nz));
  c.arrays.push_back(InArray("in", RandomReals<float>(nx * ny * nz, 0, 1, 73)));
  c.arrays.push_back(OutArray("out", ElementType::kF32, nx * ny * nz));
  c.scalars = {kOwn, kOthers, static_cast<int32_t>(nx), static_cast<int32_t>(ny), static_cast<int32_t>(nz)};
  c.extent = {nx, ny, nz};
  c.tolerance = 2e-6;
  c.reference = [=, in = c.arrays[0].initial.as<float>()](size_t, uint64_t at) {
    const auto near = [](uint64_t i, uint64_t n) {
      return std::array<uint64_t, 3>{i == 0 ? 0 : i - 1, i, std::min(i + 1, n - 1)};
    };
    double sum = 0;
    for (const uint64_t k : near(at / nx / ny, nz)) {
      for (const uint64_t j : near(at / nx % ny, ny)) {
        for (const uint64_t i : near(at % nx, nx)) {
          sum += in[(k * ny + j) * nx + i];
        }
      }
    }
    return static_cast<double>(kOwn) * in[at] + kOthers * sum;
  };
  return c;
}

constexpr CpuCaseMaker kCases[] = {
    {"complex_product", MakeComplexProduct},
    {"unit_vectors", MakeUnitVectors},
    {"complex_matrices", MakeComplexMatrices},
    {"xtea", MakeXtea},
    {"sha256", MakeSha256},
    {"binomial", MakeBinomial},
    {"sort_rows", MakeSortRows},
    {"docking", MakeDocking},
    {"stencil27", MakeStencil27},
};

}  // namespace

std::span<const CpuCaseMaker> SmallArrayCases() { return kCases; }

}  // namespace hpvm::bench
