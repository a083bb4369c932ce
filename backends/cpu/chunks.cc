// SPDX-License-Identifier: Apache-2.0
// Work on ranges by the pool's threads.
#include <algorithm>
#include <span>
#include <utility>

#include "backends/cpu/pool.h"
#include "backends/cpu/pool_thread.h"
#include "backends/shared/ticks.h"

namespace hpvm::cpu {
namespace {

// Polling interval of a range's owner that may not work on it itself.
constexpr Duration kOwnerWait = std::chrono::milliseconds(1);

}  // namespace

struct PoolRun final : PoolSource {
  // With more participants, some start in the same part.
  static constexpr uint32_t kPartsMax = 16;
  struct alignas(64) Part {
    std::atomic<uint64_t> next{0};
    uint64_t end = 0;

    uint64_t left() const {
      const uint64_t at = next.load(std::memory_order_relaxed);
      return at < end ? end - at : 0;
    }
    // Takes a share of the remainder, within the bounds; returns false when nothing remains.
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
  Pool& pool;
  Part parts[kPartsMax];
  std::atomic<bool> cancelled{false};
  uint64_t chunk_min, chunk_max;
  uint32_t threads;  // Number of parts of the range, up to kPartsMax.
  const std::atomic<uint32_t>* stop;
  const PoolFamily* const family = ThisPoolThread().family;
  PoolBody* body;
  bool is_open = false;
  uint32_t allowed_epoch;  // Last value seen by the calling thread.

  PoolRun(Pool& owner, const PoolRange& range, PoolBody& work)
      : pool(owner),
        chunk_min(std::max<uint64_t>(range.chunk_min, 1)),
        chunk_max(std::max(range.chunk_max, chunk_min)),
        stop(range.stop),
        body(&work),
        allowed_epoch(owner.AllowedEpoch()) {
    threads = static_cast<uint32_t>(std::clamp<uint64_t>(ChunksOf(range), 1, pool.Allowed()));
    Divide(range.begin, range.end);
  }

  uint64_t ChunksOf(const PoolRange& range) const {
    const uint64_t units = range.end > range.begin ? range.end - range.begin : 0;
    return units / chunk_min + (units % chunk_min != 0 ? 1 : 0);
  }
  bool Serve(uint32_t thread) override {
    Chunks chunks(pool, *this, thread, false);
    body->Work(chunks);
    return chunks.has_taken_;
  }
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
  bool IsHalted() const {
    return cancelled.load(std::memory_order_relaxed) ||
           (family != nullptr && family->is_halted.load(std::memory_order_relaxed));
  }
  bool HandedOut() { return !IsHalted() && IsUsedUp(); }
  bool Ended() { return IsHalted() || IsUsedUp() || (stop != nullptr && stop->load(std::memory_order_relaxed) != 0); }
};

// The caller of Run waits while the grant is revoked, or while it may not work itself, because others may finish the
// range. It calls the helpers back.
bool Chunks::OwnerMayTake() {
  bool had_to_wait = false;
  uint32_t epoch = pool_.GrantEpoch();
  while (!pool_.MayOwn(participant_)) {
    if (run_.Ended()) {
      return false;
    }
    had_to_wait = true;
    pool_.AwaitGrantChange(epoch, kOwnerWait);
    epoch = pool_.GrantEpoch();
  }
  const uint32_t allowed_epoch = pool_.AllowedEpoch();
  if (run_.is_open && (had_to_wait || allowed_epoch != run_.allowed_epoch)) {
    run_.allowed_epoch = allowed_epoch;
    pool_.CallHelpers(pool_.Allowed() - 1);
  }
  return true;
}

// Returns true when this participant may take a chunk now. Helpers leave when they may not.
bool Chunks::MayTake() {
  return is_owner_ ? OwnerMayTake() : pool_.MayWork(participant_);
}

bool Chunks::Enter() {
  if (pool_.grant_gate_ == nullptr) {
    return MayTake();
  }
  // The grant may be revoked between the check and the entry.
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
  has_taken_ = true;
  return true;
}

void Chunks::Cancel() { run_.cancelled.store(true, std::memory_order_relaxed); }

bool Pool::Run(const PoolRange& range, PoolBody& body) {
  PoolRun run(*this, range, body);
  PoolThread& self = ThisPoolThread();
  Chunks own(*this, run, self.index, true);
  const bool is_alone = threads_ == 1 || run.ChunksOf(range) <= 1;
  const uint32_t slot = is_alone ? kNoSlot : Open(run, self.family);
  if (slot == kNoSlot) {
    body.Work(own);
    return run.HandedOut();
  }
  run.is_open = true;
  const uint64_t start = backends::Ticks::MonotonicNs();
  CallHelpers(run.threads - 1);
  if (self.family != nullptr) {
    self.family->Wake();
  }
  body.Work(own);
  Close(slot);
  self.shared_ns += backends::Ticks::MonotonicNs() - start;
  return run.HandedOut();
}

}  // namespace hpvm::cpu
