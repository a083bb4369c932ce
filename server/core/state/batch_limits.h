// SPDX-License-Identifier: Apache-2.0
// Limits on the size of one RunMany or SubmitMany call, and on the part of it that occupies at one time a thread or a
// lock that serves all tenants.
#ifndef HPVMD_SERVER_CORE_STATE_BATCH_LIMITS_H_
#define HPVMD_SERVER_CORE_STATE_BATCH_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace hpvm::server {

// Maximum number of items in one RunMany; in a message of the largest size each then has 4 KiB. Items are begun a few
// at a time, so this limits only what one call keeps in memory.
inline constexpr int kRunsPerCallMax = 1'024;
// Maximum number of jobs in one SubmitMany: the number of rows that one commit takes (CommitQueueOptions::group_max).
inline constexpr int kSubmitsPerCallMax = 256;

// Maximum number of items that are taken in under one hold of the core's mutex, and of bindings of these items
// together. An item that has more bindings is taken in alone.
inline constexpr int kItemsAtOnce = 16;
inline constexpr int kBindingsAtOnce = 256;
// Maximum number of items of a RunMany that have begun and not ended. More would only wait in the queue of runs, where
// other calls of the tenant would find it full.
inline constexpr int kRunsInFlight = 64;

// Returns the number of items from `first` on that are taken in at once. `bindings_of(i)` returns the number of
// bindings of item i.
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
