// SPDX-License-Identifier: Apache-2.0
// Who is on a device, against its grant: while the daemon does not grant it, nobody enters. What a driver has, and a
// chunk that is being computed, cannot be called back, so whoever must know when the device is left asks in_flight().
//
// Any thread.
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

  // Counts one more in flight, if the device is granted. The count comes first: a revocation is either seen here, or
  // sees the count.
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
  // What the daemon allows at once; `most` when it says nothing.
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
