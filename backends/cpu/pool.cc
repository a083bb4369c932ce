// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/pool.h"

#include <algorithm>
#include <bit>

#include "backends/cpu/pool_thread.h"
#include "base/io/futex.h"
#include "base/io/spin.h"
#include "base/limits.h"

namespace hpvm::cpu {

namespace {

// Interval at which a thread without a grant polls the stop word, which wakes no thread.
constexpr Duration kGrantWait = std::chrono::milliseconds(10);
constexpr size_t kHelperStackBytes = limits::kKernelStackBytes + 512 * limits::kKiB;

}  // namespace

struct alignas(64) Pool::Helper {
  Pool* pool = nullptr;
  uint32_t thread_index = 0;
  std::atomic<bool> started{false};
  pthread_t thread;
  std::atomic<uint32_t> calls{0};  // Incremented at each call.
  // 1: the helper sleeps or is about to, and has not been called yet; the helper waits on this word.
  std::atomic<uint32_t> parked{0};
};

Pool::Pool(uint32_t threads, const GrantEntry* grant, GrantGate* gate)
    : threads_(std::max(threads, 1u)),
      grant_(grant),
      grant_gate_(gate),
      helpers_(new Helper[threads_ - 1]),
      slots_(new Slot[kSlots]) {
  for (uint32_t i = 0; i + 1 < threads_; ++i) {
    helpers_[i].pool = this;
    helpers_[i].thread_index = i + 1;
  }
}

Pool::~Pool() {
  closing_.store(true, std::memory_order_seq_cst);
  for (uint32_t i = 0; i + 1 < threads_; ++i) {
    Helper& helper = helpers_[i];
    if (helper.started.load(std::memory_order_acquire)) {
      Call(helper);
      pthread_join(helper.thread, nullptr);
    }
  }
}

uint32_t Pool::Allowed() const {
  const uint32_t granted = GrantedThreads();
  const uint32_t copying = std::min(CopyFlow::BusyThreads(), granted / 2);
  return std::max(granted - copying, 1u);
}

uint32_t Pool::GrantedThreads() const {
  if (grant_ == nullptr) {
    return threads_;
  }
  return std::clamp(grant_->cpu_threads.load(std::memory_order_relaxed), 1u, threads_);
}

void Pool::AwaitGrantChange(uint32_t seen, Duration limit) const {
  FutexWait(grant_->epoch, seen, limit, FutexScope::kShared);
}

bool Pool::WaitForGrant(const std::atomic<uint32_t>* stop) const {
  while (true) {
    const uint32_t seen = GrantEpoch();
    if (Granted()) {
      return true;
    }
    if (stop != nullptr && stop->load(std::memory_order_relaxed) != 0) {
      return false;
    }
    AwaitGrantChange(seen, kGrantWait);
  }
}

bool Pool::MaySpin() const {
  return Allowed() > 1 && Granted() && (grant_ == nullptr || grant_->contended.load(std::memory_order_relaxed) == 0);
}

uint32_t Pool::Open(PoolSource& source, const void* family) {
  uint64_t taken = taken_.load(std::memory_order_relaxed);
  uint32_t index;
  do {
    if (taken == ~uint64_t{0}) {
      return kNoSlot;
    }
    index = static_cast<uint32_t>(std::countr_one(taken));
  } while (!taken_.compare_exchange_weak(taken, taken | uint64_t{1} << index, std::memory_order_acquire));
  Slot& slot = slots_[index];
  slot.source.store(&source, std::memory_order_relaxed);
  slot.family.store(family, std::memory_order_relaxed);
  slot.gate.fetch_and(~Slot::kClosed, std::memory_order_release);
  open_.fetch_or(uint64_t{1} << index, std::memory_order_seq_cst);
  return index;
}

void Pool::Close(uint32_t index) {
  Slot& slot = slots_[index];
  // No helper enters any more; wait for those inside. A helper that arrives too late increments and decrements the
  // count without using the source.
  open_.fetch_and(~(uint64_t{1} << index), std::memory_order_relaxed);
  slot.gate.fetch_or(Slot::kClosed, std::memory_order_acq_rel);
  const auto is_empty = [&] { return slot.gate.load(std::memory_order_acquire) == Slot::kClosed; };
  if (!is_empty() && !(MaySpin() && SpinUntil(kSpin, is_empty))) {
    uint32_t gate;
    while ((gate = slot.gate.load(std::memory_order_acquire)) != Slot::kClosed) {
      slot.gate.wait(gate, std::memory_order_acquire);
    }
  }
  taken_.fetch_and(~(uint64_t{1} << index), std::memory_order_release);
}

bool Pool::Enter(Slot& slot, uint32_t thread, const void* family) {
  bool has_worked = false;
  // Inside the gate the slot does not change: either it is what it seemed to be, or it belongs to another family by
  // now.
  if ((slot.gate.fetch_add(1, std::memory_order_acq_rel) & Slot::kClosed) == 0 &&
      (family == nullptr || slot.family.load(std::memory_order_relaxed) == family)) {
    has_worked = slot.source.load(std::memory_order_relaxed)->Serve(thread);
  }
  if (slot.gate.fetch_sub(1, std::memory_order_acq_rel) == (Slot::kClosed | 1)) {
    slot.gate.notify_all();
  }
  return has_worked;
}

bool Pool::Visit(uint32_t thread) {
  bool has_worked = false;
  // Helpers begin at different sources.
  const uint64_t open = std::rotr(open_.load(std::memory_order_seq_cst), static_cast<int>(thread % kSlots));
  for (uint64_t left = open; left != 0 && MayWork(thread); left &= left - 1) {
    const auto index = (static_cast<uint32_t>(std::countr_zero(left)) + thread) % kSlots;
    has_worked |= Enter(slots_[index], thread, nullptr);
  }
  return has_worked;
}

bool Pool::ServeFamily(const void* family, uint32_t thread) {
  for (uint64_t left = open_.load(std::memory_order_seq_cst); left != 0; left &= left - 1) {
    Slot& slot = slots_[std::countr_zero(left)];
    if (slot.family.load(std::memory_order_relaxed) == family && Enter(slot, thread, family)) {
      return true;
    }
  }
  return false;
}

void Pool::Call(Helper& helper) {
  helper.calls.fetch_add(1, std::memory_order_seq_cst);
  if (helper.parked.exchange(0, std::memory_order_seq_cst) != 0) {
    FutexWake(helper.parked, 1, FutexScope::kProcess);
  }
}

void Pool::CallHelpers(uint32_t count) {
  const uint32_t last = std::min(count, Allowed() - 1);
  for (uint32_t i = 0; i < last; ++i) {
    if (!helpers_[i].started.load(std::memory_order_acquire) && !StartHelper(i)) {
      return;
    }
    Call(helpers_[i]);
  }
}

void Pool::CallOneParked() {
  for (uint32_t i = 0; i + 1 < Allowed(); ++i) {
    if (helpers_[i].parked.load(std::memory_order_relaxed) != 0) {
      Call(helpers_[i]);
      return;
    }
  }
}

// Returns false when the system cannot start a thread; the work continues with fewer.
bool Pool::StartHelper(uint32_t index) {
  std::lock_guard lock(start_mutex_);
  Helper& helper = helpers_[index];
  if (helper.started.load(std::memory_order_relaxed)) {
    return true;
  }
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) {
    return false;
  }
  pthread_attr_setstacksize(&attributes, kHelperStackBytes);
  const auto serve = [](void* argument) -> void* {
    auto* self = static_cast<Helper*>(argument);
    self->pool->ServeAll(*self);
    return nullptr;
  };
  const bool is_started = pthread_create(&helper.thread, &attributes, serve, &helper) == 0;
  helper.started.store(is_started, std::memory_order_release);
  pthread_attr_destroy(&attributes);
  return is_started;
}

