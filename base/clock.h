// SPDX-License-Identifier: Apache-2.0
// Time and randomness as parameters, so that simulations can be replayed from a seed.
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
  // Monotonic time. Thread-safe.
  virtual Time Now() const = 0;
  // Nanoseconds since the Unix epoch, for people; may jump. Thread-safe.
  virtual int64_t WallNs() const = 0;
};

// Returns the machine's clock, which is never destroyed.
const Clock& RealClock();

// A clock set by hand, for tests and simulation.
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
  // Returns a number uniform in [0, bound); bound > 0. The bias (below 2^-32 for bounds under 2^32) is negligible here.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  // Fills `into` with the bytes of as many numbers as needed.
  void Fill(std::span<uint8_t> into);
};

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): one word of state; every seed is good.
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

// Random numbers of the kernel (getrandom), for ids that must not be guessable. Thread-safe.
Rng& SystemRng();

}  // namespace hpvm

#endif  // HPVMD_BASE_CLOCK_H_
