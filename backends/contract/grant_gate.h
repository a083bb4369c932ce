// SPDX-License-Identifier: Apache-2.0
// GrantGate counts the users of a device, subject to its grant: without a grant from the daemon, none may enter. Work
// that a driver has, and a chunk that is being computed, cannot be called back; in_flight() tells when the device is
// idle.
//
// Thread-safe.
#ifndef HPVMD_BACKENDS_CONTRACT_GRANT_GATE_H_
#define HPVMD_BACKENDS_CONTRACT_GRANT_GATE_H_

#include <atomic>
#include <cstdint>

#include "backends/contract/grant.h"

namespace hpvm {

class GrantGate {
 public:
  // Borrowed.
  explicit GrantGate(const GrantEntry& entry) : entry_(entry) {}

  // Counts one more in flight, if the device is granted. The count is incremented first: a revocation is either seen
  // here, or sees the count.
  bool TryEnter() {
    in_flight_.fetch_add(1);
    if (entry_.state.load() == static_cast<uint32_t>(GrantState::kGranted)) {
      return true;
    }
    in_flight_.fetch_sub(1);
    return false;
  }
  void Leave() { in_flight_.fetch_sub(1); }
  uint32_t in_flight() const { return in_flight_.load(); }
  // Returns the number that the daemon allows in flight; `most` when it gives no limit.
  uint32_t InFlightMax(uint32_t most) const {
    const uint32_t max = entry_.in_flight_max.load(std::memory_order_relaxed);
    return max == 0 || max > most ? most : max;
  }

 private:
  const GrantEntry& entry_;
  std::atomic<uint32_t> in_flight_{0};
};

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_CONTRACT_GRANT_GATE_H_
