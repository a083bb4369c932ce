// SPDX-License-Identifier: Apache-2.0
// Lane is the private data of one running instance: the context that the image sees, and copies of module memory, state
// and globals.
//
// An idle lane is always in the initial state, so results never depend on which instances ran in it before.
#ifndef HPVMD_BACKENDS_CPU_LANE_H_
#define HPVMD_BACKENDS_CPU_LANE_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/cpu/fiber.h"
#include "backends/cpu/pool_thread.h"
#include "base/status.h"
#include "compiler/api/artifact.h"
#include "compiler/ir/cpu_abi.h"
#include "compiler/ir/launch.h"

namespace hpvm::cpu {

// Pages is anonymous memory, zero until written. Movable; unmaps on destruction.
class Pages {
 public:
  Pages() = default;
  static StatusOr<Pages> Map(uint64_t bytes);
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();
  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// A kernel's module memory, state and globals before its first instruction; shared by its lanes.
struct InitialState {
  // Checks the artifact's data against its memory. Errors: kInvalidArgument, kResourceExhausted.
  static StatusOr<InitialState> From(const Artifact& artifact);

  uint64_t memory_bytes = 0, memory_bytes_max = 0;
  uint64_t data_begin = 0, data_end = 0;  // Whole granules; everything outside is zero.
  Pages data;                             // [data_begin, data_end).
  Pages state;                            // The complete state.
  std::vector<uint64_t> globals;
  std::vector<uint32_t> print_operands;   // Indexed by format.
};

class Lane {
 public:
  static StatusOr<std::unique_ptr<Lane>> Create(const InitialState& initial);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Restores memory, state and globals to the initial state.
  void Restore();
  // Passes a record of the image to `print`.
  void Print(uint32_t format, const uint64_t* values);

  ir::CpuContext context{};
  ir::PrintSink* print = nullptr;  // The sink of the running launch, borrowed; may be null.
  // Barrier kernels: the instance's fiber (borrowed), the barrier at which it waits, and what that barrier returns
  // next.
  Fiber* fiber = nullptr;
  uint64_t barrier_site = 0;
  uint32_t barrier_outcome = 0;
  Lane* next_free = nullptr;

 private:
  explicit Lane(const InitialState& initial) : initial_(initial) {}

  const InitialState& initial_;
  std::vector<uint64_t> globals_;
  Pages pages_;             // Memory, then the state, the dirty bits, the dirty list.
};

// LaneCache holds the idle lanes of one kernel. Taking and returning one lane at a time costs two atomic exchanges, of
// words that each thread of one pool has to itself.
class LaneCache {
 public:
  // `threads` of the pool have their own words; other threads share them.
  LaneCache(const InitialState& initial, uint32_t threads)
      : initial_(initial), slot_count_(std::clamp(threads, 1u, kSlotsMax)), slots_(new Slot[slot_count_]) {}
  ~LaneCache();
  // Returns a lane in the initial state; kResourceExhausted when memory is short. Thread-safe.
  StatusOr<Lane*> Take() {
    if (Lane* lane = OwnSlot().exchange(nullptr, std::memory_order_acquire)) {
      return lane;
    }
    return TakeSlow();
  }
  // Restores the lane and keeps it. Thread-safe.
  void Give(Lane* lane) {
    lane->Restore();
    Lane* empty = nullptr;
    if (!OwnSlot().compare_exchange_strong(empty, lane, std::memory_order_release, std::memory_order_relaxed)) {
      GiveSlow(lane);
    }
  }

 private:
  struct alignas(64) Slot {
    std::atomic<Lane*> lane{nullptr};
  };
  static constexpr uint32_t kSlotsMax = 64;
  std::atomic<Lane*>& OwnSlot() {
    const uint32_t index = ThisPoolThread().index;
    return slots_[index < slot_count_ ? index : 0].lane;
  }
  StatusOr<Lane*> TakeSlow();
  void GiveSlow(Lane* lane);

  const InitialState& initial_;
  const uint32_t slot_count_;
  const std::unique_ptr<Slot[]> slots_;
  std::mutex mutex_;
  Lane* free_ = nullptr;    // Guarded by mutex_.
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_LANE_H_
