// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <sys/random.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "base/status.h"

namespace hpvm {
namespace {

int64_t ReadNs(clockid_t id) {
  timespec now;
  HPVMD_CHECK(clock_gettime(id, &now) == 0);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class MachineClock final : public Clock {
 public:
  Time Now() const override { return Time(ReadNs(CLOCK_MONOTONIC)); }
  int64_t WallNs() const override { return ReadNs(CLOCK_REALTIME); }
};

class KernelRng final : public Rng {
 public:
  uint64_t Next() override {
    uint64_t value;
    HPVMD_CHECK(getrandom(&value, sizeof(value), 0) == sizeof(value));
    return value;
  }
};

}  // namespace

void Rng::Fill(std::span<uint8_t> into) {
  for (size_t i = 0; i < into.size(); i += sizeof(uint64_t)) {
    const uint64_t word = Next();
    std::memcpy(&into[i], &word, std::min(sizeof(word), into.size() - i));
  }
}

const Clock& RealClock() {
  // Never destroyed, because code that runs at exit also reads the time.
  static const MachineClock& clock = *new MachineClock;
  return clock;
}

Rng& SystemRng() {
  static KernelRng rng;
  return rng;
}

}  // namespace hpvm
