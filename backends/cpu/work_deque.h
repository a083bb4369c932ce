// SPDX-License-Identifier: Apache-2.0
// A worker's own ready commands: it pushes and pops at one end, others steal at the other.
//
// Method: D. Chase, Y. Lev, "Dynamic Circular Work-Stealing Deque" (SPAA 2005), with the orders of N. M. Lê et al.,
// "Correct and Efficient Work-Stealing for Weak Memory Models" (PPoPP 2013), its fences written as sequentially
// consistent operations, which ThreadSanitizer understands.
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

  // Forgets what is left. While nobody else is here.
  void Clear() {
    top_.store(0, std::memory_order_relaxed);
    bottom_.store(0, std::memory_order_relaxed);
    while (rings_.size() > 1) {
      rings_.erase(rings_.begin());  // Outgrown.
    }
  }

  // By the owner. Allocates only where the deque has never been so long.
  void Push(uint32_t value) {
    const int64_t bottom = bottom_.load(std::memory_order_relaxed);
    const int64_t top = top_.load(std::memory_order_acquire);
    Ring* ring = ring_.load(std::memory_order_relaxed);
    if (ring == nullptr || bottom - top >= static_cast<int64_t>(ring->size)) {
      ring = Grow(ring, top, bottom);
    }
    ring->At(bottom).store(value, std::memory_order_relaxed);
    // Whoever goes to sleep looks here after it has said so: see Pool::CallParked.
    bottom_.store(bottom + 1, std::memory_order_seq_cst);
  }

  // By the owner: the latest; kNone when there is none.
  uint32_t Pop() {
    const int64_t bottom = bottom_.load(std::memory_order_relaxed) - 1;
    if (top_.load(std::memory_order_relaxed) > bottom) {
      return kNone;  // Thieves only add to `top_`.
    }
    bottom_.store(bottom, std::memory_order_seq_cst);
    int64_t top = top_.load(std::memory_order_seq_cst);
    if (top > bottom) {
      bottom_.store(bottom + 1, std::memory_order_release);
      return kNone;
    }
    uint32_t value = ring_.load(std::memory_order_relaxed)->At(bottom).load(std::memory_order_relaxed);
    if (top == bottom) {
      // The last one: a thief may be at it, too.
      if (!top_.compare_exchange_strong(top, top + 1, std::memory_order_seq_cst)) {
        value = kNone;
      }
      bottom_.store(bottom + 1, std::memory_order_release);
    }
    return value;
  }

  // By anybody: the oldest; kNone when there is none, or when somebody else was quicker.
  uint32_t Steal() {
    int64_t top = top_.load(std::memory_order_seq_cst);
    if (top >= bottom_.load(std::memory_order_seq_cst)) {
      return kNone;
    }
    const uint32_t value = ring_.load(std::memory_order_acquire)->At(top).load(std::memory_order_relaxed);
    return top_.compare_exchange_strong(top, top + 1, std::memory_order_seq_cst) ? value : kNone;
  }

  // About; exact to the owner while nobody steals.
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

  // Thieves may still read the old ring: it stays until Clear.
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
  std::vector<std::unique_ptr<Ring>> rings_;  // The owner's.
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_WORK_DEQUE_H_
