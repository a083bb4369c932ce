// SPDX-License-Identifier: Apache-2.0
// The time that a caller waits for an operation that may take a driver's compiler minutes.
#ifndef HPVMD_BACKENDS_CONTRACT_PATIENCE_H_
#define HPVMD_BACKENDS_CONTRACT_PATIENCE_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace hpvm {

struct Patience {
  // A value other than zero ends the call soon, with kCancelled. Borrowed for the call; may be null.
  const std::atomic<uint32_t>* stop = nullptr;
  Time deadline = kNever;  // The call then ends with kDeadlineExceeded.

  bool is_stopped() const { return stop != nullptr && stop->load() != 0; }
};

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CONTRACT_PATIENCE_H_
