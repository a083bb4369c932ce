// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/pool.h"

#include <time.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/limits.h"

namespace hpvm::cpu {

namespace {

constexpr Duration kSpin = std::chrono::microseconds(50);
// How often a thread without a grant looks again: far below the grant's quantum (5 ms), and 1 % of a core.
constexpr long kGrantPollNs = 200'000;
constexpr size_t kHelperStackBytes = limits::kKernelStackBytes + 512 * limits::kKiB;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `done` or the spin limit.
template <typename Done>
bool SpinUntil(const Done& done) {
  const Time until = RealClock().Now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) {
        return true;
      }
      Pause();
    }
  } while (RealClock().Now() < until);
  return done();
}

}  // namespace

struct PoolRun {
  // Beyond so many participants, some begin in the same part.
  static constexpr uint32_t kPartsMax = 16;
  struct alignas(64) Part {
    std::atomic<uint64_t> next{0};
    uint64_t end = 0;

    uint64_t left() const {
      const uint64_t at = next.load(std::memory_order_relaxed);
      return at < end ? end - at : 0;
    }
    // Up to a share of what is left, within the bounds; false when nothing is.
    bool Take(uint64_t chunk_min, uint64_t chunk_max, uint64_t* begin, uint64_t* until) {
      uint64_t from = next.load(std::memory_order_relaxed);
      uint64_t taken;
      do {
        if (from >= end) {
          return false;
        }
        taken = std::min(end - from, std::clamp((end - from) / 4, chunk_min, chunk_max));
      } while (!next.compare_exchange_weak(from, from + taken, std::memory_order_relaxed));
      *begin = from;
      *until = from + taken;
      return true;
    }
  };
  Part parts[kPartsMax];
  std::atomic<bool> cancelled{false};
  uint64_t chunk_min, chunk_max;
  uint32_t threads;  // Parts of the range, up to kPartsMax.
  const std::atomic<uint32_t>* stop;
  PoolBody* body;
  bool has_helpers = false;
  uint32_t grant_epoch = 0;  // As the calling thread last saw it.

  std::span<Part> Parts() { return std::span(parts).first(std::min(threads, kPartsMax)); }
  void Divide(uint64_t begin, uint64_t end) {
    const std::span<Part> all = Parts();
    const uint64_t total = end > begin ? end - begin : 0;
    uint64_t at = begin;
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].next.store(at, std::memory_order_relaxed);
      at += total / all.size() + (i < total % all.size() ? 1 : 0);
      all[i].end = at;
    }
  }
  bool IsUsedUp() {
    const std::span<Part> all = Parts();
    return std::all_of(all.begin(), all.end(), [](const Part& part) { return part.left() == 0; });
  }
  bool HandedOut() { return !cancelled.load(std::memory_order_relaxed) && IsUsedUp(); }
  bool Ended() {
    return cancelled.load(std::memory_order_relaxed) || IsUsedUp() ||
           (stop != nullptr && stop->load(std::memory_order_relaxed) != 0);
  }
};

struct alignas(64) Pool::Helper {
  Pool* pool = nullptr;
  uint32_t participant = 0;
  bool started = false;  // Under run_mutex_.
  pthread_t thread;
  std::atomic<uint32_t> calls{0};  // Grows at each call; the helper waits on it.
};

// Whether this participant may take a chunk now. The calling thread waits here while the grant is revoked; helpers
// leave.
bool Chunks::MayTake() {
  if (pool_.grant_ == nullptr) {
    return true;
  }
  if (participant_ != 0) {
    return pool_.Granted() && participant_ < pool_.Allowed();
  }
  const bool had_to_wait = !pool_.Granted();
  if (had_to_wait && !pool_.WaitForGrant(run_.stop)) {
    return false;
  }
  const uint32_t epoch = pool_.grant_->epoch.load(std::memory_order_acquire);
  if (run_.has_helpers && (had_to_wait || epoch != run_.grant_epoch)) {
    run_.grant_epoch = epoch;
    pool_.CallHelpers(pool_.Allowed() - 1);
  }
  return true;
}

bool Chunks::Enter() {
  if (pool_.grant_gate_ == nullptr) {
    return MayTake();
  }
  // The grant may be revoked between the question and the entry.
  while (MayTake()) {
    if (pool_.grant_gate_->TryEnter()) {
      is_inside_ = true;
      return true;
    }
  }
  return false;
}

void Chunks::Leave() {
  if (std::exchange(is_inside_, false)) {
    pool_.grant_gate_->Leave();
  }
}

bool Chunks::Next(uint64_t* begin, uint64_t* end) {
  Leave();
  if (run_.Ended() || !Enter()) {
    return false;
  }
  const std::span<PoolRun::Part> parts = run_.Parts();
  PoolRun::Part* part = &parts[participant_ % parts.size()];
  while (!part->Take(run_.chunk_min, run_.chunk_max, begin, end)) {
    part = &*std::max_element(parts.begin(), parts.end(),
                              [](const PoolRun::Part& a, const PoolRun::Part& b) { return a.left() < b.left(); });
    if (part->left() == 0) {
      return false;
    }
  }
  return true;
}

void Chunks::Cancel() { run_.cancelled.store(true, std::memory_order_relaxed); }

