// SPDX-License-Identifier: Apache-2.0
// The generator's random numbers: the same seed gives the same numbers on every machine and library.
#ifndef HPVMD_TESTS_DIFF_RANDOM_H_
#define HPVMD_TESTS_DIFF_RANDOM_H_

#include <cstdint>
#include <vector>

namespace hpvm::diff {

// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Returns a number in [0, count); count is not 0.
  uint32_t Below(uint32_t count) { return static_cast<uint32_t>((Next() >> 32) * count >> 32); }
  uint32_t Between(uint32_t low, uint32_t high) { return low + Below(high - low + 1); }
  bool Percent(uint32_t percent) { return Below(100) < percent; }
  template <typename T>
  const T& Pick(const std::vector<T>& items) {
    return items[Below(static_cast<uint32_t>(items.size()))];
  }

 private:
  uint64_t state_;
};

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_RANDOM_H_
