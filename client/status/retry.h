// SPDX-License-Identifier: Apache-2.0
// The rules for retrying calls that got no response.
#ifndef HPVMD_CLIENT_STATUS_RETRY_H_
#define HPVMD_CLIENT_STATUS_RETRY_H_

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace hpvm {

// Returns true when the server did not answer, or answered that it cannot at the moment (it drains, it is overloaded,
// an executor was lost). It is unknown whether the call was carried out: only calls that may be carried out twice are
// retried.
bool MayRetry(const Status& failure);

// Retries computes the delays of one outage after another: 50 ms, doubled for each retry up to 2 s, of which a random
// half; never less than the server asked for. Not thread-safe.
class Retries {
 public:
  // `patience` is the longest outage. `rng` must outlive this object.
  Retries(Duration patience, Rng& rng) : patience_(patience), rng_(rng) {}

  // Returns the delay before the next retry; nothing when that would exceed the patience, and `failure` is final.
  std::optional<Duration> After(const Status& failure, Time now);
  // Called when the server has answered: a later failure begins another outage.
  void Answered();
  // Returns true when the last failure was the first of its outage.
  bool IsFirst() const { return failures_ == 1; }

 private:
  const Duration patience_;
  Rng& rng_;
  uint32_t failures_ = 0;  // Number of failures in this outage.
  Time since_{0};          // Start of this outage.
};

// Returns 128 random bits as text. A caller that must not submit twice even across its own crash stores the key
// before it submits, and submits with the same key when it finds the key without a response.
std::string NewIdempotencyKey();

}  // namespace hpvm

#endif  // HPVMD_CLIENT_STATUS_RETRY_H_
