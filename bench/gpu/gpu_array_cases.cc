// SPDX-License-Identifier: Apache-2.0
// Kernels whose instances keep a private array, in addition to those of bench/cpu/cpu_small_arrays.cc.
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "bench/gpu/gpu_case.h"

namespace hpvm::bench {
namespace {

// FIPS 202, section 3.2.5: the round constants, from a shift register of eight bits. Low word, high word.
std::vector<int32_t> KeccakConstants() {
  std::vector<int32_t> constants;
  uint32_t state = 1;
  for (int round = 0; round < 24; ++round) {
    uint64_t constant = 0;
    for (uint32_t j = 0; j < 7; ++j) {
      constant |= static_cast<uint64_t>(state & 1) << ((1u << j) - 1);
      state = (state << 1) ^ ((state >> 7) * 0x171);
    }
    constants.push_back(static_cast<int32_t>(static_cast<uint32_t>(constant)));
    constants.push_back(static_cast<int32_t>(static_cast<uint32_t>(constant >> 32)));
  }
  return constants;
}

std::vector<int32_t> RandomWords(uint64_t count, uint64_t seed) {
  SeededRng rng(seed);
  std::vector<int32_t> words(count);
  for (int32_t& word : words) {
    word = static_cast<int32_t>(static_cast<uint32_t>(rng.Next()));
  }
  return words;
}

CpuCase MakeKeccak(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 1 << 20, 1 << 14, 256);
  constexpr uint64_t kWords = 16;
  CpuCase c{
      .suite = "small_arrays", .name = "keccak", .sizes = std::to_string(n) + " messages of 64 B", .unit = "message"};
  c.arrays.push_back(InArray("messages", RandomWords(kWords * n, 75)));
  c.arrays.push_back(InArray("constants", KeccakConstants()));
  c.arrays.push_back(OutArray("hashes", ElementType::kI32, 8 * n));
  c.extent = {n, 1, 1};
  c.work = static_cast<double>(n);
  c.tolerance = 0;
  c.samples = 4'000;
  // This machine is little-endian, like the words of FIPS 202.
  c.reference = [words = c.arrays[0].initial.as<int32_t>()](size_t, uint64_t at) {
    std::array<int32_t, 8> hash{};
    unsigned bytes = 0;
    HPVMD_CHECK(EVP_Digest(&words[at / 8 * kWords], 4 * kWords, reinterpret_cast<uint8_t*>(hash.data()), &bytes,
                           EVP_sha3_256(), nullptr) == 1);
    return static_cast<double>(hash[at % 8]);
  };
  return c;
}

CpuCase MakePaths(CpuSize size) {
  const uint64_t n = Pick<uint64_t>(size, 1 << 22, 1 << 15, 256);
  constexpr float kDrift = 1.0003f, kSpread = 0.02f;
  CpuCase c{
      .suite = "small_arrays", .name = "paths", .sizes = std::to_string(n) + " paths of 80 steps", .unit = "path"};
  c.arrays.push_back(InArray("seeds", RandomWords(n, 76)));
  c.arrays.push_back(OutArray("falls", ElementType::kF32, n));
  c.scalars = {kDrift, kSpread};
  c.extent = {n, 1, 1};
  c.work = static_cast<double>(n);
  c.tolerance = 2e-5;
  c.reference = [seeds = c.arrays[0].initial.as<int32_t>()](size_t, uint64_t at) {
    auto state = static_cast<uint32_t>(seeds[at]);
    double price = 1, highest = 0, fall = 0;
    for (int k = 0; k < 80; ++k) {
      state = state * 1664525u + 1013904223u;
      price *= static_cast<double>(kDrift) + static_cast<double>(kSpread) * ((state >> 8) / 8388608.0 - 1);
      highest = std::max(highest, price);
      fall = std::max(fall, highest - price);
    }
    return fall;
  };
  return c;
}

CpuCase MakeLattice(CpuSize size) {
  const uint64_t order = Pick<uint64_t>(size, 4'096, 256, 32);
  constexpr uint64_t kDirections = 9;
  constexpr float kOmega = 1.2f;
  CpuCase c{.suite = "small_arrays",
            .name = "lattice",
            .sizes = std::to_string(order) + " x " + std::to_string(order) + " cells, 9 directions",
            .unit = "B"};
  c.arrays.push_back(InArray("source", RandomReals<float>(kDirections * order * order, 0.1, 0.2, 77)));
  c.arrays.push_back(OutArray("target", ElementType::kF32, kDirections * order * order));
  c.scalars = {kOmega, static_cast<int32_t>(order), static_cast<int32_t>(order)};
  c.extent = {order, order, 1};
  c.work = 2.0 * 4 * static_cast<double>(kDirections * order * order);
  c.tolerance = 2e-6;
  c.reference = [source = c.arrays[0].initial.as<float>(), order](size_t, uint64_t at) {
    constexpr std::array<std::array<int, 2>, kDirections> kSteps = {
        {{0, 0}, {1, 0}, {0, 1}, {-1, 0}, {0, -1}, {1, 1}, {-1, 1}, {-1, -1}, {1, -1}}};
    const uint64_t cells = order * order, x = at % order, y = at % cells / order;
    const auto turned = [order](uint64_t i, int step) { return (i + order - static_cast<uint64_t>(step)) % order; };
    std::array<double, kDirections> f{};
    double density = 0, along_x = 0, along_y = 0;
    for (size_t d = 0; d < kDirections; ++d) {
      f[d] = source[d * cells + turned(y, kSteps[d][1]) * order + turned(x, kSteps[d][0])];
      density += f[d];
      along_x += kSteps[d][0] * f[d];
      along_y += kSteps[d][1] * f[d];
    }
    along_x /= density;
    along_y /= density;
    const size_t own = at / cells;
    const double along = kSteps[own][0] * along_x + kSteps[own][1] * along_y;
    const double weight = own == 0 ? 4.0 / 9 : own < 5 ? 1.0 / 9 : 1.0 / 36;
    const double rest =
        weight * density * (1 + 3 * along + 4.5 * along * along - 1.5 * (along_x * along_x + along_y * along_y));
    return f[own] + static_cast<double>(kOmega) * (rest - f[own]);
  };
  return c;
}

constexpr CpuCaseMaker kCases[] = {{"keccak", MakeKeccak}, {"paths", MakePaths}, {"lattice", MakeLattice}};

}  // namespace

std::span<const CpuCaseMaker> GpuArrayCases() { return kCases; }

}  // namespace hpvm::bench
