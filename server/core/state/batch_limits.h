// SPDX-License-Identifier: Apache-2.0
// How much one call of RunMany or SubmitMany may ask for, and how much of it passes a thread or lock at a time that
// serves all tenants.
#ifndef HPVMD_SERVER_CORE_STATE_BATCH_LIMITS_H_
#define HPVMD_SERVER_CORE_STATE_BATCH_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace hpvm::server {

// Items of one RunMany: a message of the largest size then has 4 KiB for each. They are begun a few at a time, so that
// this bounds only what one call keeps in memory.
inline constexpr int kRunsPerCallMax = 1'024;
// Jobs of one SubmitMany: as many rows as one commit takes (CommitQueueOptions::group_max).
inline constexpr int kSubmitsPerCallMax = 256;

// Items that one hold of the core's mutex takes in, and bindings of all of them together, unless one has more.
inline constexpr int kItemsAtOnce = 16;
inline constexpr int kBindingsAtOnce = 256;
// Items of a RunMany that have begun and not ended. More would only wait in the queue of runs, where other calls of the
// tenant find it full.
inline constexpr int kRunsInFlight = 64;

// How many items from `first` on are taken in at once. `bindings_of(i)` counts those of one.
template <typename BindingsOf>
int CountAtOnce(int first, int end, const BindingsOf& bindings_of) {
  int count = 0;
  for (int bindings = 0; first + count < end && count < kItemsAtOnce; ++count) {
    bindings += bindings_of(first + count);
    if (count > 0 && bindings > kBindingsAtOnce) {
      break;
    }
  }
  return count;
}

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_BATCH_LIMITS_H_
