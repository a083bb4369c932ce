// SPDX-License-Identifier: Apache-2.0
// WorkDeque holds a worker's ready commands: the worker pushes and pops at one end, others steal at the other.
//
// Method: D. Chase, Y. Lev, "Dynamic Circular Work-Stealing Deque" (SPAA 2005), with the memory orders of N. M. Lê et
// al., "Correct and Efficient Work-Stealing for Weak Memory Models" (PPoPP 2013); its fences are written as
// sequentially consistent operations, which ThreadSanitizer understands.
#ifndef HPVMD_BACKENDS_CPU_WORK_DEQUE_H_
#define HPVMD_BACKENDS_CPU_WORK_DEQUE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace hpvm::cpu {

class WorkDeque {
 public:
  static constexpr uint32_t kNone = ~0u;

  // Drops the remaining commands. Requires exclusive access.
  void Clear() {
    top_.store(0, std::memory_order_relaxed);
    bottom_.store(0, std::memory_order_relaxed);
    while (rings_.size() > 1) {
      rings_.erase(rings_.begin());  // Outgrown rings.
    }
  }

  // Called by the owner. Allocates only when the deque has never been this long.
  void Push(uint32_t value) {
    const int64_t bottom = bottom_.load(std::memory_order_relaxed);
    const int64_t top = top_.load(std::memory_order_acquire);
    Ring* ring = ring_.load(std::memory_order_relaxed);
    if (ring == nullptr || bottom - top >= static_cast<int64_t>(ring->size)) {
      ring = Grow(ring, top, bottom);
    }
    ring->At(bottom).store(value, std::memory_order_relaxed);
    // A thread that goes to sleep checks this after announcing it: see Pool::CallParked.
    bottom_.store(bottom + 1, std::memory_order_seq_cst);
  }

  // Called by the owner: returns the latest command; kNone when there is none.
  uint32_t Pop() {
    const int64_t bottom = bottom_.load(std::memory_order_relaxed) - 1;
    if (top_.load(std::memory_order_relaxed) > bottom) {
      return kNone;  // Thieves only increase `top_`.
    }
    bottom_.store(bottom, std::memory_order_seq_cst);
    int64_t top = top_.load(std::memory_order_seq_cst);
    if (top > bottom) {
      bottom_.store(bottom + 1, std::memory_order_release);
      return kNone;
    }
    uint32_t value = ring_.load(std::memory_order_relaxed)->At(bottom).load(std::memory_order_relaxed);
    if (top == bottom) {
      // The last command: a thief may be taking it, too.
      if (!top_.compare_exchange_strong(top, top + 1, std::memory_order_seq_cst)) {
        value = kNone;
      }
      bottom_.store(bottom + 1, std::memory_order_release);
    }
    return value;
  }

  // Callable by any thread: returns the oldest command; kNone when there is none, or another thread was faster.
  uint32_t Steal() {
    int64_t top = top_.load(std::memory_order_seq_cst);
    if (top >= bottom_.load(std::memory_order_seq_cst)) {
      return kNone;
    }
    const uint32_t value = ring_.load(std::memory_order_acquire)->At(top).load(std::memory_order_relaxed);
    return top_.compare_exchange_strong(top, top + 1, std::memory_order_seq_cst) ? value : kNone;
  }

  // Approximate; exact for the owner while no thread steals.
  uint64_t size() const {
    const int64_t top = top_.load(std::memory_order_seq_cst);
    const int64_t bottom = bottom_.load(std::memory_order_seq_cst);
    return bottom > top ? static_cast<uint64_t>(bottom - top) : 0;
  }

 private:
  struct Ring {
    explicit Ring(uint64_t n) : size(n), items(new std::atomic<uint32_t>[n]) {}
    std::atomic<uint32_t>& At(int64_t index) { return items[static_cast<uint64_t>(index) & (size - 1)]; }
    const uint64_t size;  // A power of two.
    const std::unique_ptr<std::atomic<uint32_t>[]> items;
  };
  static constexpr uint64_t kSizeMin = 64;

  // Thieves may still read the old ring, so it is kept until Clear.
  Ring* Grow(Ring* old, int64_t top, int64_t bottom) {
    auto ring = std::make_unique<Ring>(old == nullptr ? kSizeMin : old->size * 2);
    for (int64_t i = top; i < bottom; ++i) {
      ring->At(i).store(old->At(i).load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    rings_.push_back(std::move(ring));
    ring_.store(rings_.back().get(), std::memory_order_release);
    return rings_.back().get();
  }

  alignas(64) std::atomic<int64_t> top_{0};
  alignas(64) std::atomic<int64_t> bottom_{0};
  std::atomic<Ring*> ring_{nullptr};
  std::vector<std::unique_ptr<Ring>> rings_;  // Used by the owner only.
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_WORK_DEQUE_H_
