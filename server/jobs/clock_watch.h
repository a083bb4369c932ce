// SPDX-License-Identifier: Apache-2.0
// ClockWatch decides whether ages by the wall clock can be trusted, by comparing it with a clock that nobody sets.
//
// Rows hold times of the wall clock. After a jump of that clock, a row appears as much older or younger as the jump is
// long. A row that existed at a jump is certainly as old as the time since then: so a limit of a day is trusted a day
// after a jump, and nothing is dropped because of one. Jumps before a start are unknown; a clock that is wrong
// after a machine's start is usually set within minutes, which is a jump. The time that a machine sleeps is a jump,
// too.
#ifndef HPVMD_SERVER_JOBS_CLOCK_WATCH_H_
#define HPVMD_SERVER_JOBS_CLOCK_WATCH_H_

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace hpvm::server {

class ClockWatch {
 public:
  // Starts as at the start of a daemon. The clock is borrowed.
  explicit ClockWatch(const Clock& clock);

  // Called every few seconds. Returns by how much the wall clock has jumped since the last call; nothing when it has
  // not.
  std::optional<Duration> Look();
  // Returns true when a row that appears older than `age_ms` really is, as of the last Look.
  bool Believes(uint64_t age_ms) const;

 private:
  Duration Offset() const { return Duration(clock_.WallNs()) - clock_.Now(); }

  const Clock& clock_;
  const Time started_;
  Time looked_;
  std::optional<Time> jumped_;
  Duration reference_;  // Offset of the wall clock from the other; follows a clock that is only corrected slowly.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_CLOCK_WATCH_H_