Pool::Pool(uint32_t threads, const GrantEntry* grant, GrantGate* gate)
    : threads_(std::max(threads, 1u)), grant_(grant), grant_gate_(gate), helpers_(new Helper[threads_ - 1]) {
  for (uint32_t i = 0; i + 1 < threads_; ++i) {
    helpers_[i].pool = this;
    helpers_[i].participant = i + 1;
  }
}

Pool::~Pool() {
  closing_.store(true, std::memory_order_seq_cst);
  for (uint32_t i = 0; i + 1 < threads_; ++i) {
    Helper& helper = helpers_[i];
    if (helper.started) {
      helper.calls.fetch_add(1, std::memory_order_seq_cst);
      helper.calls.notify_one();
      pthread_join(helper.thread, nullptr);
    }
  }
}

bool Pool::Granted() const {
  return grant_ == nullptr ||
         grant_->state.load(std::memory_order_acquire) == static_cast<uint32_t>(GrantState::kGranted);
}

uint32_t Pool::Allowed() const {
  if (grant_ == nullptr) {
    return threads_;
  }
  return std::clamp(grant_->cpu_threads.load(std::memory_order_relaxed), 1u, threads_);
}

bool Pool::WaitForGrant(const std::atomic<uint32_t>* stop) const {
  while (!Granted()) {
    if (stop != nullptr && stop->load(std::memory_order_relaxed) != 0) {
      return false;
    }
    const timespec pause{0, kGrantPollNs};
    nanosleep(&pause, nullptr);
  }
  return true;
}

bool Pool::MaySpin() const {
  return Allowed() > 1 && Granted() && (grant_ == nullptr || grant_->contended.load(std::memory_order_relaxed) == 0);
}

bool Pool::Run(const PoolRange& range, PoolBody& body) {
  PoolRun run;
  run.chunk_min = std::max<uint64_t>(range.chunk_min, 1);
  run.chunk_max = std::max(range.chunk_max, run.chunk_min);
  run.stop = range.stop;
  run.body = &body;
  const uint32_t allowed = Allowed();
  const uint64_t instances = range.end > range.begin ? range.end - range.begin : 0;
  const uint64_t chunks = instances / run.chunk_min + (instances % run.chunk_min != 0 ? 1 : 0);
  run.threads = static_cast<uint32_t>(std::clamp<uint64_t>(chunks, 1, allowed));
  run.Divide(range.begin, range.end);
  Chunks own(*this, run, 0);

  std::unique_lock lock(run_mutex_, std::defer_lock);
  if (threads_ == 1 || chunks <= 1 || !lock.try_lock()) {
    body.Work(own);
    return run.HandedOut();
  }
  run.has_helpers = true;
  if (grant_ != nullptr) {
    run.grant_epoch = grant_->epoch.load(std::memory_order_acquire);
  }
  run_ = &run;
  gate_.fetch_and(~kClosed, std::memory_order_release);
  CallHelpers(run.threads - 1);
  body.Work(own);
  // Nobody enters any more; wait for those inside. A helper that came too late counts itself in and out again without
  // looking at run_.
  gate_.fetch_or(kClosed, std::memory_order_acq_rel);
  auto empty = [this] { return gate_.load(std::memory_order_acquire) == kClosed; };
  if (!empty() && !(MaySpin() && SpinUntil(empty))) {
    uint32_t gate;
    while ((gate = gate_.load(std::memory_order_acquire)) != kClosed) {
      gate_.wait(gate, std::memory_order_acquire);
    }
  }
  run_ = nullptr;
  return run.HandedOut();
}

void Pool::CallHelpers(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    Helper& helper = helpers_[i];
    if (!helper.started && !StartHelper(i)) {
      return;
    }
    helper.calls.fetch_add(1, std::memory_order_seq_cst);
    helper.calls.notify_one();
  }
}

// False when the system has no thread for us; the run goes on with fewer.
bool Pool::StartHelper(uint32_t index) {
  Helper& helper = helpers_[index];
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) {
    return false;
  }
  pthread_attr_setstacksize(&attributes, kHelperStackBytes);
  auto serve = [](void* argument) -> void* {
    auto* self = static_cast<Helper*>(argument);
    self->pool->Serve(*self);
    return nullptr;
  };
  helper.started = pthread_create(&helper.thread, &attributes, serve, &helper) == 0;
  pthread_attr_destroy(&attributes);
  return helper.started;
}

void Pool::AwaitSignal(Helper& helper, uint32_t seen) const {
  auto called = [&] { return helper.calls.load(std::memory_order_acquire) != seen; };
  if (called() || (MaySpin() && SpinUntil(called))) {
    return;
  }
  helper.calls.wait(seen, std::memory_order_acquire);
}

void Pool::Serve(Helper& helper) {
  uint32_t seen = 0;
  while (true) {
    AwaitSignal(helper, seen);
    seen = helper.calls.load(std::memory_order_acquire);
    if (closing_.load(std::memory_order_acquire)) {
      return;
    }
    Join(helper.participant);
  }
}

void Pool::Join(uint32_t participant) {
  if ((gate_.fetch_add(1, std::memory_order_acq_rel) & kClosed) == 0) {
    Chunks chunks(*this, *run_, participant);
    run_->body->Work(chunks);
  }
  if (gate_.fetch_sub(1, std::memory_order_acq_rel) == (kClosed | 1)) {
    gate_.notify_all();
  }
}

}  // namespace hpvm::cpu
