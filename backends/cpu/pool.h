// SPDX-License-Identifier: Apache-2.0
// The worker pool: splits one range of work over the calling thread and helpers, obeying the grant page.
//
// Helpers start at their first use and park when idle; for at most 50 µs before that they spin, but never when the
// grant page says that somebody else waits for the cores, or when only one thread is granted. Each participant begins
// in a part of the range of its own, so that what neighbours share stays in one core's caches, and goes on where most
// is left. Parts are handed out in chunks that shrink towards the end. At each chunk boundary a participant looks at
// the stop word and the grant: a helper beyond the granted threads leaves the run, nobody takes a chunk while the grant
// is revoked, and when threads are granted again the caller calls the helpers back.
//
// One run has the helpers at a time. A second thread that calls Run meanwhile works alone: it never waits for the
// first.
#ifndef HPVMD_BACKENDS_CPU_POOL_H_
#define HPVMD_BACKENDS_CPU_POOL_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "backends/grant.h"
#include "backends/grant_gate.h"

namespace hpvm::cpu {

class Pool;

// One range being handed out.
struct PoolRun;

// A participant's view of the run.
class Chunks {
 public:
  // Takes the next chunk; false when there is none, the run was stopped or cancelled, or this participant must leave.
  bool Next(uint64_t* begin, uint64_t* end);
  // Nobody takes a further chunk.
  void Cancel();
  // 0 is the calling thread.
  uint32_t participant() const { return participant_; }

 private:
  friend class Pool;
  bool MayTake();
  bool Enter();
  void Leave();
  Chunks(Pool& pool, PoolRun& run, uint32_t participant)
      : pool_(pool), run_(run), participant_(participant) {}
  ~Chunks() { Leave(); }
  Pool& pool_;
  PoolRun& run_;
  const uint32_t participant_;
  bool is_inside_ = false;  // Has a chunk, which the gate counts.
};

// What every participant runs: takes chunks until Next says no. May run several times on one thread in a run, never
// twice at once there.
class PoolBody {
 public:
  virtual ~PoolBody() = default;
  virtual void Work(Chunks& chunks) = 0;
};

struct PoolRange {
  uint64_t begin = 0, end = 0;
  // Bounds on a chunk's size, at least 1. The largest bounds the time to the next chunk boundary.
  uint64_t chunk_min = 1, chunk_max = 1;
  const std::atomic<uint32_t>* stop = nullptr;  // Optional.
};

class Pool {
 public:
  // `threads` counts the calling one. The grant and its gate, which counts the chunks that are being computed, are
  // optional and borrowed for the pool's life.
  Pool(uint32_t threads, const GrantEntry* grant, GrantGate* gate = nullptr);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Runs `body` on the calling thread and on helpers; returns when every chunk that was handed out is done. False when
  // some were not, because the run was cancelled or stopped. Any thread.
  bool Run(const PoolRange& range, PoolBody& body);

  // Threads that may work now, the calling one included; at least 1.
  uint32_t Allowed() const;
  // Blocks while the grant is not given. False when `stop` ended the waiting.
  bool WaitForGrant(const std::atomic<uint32_t>* stop) const;
  bool Granted() const;

 private:
  friend class Chunks;
  struct Helper;

  void Serve(Helper& helper);
  void Join(uint32_t participant);
  void CallHelpers(uint32_t count);
  bool StartHelper(uint32_t index);
  void AwaitSignal(Helper& helper, uint32_t seen) const;
  bool MaySpin() const;

  const uint32_t threads_;
  const GrantEntry* const grant_;
  GrantGate* const grant_gate_;
  std::unique_ptr<Helper[]> helpers_;      // threads_ - 1; index i is participant i + 1.

  std::mutex run_mutex_;                   // Held by the run that has the helpers.
  PoolRun* run_ = nullptr;                 // Written while the gate is closed and empty; read by helpers inside it.
  // How many helpers are inside the run, and whether a helper may still enter.
  static constexpr uint32_t kClosed = 1u << 31;
  alignas(64) std::atomic<uint32_t> gate_{kClosed};
  std::atomic<bool> closing_{false};
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_POOL_H_
