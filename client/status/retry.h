// SPDX-License-Identifier: Apache-2.0
// When a call that got no answer is sent again.
#ifndef HPVMD_CLIENT_STATUS_RETRY_H_
#define HPVMD_CLIENT_STATUS_RETRY_H_

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace hpvm {

// The server did not answer, or answered that it cannot just now (it drains, it is overloaded, an executor was lost).
// Whether the call was carried out is not known: only calls that may be carried out twice are sent again.
bool MayRetry(const Status& failure);

// One outage after another: between tries 50 ms, then twice as long each time up to 2 s, of which a random half; never
// sooner than the server asked for. Not thread-safe.
class Retries {
 public:
  // How long an outage may last. `rng` must outlive this.
  Retries(Duration patience, Rng& rng) : patience_(patience), rng_(rng) {}

  // How long to wait before the next try; nothing when that would be past the patience, and `failure` stands.
  std::optional<Duration> After(const Status& failure, Time now);
  // The server has answered: what fails from now on is another outage.
  void Answered();
  // The last failure was the first of its outage.
  bool IsFirst() const { return failures_ == 1; }

 private:
  const Duration patience_;
  Rng& rng_;
  uint32_t failures_ = 0;  // Of this outage.
  Time since_{0};          // When it began.
};

// 128 random bits as text. A caller that must not submit twice even when it ends itself stores the key before it
// submits, and submits with the same key when it finds that key and no answer.
std::string NewIdempotencyKey();

}  // namespace hpvm

#endif  // HPVMD_CLIENT_STATUS_RETRY_H_
