// SPDX-License-Identifier: Apache-2.0
// How long a process may take to do what it was asked to (stop a run), and how much longer when the machine did not let
// it run: one that has used up its grace's worth of processor time without stopping will not stop, one that got none
// may. Pure.
#ifndef HPVMD_SUPERVISOR_STOP_PATIENCE_H_
#define HPVMD_SUPERVISOR_STOP_PATIENCE_H_

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/clock.h"

namespace hpvm::supervisor {

class StopPatience {
 public:
  // Even a process that never runs has no longer than this beyond its grace.
  static constexpr Duration kLongerMax = std::chrono::milliseconds(900);

  StopPatience() = default;
  // `cpu`: what the process has used so far; empty where that means nothing (its work is on a device) or is unknown.
  StopPatience(Time asked, Duration grace, std::optional<Duration> cpu) : asked_(asked), grace_(grace), cpu_(cpu) {}

  Time asked() const { return asked_; }
  Time end() const { return asked_ + grace_; }
  // After end(): until when to wait on; empty: no longer.
  std::optional<Time> Longer(Time now, std::optional<Duration> cpu) const {
    const Time last = end() + kLongerMax;
    if (!cpu_.has_value() || !cpu.has_value() || now >= last || *cpu - *cpu_ >= grace_ / 2) {
      return std::nullopt;
    }
    // It needs at least what is missing.
    return std::min(last, now + std::max<Duration>(grace_ / 2 - (*cpu - *cpu_), std::chrono::milliseconds(5)));
  }

 private:
  Time asked_{0};
  Duration grace_{0};
  std::optional<Duration> cpu_;
};

}  // namespace hpvm::supervisor

#endif  // HPVMD_SUPERVISOR_STOP_PATIENCE_H_
