// SPDX-License-Identifier: Apache-2.0
// Gives memory that nobody uses back to the machine. The allocator keeps what a burst of messages needed, for the next
// one: in a daemon that serves for months that is memory which its unit's limit counts and no tenant pays for.
#ifndef HPVMD_SERVER_PROCESS_HEAP_TRIM_H_
#define HPVMD_SERVER_PROCESS_HEAP_TRIM_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/limits.h"
#include "base/round_thread.h"

namespace hpvm::server {

// Bytes of this process that are in memory; 0: not known.
uint64_t ResidentBytes();

// When to ask the allocator, which holds up other threads for some milliseconds while it looks for what is free.
class HeapTrimRule {
 public:
  struct Limits {
    uint64_t resident_bytes_min = 128 * limits::kMiB;  // Below, nothing is done.
    Duration again_after = std::chrono::minutes(1);    // Sooner after it has grown by a quarter.
  };
  explicit HeapTrimRule(const Limits& limits) : limits_(limits) {}
  bool IsDue(Time now, uint64_t resident_bytes) const;
  void OnTrimmed(Time now, uint64_t resident_bytes);

 private:
  struct Last {
    Time when{0};
    uint64_t resident_bytes = 0;  // After it.
  };
  const Limits limits_;
  std::optional<Last> last_;
};

// Looks every ten seconds, on the thread that it makes, until that is destroyed.
std::unique_ptr<RoundThread> StartHeapTrim();

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_HEAP_TRIM_H_
