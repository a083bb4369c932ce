// SPDX-License-Identifier: Apache-2.0
// Returns unused heap memory to the machine. The allocator keeps the memory of a burst of messages for the next one:
// in a daemon that runs for months the unit's memory limit counts it, and no tenant pays for it.
#ifndef HPVMD_SERVER_PROCESS_HEAP_TRIM_H_
#define HPVMD_SERVER_PROCESS_HEAP_TRIM_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/limits.h"
#include "base/round_thread.h"

namespace hpvm::server {

// Returns the resident size of this process in bytes; 0 when unknown.
uint64_t ResidentBytes();

// HeapTrimRule decides when to trim the heap, which blocks other threads for some milliseconds while the allocator
// looks for free memory.
class HeapTrimRule {
 public:
  struct Limits {
    uint64_t resident_bytes_min = 128 * limits::kMiB;  // Nothing is done below this.
    Duration again_after = std::chrono::minutes(1);    // Sooner after growth by a quarter.
  };
  explicit HeapTrimRule(const Limits& limits) : limits_(limits) {}
  bool IsDue(Time now, uint64_t resident_bytes) const;
  void OnTrimmed(Time now, uint64_t resident_bytes);

 private:
  struct Last {
    Time when{0};
    uint64_t resident_bytes = 0;  // After trimming.
  };
  const Limits limits_;
  std::optional<Last> last_;
};

// Checks every ten seconds, on the returned thread, until that is destroyed.
std::unique_ptr<RoundThread> StartHeapTrim();

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_HEAP_TRIM_H_
