// SPDX-License-Identifier: Apache-2.0
// CrashBreaker pauses the start of a tenant's executors that crash repeatedly: none starts for a while, then one may
// try, and each failed try makes the next pause longer.
#ifndef HPVMD_SERVER_EXECUTORS_CRASH_BREAKER_H_
#define HPVMD_SERVER_EXECUTORS_CRASH_BREAKER_H_

#include <cstdint>
#include <deque>

#include "base/clock.h"

namespace hpvm::server {

// Guarded by its owner. Each call gets the limits of the present configuration.
class CrashBreaker {
 public:
  struct Limits {
    uint64_t crashes_max = 3;  // Number of crashes within the window that opens the breaker.
    Duration window{0};
  };
  // Longest pause, unless the window is longer.
  static constexpr Duration kPauseMax = std::chrono::minutes(10);

  // Records that an executor ended by itself, after it had been ready for `lived` (0: never).
  void Crashed(Time now, Duration lived, const Limits& limits, Rng& rng);
  // Returns how long no executor may start; 0: one may.
  Duration Pause(Time now, const Limits& limits);
  // Returns the number of crashes that count: those within the window, or since the breaker first opened.
  uint64_t crashes() const { return crashes_.size(); }
  bool has_opened() const { return openings_ > 0; }

 private:
  void Forget(Time now, const Limits& limits);

  std::deque<Time> crashes_;
  uint32_t openings_ = 0;  // Number of openings in a row, without an executor that lived for a window between them.
  Time open_until_{0};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_CRASH_BREAKER_H_
