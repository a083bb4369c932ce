// SPDX-License-Identifier: Apache-2.0
// Time and randomness as parameters, so that simulations replay from a seed.
#ifndef HPVMD_BASE_CLOCK_H_
#define HPVMD_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>
#include <span>

#include "hpvm/types.h"

namespace hpvm {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic. Any thread.
  virtual Time Now() const = 0;
  // Nanoseconds since the Unix epoch, for people; may jump. Any thread.
  virtual int64_t WallNs() const = 0;
};

// The machine's clock. Lives for ever.
const Clock& RealClock();

// Set by hand, for tests and simulation.
class ManualClock final : public Clock {
 public:
  Time Now() const override { return now_; }
  int64_t WallNs() const override { return wall_offset_ns_ + now_.count(); }
  void Advance(Duration by) { now_ += by; }
  void JumpWall(int64_t by_ns) { wall_offset_ns_ += by_ns; }

 private:
  Time now_{0};
  int64_t wall_offset_ns_ = 1'700'000'000'000'000'000;
};

class Rng {
 public:
  virtual ~Rng() = default;
  virtual uint64_t Next() = 0;
  // Uniform in [0, bound); bound > 0. The bias (below 2^-32 for bounds under 2^32) does not matter to us.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  // With the bytes of as many numbers as are needed.
  void Fill(std::span<uint8_t> into);
};

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): one word of state, every seed good.
class SeededRng final : public Rng {
 public:
  explicit SeededRng(uint64_t seed) : state_(seed) {}
  uint64_t Next() override {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

// The kernel's random numbers (getrandom): for ids that must not be guessed. Any thread.
Rng& SystemRng();

}  // namespace hpvm

#endif  // HPVMD_BASE_CLOCK_H_
