// SPDX-License-Identifier: Apache-2.0
// KillGrace decides how long a process may take to stop a run, and how much longer when the machine did not let the
// process run: a process that has used its grace's worth of processor time without stopping will not stop, one that got
// none may. Pure.
#ifndef HPVMD_SUPERVISOR_KILL_GRACE_H_
#define HPVMD_SUPERVISOR_KILL_GRACE_H_

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/clock.h"

namespace hpvm::supervisor {

class KillGrace {
 public:
  // Limit beyond the grace, even for a process that never runs.
  static constexpr Duration kLongerMax = std::chrono::milliseconds(900);

  KillGrace() = default;
  // `cpu` is the processor time used so far; nullopt when that is meaningless (its work is on a device) or unknown.
  KillGrace(Time asked, Duration grace, std::optional<Duration> cpu) : asked_(asked), grace_(grace), cpu_(cpu) {}

  Time asked() const { return asked_; }
  Time end() const { return asked_ + grace_; }
  // After end(): returns until when to keep waiting; nullopt: no longer.
  std::optional<Time> Longer(Time now, std::optional<Duration> cpu) const {
    const Time last = end() + kLongerMax;
    if (!cpu_.has_value() || !cpu.has_value() || now >= last || *cpu - *cpu_ >= grace_ / 2) {
      return std::nullopt;
    }
    // It needs at least the missing processor time.
    return std::min(last, now + std::max<Duration>(grace_ / 2 - (*cpu - *cpu_), std::chrono::milliseconds(5)));
  }

 private:
  Time asked_{0};
  Duration grace_{0};
  std::optional<Duration> cpu_;
};

}  // namespace hpvm::supervisor

#endif  // HPVMD_SUPERVISOR_KILL_GRACE_H_
