// SPDX-License-Identifier: Apache-2.0
// Whether ages by the clock on the wall can be believed: it is compared with one that nobody sets.
//
// Rows hold times of the wall clock. Where it has jumped, a row seems as much older or younger than it is. Whatever was
// there at a jump is as old, for sure, as the time since then: so a limit of a day is believed a day after a jump, and
// nothing is dropped because of one. What happened before a start nobody knows; a clock that is wrong after a machine's
// start is as a rule set within minutes, and that is a jump. So is the time that a machine sleeps.
#ifndef HPVMD_SERVER_JOBS_CLOCK_WATCH_H_
#define HPVMD_SERVER_JOBS_CLOCK_WATCH_H_

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace hpvm::server {

class ClockWatch {
 public:
  // As at the start of a daemon. The clock is borrowed.
  explicit ClockWatch(const Clock& clock);

  // To be called every few seconds. By how much the wall clock has jumped since the last call; empty: it has not.
  std::optional<Duration> Look();
  // Whether something that seems older than that is. As of the last Look.
  bool Believes(uint64_t age_ms) const;

 private:
  Duration Offset() const { return Duration(clock_.WallNs()) - clock_.Now(); }

  const Clock& clock_;
  const Time started_;
  Time looked_;
  std::optional<Time> jumped_;
  Duration reference_;  // What the wall clock is ahead of the other; follows a clock that is only corrected slowly.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_CLOCK_WATCH_H_
