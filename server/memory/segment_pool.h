// SPDX-License-Identifier: Apache-2.0
// A tenant's shared memory: sealed memfds that are used again, because first-touch writes run at 0.4 to 1.4 GB/s and
// later ones at 7.
//
// Memory never passes from one tenant to another: each has a pool, and the pool's memory goes back to the kernel with
// it. What is in use is paid for, in whole segments. What waits for use again is not counted as the tenant's, and goes
// as soon as both together would pass its quota.
//
// Descriptors that the executor has mapped may be written by it at any time, so the daemon reads and writes with
// pread and pwrite only.
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
  uint64_t id = 0;              // Unique in its pool, never 0; a recycled segment keeps its own.
  uint64_t capacity_bytes = 0;  // The memfd's size.
  bool recycled = false;        // Holds old bytes of the same tenant; otherwise zeros.
  bool registered = false;      // A client's own: it writes at any time.
  bool read_only = false;       // Registered, and nobody can write it.
  scheduler::Lease host_bytes;  // The capacity, while anybody uses it.
};

// Shared: a run that reads a buffer's memory outlives the buffer's deletion or replacement. The last user gives it
// back to the pool.
using SegmentRef = std::shared_ptr<const Segment>;

// Any thread.
class SegmentPool {
 public:
  // `idle_bytes_max`: what may wait for use again; the rest is freed, oldest first.
  explicit SegmentPool(uint64_t idle_bytes_max, scheduler::Account account = {});

  // At least `bytes` (1 or more). Zeroed when `zero`; otherwise it may hold the tenant's old bytes. kResourceExhausted
  // with the quota's sentence.
  StatusOr<SegmentRef> Acquire(uint64_t bytes, bool zero);

  // A client's memory, of `bytes`: paid for like the pool's own, and let go of after its last use. Takes the descriptor
  // only when it succeeds.
  StatusOr<SegmentRef> Adopt(UniqueFd& fd, uint64_t bytes, bool read_only);

  uint64_t idle_bytes() const;
  // Capacities of those in use.
  uint64_t live_bytes() const;
  // Ids of segments freed since the last call: executors must let go of them too. Ids beyond the last 4,096 are lost,
  // with no more harm than a mapping that lives as long as its executor.
  std::vector<uint64_t> TakeFreed();

  // What Acquire really takes for `bytes`: whole pages, then eighths of a power of two, so that near sizes share
  // segments.
  static uint64_t CapacityFor(uint64_t bytes);

 private:
  struct State {
    std::mutex mutex;
    uint64_t idle_bytes_max = 0;
    uint64_t idle_bytes = 0, live_bytes = 0;
    std::vector<std::unique_ptr<Segment>> idle;  // Oldest first.
    std::vector<uint64_t> freed_ids;
    uint64_t next_id = 1;  // The tenant's own: executors see it, and it must tell nothing of other tenants.
  };
  // Freed where nobody waits for it, when it is much.
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
  // The mutex is held.
  static void Forget(State& state, std::unique_ptr<Segment> segment, Freed& freed);
  // Frees idle ones, the oldest first, until at most `bytes_max` are left. The mutex is held.
  static void Trim(State& state, uint64_t bytes_max, Freed& freed);

  // Shared with the deleters of segments that outlive the pool.
  std::shared_ptr<State> state_;
  const scheduler::Account account_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_MEMORY_SEGMENT_POOL_H_