void Pool::Park(Helper& helper, uint32_t seen) {
  const auto is_called = [&] { return helper.calls.load(std::memory_order_seq_cst) != seen; };
  if (is_called() || (MaySpin() && SpinUntil(kSpin, is_called))) {
    return;
  }
  helper.parked.store(1, std::memory_order_seq_cst);
  parked_.fetch_add(1, std::memory_order_seq_cst);
  // Work may have arrived before others could see that this helper sleeps.
  if (!closing_.load(std::memory_order_seq_cst) && !Visit(helper.thread_index)) {
    while (!is_called()) {
      // Waits on the mark itself: an earlier call may take the mark this late, and the next caller then wakes no
      // helper.
      FutexWait(helper.parked, 1, FutexScope::kProcess);
      helper.parked.store(1, std::memory_order_seq_cst);
    }
  }
  parked_.fetch_sub(1, std::memory_order_relaxed);
  helper.parked.store(0, std::memory_order_relaxed);
}

void Pool::ServeAll(Helper& helper) {
  ThisPoolThread().index = helper.thread_index;
  while (true) {
    const uint32_t seen = helper.calls.load(std::memory_order_acquire);
    if (closing_.load(std::memory_order_acquire)) {
      return;
    }
    while (Visit(helper.thread_index)) {
    }
    Park(helper, seen);
  }
}

}  // namespace hpvm::cpu
