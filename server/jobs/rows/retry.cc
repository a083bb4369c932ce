// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/rows/retry.h"

#include <algorithm>

namespace hpvm::server {

Duration RetryDelay(uint32_t lost, Rng& rng) {
  // 2^9 times 100 ms is beyond the cap: no larger shift is needed.
  const uint32_t doublings = std::min(lost == 0 ? 0 : lost - 1, 9u);
  const Duration whole = std::min(kRetryDelayFirst * (int64_t{1} << doublings), kRetryDelayMax);
  const auto half = static_cast<uint64_t>(whole.count() / 2);
  return Duration(static_cast<int64_t>(half + rng.Below(half + 1)));
}

bool IsInfrastructureFault(const Status& status) { return status.code() == absl::StatusCode::kUnavailable; }

AttemptEnd JudgeAttempt(const Status& status, const AttemptFacts& facts) {
  if (status.ok() || !IsInfrastructureFault(status) || facts.cancel_asked || facts.is_late) {
    return AttemptEnd::kFinal;
  }
  if (facts.was_refused) {
    return AttemptEnd::kAgainFree;  // Nothing was sent, so nothing was written either.
  }
  if (facts.in_place && facts.was_sent) {
    return AttemptEnd::kInPlace;
  }
  if (facts.broken_off) {
    return AttemptEnd::kAgainFree;
  }
  return facts.attempts_spent >= facts.attempts_max ? AttemptEnd::kDead : AttemptEnd::kAgain;
}

}  // namespace hpvm::server
