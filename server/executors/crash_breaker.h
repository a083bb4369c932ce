// SPDX-License-Identifier: Apache-2.0
// When a tenant's executors crash again and again: none starts for a while, then one may try, and each try that fails
// makes the next wait longer.
#ifndef HPVMD_SERVER_EXECUTORS_CRASH_BREAKER_H_
#define HPVMD_SERVER_EXECUTORS_CRASH_BREAKER_H_

#include <cstdint>
#include <deque>

#include "base/clock.h"

namespace hpvm::server {

// Guarded by its owner. Limits come with each call, as the configuration has them now.
class CrashBreaker {
 public:
  struct Limits {
    uint64_t crashes_max = 3;  // Within the window; as many open it.
    Duration window{0};
  };
  // The longest wait, unless the window is longer.
  static constexpr Duration kPauseMax = std::chrono::minutes(10);

  // An executor ended by itself, having been ready for `lived` (0: never).
  void Crashed(Time now, Duration lived, const Limits& limits, Rng& rng);
  // How long no executor may start; 0: one may.
  Duration Pause(Time now, const Limits& limits);
  // Crashes that count: within the window, or since it opened first.
  uint64_t crashes() const { return crashes_.size(); }
  bool has_opened() const { return openings_ > 0; }

 private:
  void Forget(Time now, const Limits& limits);

  std::deque<Time> crashes_;
  uint32_t openings_ = 0;  // In a row, without an executor that lived for a window between them.
  Time open_until_{0};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_CRASH_BREAKER_H_
