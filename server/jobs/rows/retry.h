// SPDX-License-Identifier: Apache-2.0
// Decides which failed attempts are the infrastructure's fault, and when the next attempt follows.
#ifndef HPVMD_SERVER_JOBS_ROWS_RETRY_H_
#define HPVMD_SERVER_JOBS_ROWS_RETRY_H_

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"

namespace hpvm::server {

inline constexpr Duration kRetryDelayFirst = std::chrono::milliseconds(100);
inline constexpr Duration kRetryDelayMax = std::chrono::seconds(30);
inline constexpr uint32_t kAttemptsMax = 10;

// Returns a delay between half of 100 ms * 2^(lost - 1), capped at 30 s, and the whole, after `lost` attempts (1 or
// more) have been lost. The random part keeps jobs that were lost together from coming back together.
Duration RetryDelay(uint32_t lost, Rng& rng);

// Returns true when the attempt was lost with its executor, device or daemon: the same attempt may succeed elsewhere.
// Traps, wrong inputs, deadlines and quotas are the job's own.
bool IsInfrastructureFault(const Status& status);

enum class AttemptEnd : uint8_t {
  kFinal,      // The attempt's end is the job's end.
  kAgain,      // Back to the queue, after a delay; the attempt is spent.
  kAgainFree,  // Back to the queue; the attempt does not count (the daemon stops, or no executor may start yet).
  kDead,       // Lost, and it was the last one.
  kInPlace,    // Lost, and another attempt would read what this one has written.
};

struct AttemptFacts {
  bool cancel_asked = false, is_late = false;
  bool broken_off = false;   // Broken off by the daemon, which stops.
  bool was_refused = false;  // No executor may start now, because too many crashed.
  bool in_place = false, was_sent = false;
  uint32_t attempts_spent = 0;  // Includes this one.
  uint32_t attempts_max = 1;
};
AttemptEnd JudgeAttempt(const Status& status, const AttemptFacts& facts);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_ROWS_RETRY_H_
