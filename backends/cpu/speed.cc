// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/speed.h"

#include <algorithm>

#include "backends/cpu/image.h"
#include "backends/shared/ticks.h"

namespace hpvm::cpu {
namespace {

// Approximate memory bandwidth of one core, and the number of cores that saturate the memory.
constexpr double kBytesPerSecond = 8e9;
constexpr uint32_t kThreadsOfMemory = 16;
// Overhead of a walk per command (measured: 0.07 µs).
constexpr double kLaunchNs = 70;

// Returns cycles per second, measured by dependent additions, which take one cycle each on every known processor.
double Frequency() {
  constexpr uint32_t kAdditions = 16'000;
  uint64_t least_ns = ~uint64_t{0};
  for (int round = 0; round < 4; ++round) {
    const uint64_t start = backends::Ticks::MonotonicNs();
    uint64_t sum = start;
    for (uint32_t i = 0; i < kAdditions / 16; ++i) {
#if defined(__x86_64__)
      asm volatile(".rept 16\n\tadd $1, %0\n\t.endr" : "+r"(sum));
#elif defined(__aarch64__)
      asm volatile(".rept 16\n\tadd %0, %0, #1\n\t.endr" : "+r"(sum));
#endif
    }
    least_ns = std::min(least_ns, backends::Ticks::MonotonicNs() - start);
  }
  return kAdditions * 1e9 / static_cast<double>(std::max<uint64_t>(least_ns, 1));
}

uint32_t Lanes() {
  return CheckTarget("x86-64-v4").ok() ? 16 : CheckTarget("x86-64-v3").ok() ? 8 : 4;
}

}  // namespace

ProcessorSpeed SpeedOf(uint32_t threads) {
  // Assumes a multiplication and an addition per cycle and lane: half of what the best loops reach.
  return {.operations_per_second = Frequency() * Lanes() * 2 * threads,
          .bytes_per_second = kBytesPerSecond * std::min(threads, kThreadsOfMemory),
          .launch_ns = kLaunchNs};
}

}  // namespace hpvm::cpu
