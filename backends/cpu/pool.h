// SPDX-License-Identifier: Apache-2.0
// Pool is the worker pool: helper threads that take part in open sources, obeying the grant page.
//
// A source is either a range of work that Run splits over the calling thread and helpers, or a command list that runs
// in its partial order (flow.h). Several may be open at once, and a helper that works for one may open another.
//
// Helpers start at their first use and park when idle; before parking they spin for at most 50 µs, but not when the
// grant page says that another tenant waits for the cores, or when only one thread is granted. Each participant of a
// range begins in a separate part of the range, so that data shared by neighbours stays in one core's caches, and
// continues where most is left. Parts are handed out in chunks that shrink towards the end. At each chunk boundary a
// participant checks the stop word and the grant: a helper beyond the granted threads leaves, no chunk is taken while
// the grant is revoked, and when threads are granted again the helpers are called back.
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
  // Takes the next chunk; returns false when there is none, the run was stopped or cancelled, or this participant must
  // leave.
  bool Next(uint64_t* begin, uint64_t* end);
  // Prevents further chunks from being taken.
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
  const bool is_owner_;     // The participant called Run.
  bool is_inside_ = false;  // The participant has a chunk, counted by the gate.
  bool has_taken_ = false;
};

// The work of every participant: takes chunks until Next returns false. May run several times on one thread during a
// run, but never concurrently there.
class PoolBody {
 public:
  virtual ~PoolBody() = default;
  virtual void Work(Chunks& chunks) = 0;
};

struct PoolRange {
  uint64_t begin = 0, end = 0;
  // Bounds of a chunk's size, at least 1. The upper bound limits the time to the next chunk boundary.
  uint64_t chunk_min = 1, chunk_max = 1;
  const std::atomic<uint32_t>* stop = nullptr;  // Optional.
};

// Work in which helpers take part while it is open.
class PoolSource {
 public:
  virtual ~PoolSource() = default;
  // Works until there is nothing more to do here, or the thread must leave. Returns false when there was nothing.
  // Called by helpers and by threads of the same family, concurrently; `thread` (PoolThread::index) identifies the
  // caller.
  virtual bool Serve(uint32_t thread) = 0;
};

class Pool {
 public:
  static constexpr Duration kSpin = std::chrono::microseconds(50);

  // `threads` includes the calling thread. The grant and its gate, which counts the chunks being computed, are optional
  // and borrowed for the pool's life.
  Pool(uint32_t threads, const GrantEntry* grant, GrantGate* gate = nullptr);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Runs `body` on the calling thread and on helpers; returns when every chunk that was handed out is done. Returns
  // false when some were not handed out, because the run was cancelled or stopped. Thread-safe, including from helpers
  // that work for a source.
  bool Run(const PoolRange& range, PoolBody& body);

  // Opens `source` to helpers; it is borrowed until Close has returned. Returns kNoSlot when too many sources are open.
  static constexpr uint32_t kNoSlot = ~0u;
  uint32_t Open(PoolSource& source, const void* family);
  void Close(uint32_t slot);
  // Works for sources opened by others of the family, except the family itself. Returns false when there was nothing.
  bool ServeFamily(const void* family, uint32_t thread);

  // Makes the first `count` helpers, as far as they are granted, look at the open sources.
  void CallHelpers(uint32_t count);
  // Calls one sleeping helper, if any. A thread that makes work visible by a sequentially consistent store and then
  // calls this can rely on a helper that goes to sleep meanwhile either seeing the work or being called.
  void CallParked() {
    if (parked_.load(std::memory_order_seq_cst) != 0) {
      CallOneParked();
    }
  }
  bool HasParked() const { return parked_.load(std::memory_order_seq_cst) != 0; }

  uint32_t threads() const { return threads_; }
  // Returns the number of threads that may work now, including the calling thread; at least 1. Threads that make large
  // copies to and from other devices have cores of their own during that time, up to half of those granted, because a
  // device that waits for its data costs more than they do.
  uint32_t Allowed() const;
  // The same, ignoring copies.
  uint32_t GrantedThreads() const;
  // Returns true when this helper may take work now.
  bool MayWork(uint32_t thread) const { return Granted() && thread < Allowed(); }
  // Returns true when a thread may work for sources that it has opened.
  bool MayOwn(uint32_t thread) const { return grant_ == nullptr || (Granted() && thread < GrantedThreads()); }
  // Blocks while there is no grant. Returns false when `stop` ended the wait.
  bool WaitForGrant(const std::atomic<uint32_t>* stop) const;
  bool Granted() const {
    return grant_ == nullptr ||
           grant_->state.load(std::memory_order_acquire) == static_cast<uint32_t>(GrantState::kGranted);
  }
  bool MaySpin() const;
  // Changes with every change of the grant.
  uint32_t GrantEpoch() const { return grant_ == nullptr ? 0 : grant_->epoch.load(std::memory_order_acquire); }
  // Changes whenever Allowed may change.
  uint32_t AllowedEpoch() const { return GrantEpoch() + CopyFlow::Epoch(); }
  // Waits until the epoch differs from `seen`, for at most `limit`.
  void AwaitGrantChange(uint32_t seen, Duration limit) const;

 private:
  friend class Chunks;
  struct Helper;
  // State of an open source: how many threads are inside, and whether more may enter.
  struct alignas(64) Slot {
    static constexpr uint32_t kClosed = 1u << 31;
    std::atomic<uint32_t> gate{kClosed};
    std::atomic<PoolSource*> source{nullptr};  // Written while the gate is closed and empty; read inside it.
    std::atomic<const void*> family{nullptr};  // Likewise; a value read outside the gate is a hint.
  };
  static constexpr uint32_t kSlots = 64;

  void ServeAll(Helper& helper);
  bool Visit(uint32_t thread);
  // A null family accepts any source.
  bool Enter(Slot& slot, uint32_t thread, const void* family);
  void Park(Helper& helper, uint32_t seen);
  void CallOneParked();
  void Call(Helper& helper);
  bool StartHelper(uint32_t index);

  const uint32_t threads_;
  const GrantEntry* const grant_;
  GrantGate* const grant_gate_;
  std::unique_ptr<Helper[]> helpers_;  // Has threads_ - 1 elements; index i is thread i + 1.
  std::mutex start_mutex_;
  std::atomic<bool> closing_{false};
  std::unique_ptr<Slot[]> slots_;
  std::atomic<uint64_t> taken_{0};  // Slots, by bit.
  alignas(64) std::atomic<uint64_t> open_{0};
  alignas(64) std::atomic<uint32_t> parked_{0};  // Number of helpers that sleep or are about to.
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_POOL_H_
