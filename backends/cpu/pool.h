// SPDX-License-Identifier: Apache-2.0
// The worker pool: helpers that take part in what is open to them, obeying the grant page.
//
// What is open is a source: a range of work that Run splits over the calling thread and helpers, or a command list that
// runs in its partial order (flow.h). Several may be open at once, and a helper that works for one may open another.
//
// Helpers start at their first use and park when idle; for at most 50 µs before that they spin, but never when the
// grant page says that somebody else waits for the cores, or when only one thread is granted. Each participant of a
// range begins in a part of the range of its own, so that what neighbours share stays in one core's caches, and goes on
// where most is left. Parts are handed out in chunks that shrink towards the end. At each chunk boundary a participant
// looks at the stop word and the grant: a helper beyond the granted threads leaves, nobody takes a chunk while the
// grant is revoked, and when threads are granted again the helpers are called back.
#ifndef HPVMD_BACKENDS_CPU_POOL_H_
#define HPVMD_BACKENDS_CPU_POOL_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "backends/contract/copy_meter.h"
#include "backends/contract/grant.h"
#include "backends/contract/grant_gate.h"
#include "base/clock.h"

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
  // PoolThread::index.
  uint32_t participant() const { return participant_; }

 private:
  friend class Pool;
  friend struct PoolRun;
  Chunks(Pool& pool, PoolRun& run, uint32_t participant, bool is_owner)
      : pool_(pool), run_(run), participant_(participant), is_owner_(is_owner) {}
  ~Chunks() { Leave(); }
  bool MayTake();
  bool OwnerMayTake();
  bool Enter();
  void Leave();

  Pool& pool_;
  PoolRun& run_;
  const uint32_t participant_;
  const bool is_owner_;     // Called Run.
  bool is_inside_ = false;  // Has a chunk, which the gate counts.
  bool has_taken_ = false;
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

// What helpers take part in while it is open.
class PoolSource {
 public:
  virtual ~PoolSource() = default;
  // Works until there is nothing more to do here, or the thread must leave. False when there was nothing. By helpers,
  // and by threads of the same family; several at once, `thread` (PoolThread::index) tells them apart.
  virtual bool Serve(uint32_t thread) = 0;
};

class Pool {
 public:
  static constexpr Duration kSpin = std::chrono::microseconds(50);

  // `threads` counts the calling one. The grant and its gate, which counts the chunks that are being computed, are
  // optional and borrowed for the pool's life.
  Pool(uint32_t threads, const GrantEntry* grant, GrantGate* gate = nullptr);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Runs `body` on the calling thread and on helpers; returns when every chunk that was handed out is done. False when
  // some were not, because the run was cancelled or stopped. Any thread, helpers that work for a source included.
  bool Run(const PoolRange& range, PoolBody& body);

  // Lets helpers into `source`, which is borrowed, until Close has returned. kNoSlot when too much is open.
  static constexpr uint32_t kNoSlot = ~0u;
  uint32_t Open(PoolSource& source, const void* family);
  void Close(uint32_t slot);
  // Works for what others of the family have opened, other than the family itself. False when there was nothing.
  bool ServeFamily(const void* family, uint32_t thread);

  // Has the first `count` helpers, as far as they are granted, look at what is open.
  void CallHelpers(uint32_t count);
  // The same for one that sleeps, if any. Whoever has made work visible by a sequentially consistent store and then
  // calls this is sure that a helper that goes to sleep meanwhile either sees it or is called.
  void CallParked() {
    if (parked_.load(std::memory_order_seq_cst) != 0) {
      CallOneParked();
    }
  }
  bool HasParked() const { return parked_.load(std::memory_order_seq_cst) != 0; }

  uint32_t threads() const { return threads_; }
  // Threads that may work now, the calling one included; at least 1. Threads that make large copies to and from other
  // devices have cores of their own meanwhile, up to half of what is granted: a device that waits for its data costs
  // more than they do.
  uint32_t Allowed() const;
  // The same, whatever is copied.
  uint32_t GrantedThreads() const;
  // True when this helper may take work now.
  bool MayWork(uint32_t thread) const { return Granted() && thread < Allowed(); }
  // True when a thread may work for what it has opened itself.
  bool MayOwn(uint32_t thread) const { return grant_ == nullptr || (Granted() && thread < GrantedThreads()); }
  // Blocks while the grant is not given. False when `stop` ended the waiting.
  bool WaitForGrant(const std::atomic<uint32_t>* stop) const;
  bool Granted() const {
    return grant_ == nullptr ||
           grant_->state.load(std::memory_order_acquire) == static_cast<uint32_t>(GrantState::kGranted);
  }
  bool MaySpin() const;
  // Changes with every change of the grant.
  uint32_t GrantEpoch() const { return grant_ == nullptr ? 0 : grant_->epoch.load(std::memory_order_acquire); }
  // Changes whenever Allowed may.
  uint32_t AllowedEpoch() const { return GrantEpoch() + CopyFlow::Epoch(); }
  // Until the epoch is no longer `seen`, for `limit` at most.
  void AwaitGrantChange(uint32_t seen, Duration limit) const;

 private:
  friend class Chunks;
  struct Helper;
  // Where a source is open: how many are inside, and whether somebody may still enter.
  struct alignas(64) Slot {
    static constexpr uint32_t kClosed = 1u << 31;
    std::atomic<uint32_t> gate{kClosed};
    std::atomic<PoolSource*> source{nullptr};  // Written while the gate is closed and empty; read inside it.
    std::atomic<const void*> family{nullptr};  // The same; a reading outside is a hint.
  };
  static constexpr uint32_t kSlots = 64;

  void ServeAll(Helper& helper);
  bool Visit(uint32_t thread);
  bool Enter(Slot& slot, uint32_t thread, const void* family);  // Null: whatever is open there.
  void Park(Helper& helper, uint32_t seen);
  void CallOneParked();
  void Call(Helper& helper);
  bool StartHelper(uint32_t index);

  const uint32_t threads_;
  const GrantEntry* const grant_;
  GrantGate* const grant_gate_;
  std::unique_ptr<Helper[]> helpers_;  // threads_ - 1; index i is thread i + 1.
  std::mutex start_mutex_;
  std::atomic<bool> closing_{false};
  std::unique_ptr<Slot[]> slots_;
  std::atomic<uint64_t> taken_{0};  // Slots, by bit.
  alignas(64) std::atomic<uint64_t> open_{0};
  alignas(64) std::atomic<uint32_t> parked_{0};  // Helpers that sleep or are about to.
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_POOL_H_
