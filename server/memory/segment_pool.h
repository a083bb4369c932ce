// SPDX-License-Identifier: Apache-2.0
// SegmentPool is a tenant's shared memory: sealed memfds that are reused, because first-touch writes run at 0.4 to
// 1.4 GB/s and later ones at 7.
//
// Memory never passes from one tenant to another: each has a pool, whose memory returns to the kernel with it.
// Segments in use are charged to the tenant, in whole segments. Segments waiting for reuse are not charged, and are
// freed as soon as both together would exceed the tenant's quota.
//
// An executor may write segments that it has mapped at any time, so the daemon accesses them only with pread and
// pwrite.
#ifndef HPVMD_SERVER_MEMORY_SEGMENT_POOL_H_
#define HPVMD_SERVER_MEMORY_SEGMENT_POOL_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/io/fd.h"
#include "base/status.h"
#include "scheduler/share/ledger.h"

namespace hpvm::server {

struct Segment {
  UniqueFd fd;
  uint64_t id = 0;              // Unique in its pool, never 0; a recycled segment keeps its id.
  uint64_t capacity_bytes = 0;  // The memfd's size.
  bool recycled = false;        // Holds old bytes of the same tenant; otherwise zeros.
  bool registered = false;      // A client's own memory, which the client may write at any time.
  bool read_only = false;       // Registered, and permanently read-only.
  scheduler::Lease host_bytes;  // For the capacity, while the segment is in use.
};

// Shared, because a run that reads a buffer's memory outlives the buffer's deletion or replacement. The last user
// returns the segment to the pool.
using SegmentRef = std::shared_ptr<const Segment>;

// Thread-safe.
class SegmentPool {
 public:
  // `idle_bytes_max` limits the segments waiting for reuse; the rest is freed, oldest first.
  explicit SegmentPool(uint64_t idle_bytes_max, scheduler::Account account = {});

  // Returns at least `bytes` (1 or more), zeroed when `zero`; otherwise the segment may hold the tenant's old bytes.
  // kResourceExhausted with a sentence about the quota.
  StatusOr<SegmentRef> Acquire(uint64_t bytes, bool zero);

  // Adopts a client's memory of `bytes`: charged like the pool's own, and dropped after its last use. Takes the
  // descriptor only on success.
  StatusOr<SegmentRef> Adopt(UniqueFd& fd, uint64_t bytes, bool read_only);

  uint64_t idle_bytes() const;
  // Capacity of the segments in use.
  uint64_t live_bytes() const;
  // Returns the ids of segments freed since the last call, which executors must unmap too. Ids beyond the last 4,096
  // are lost, at the cost of mappings that live as long as their executor.
  std::vector<uint64_t> TakeFreed();

  // Returns the size that Acquire allocates for `bytes`: whole pages, then eighths of a power of two, so that similar
  // sizes share segments.
  static uint64_t CapacityFor(uint64_t bytes);

 private:
  struct State {
    std::mutex mutex;
    uint64_t idle_bytes_max = 0;
    uint64_t idle_bytes = 0, live_bytes = 0;
    std::vector<std::unique_ptr<Segment>> idle;  // Oldest first.
    std::vector<uint64_t> freed_ids;
    uint64_t next_id = 1;  // Per tenant: executors see it, and it must reveal nothing about other tenants.
  };
  // Freed collects segments and frees large ones on a thread that nobody waits for.
  class Freed {
   public:
    ~Freed();
    void Add(std::unique_ptr<Segment> segment);

   private:
    std::vector<std::unique_ptr<Segment>> segments_;
    uint64_t bytes_ = 0;
  };
  static void Return(State& state, std::unique_ptr<Segment> segment);
  static void Disown(State& state, std::unique_ptr<Segment> segment);
  // The caller holds the mutex.
  static void Forget(State& state, std::unique_ptr<Segment> segment, Freed& freed);
  // Frees idle segments, the oldest first, until at most `bytes_max` remain. The caller holds the mutex.
  static void Trim(State& state, uint64_t bytes_max, Freed& freed);

  // Shared with the deleters of segments that outlive the pool.
  std::shared_ptr<State> state_;
  const scheduler::Account account_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_MEMORY_SEGMENT_POOL_H_
