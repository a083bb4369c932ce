// SPDX-License-Identifier: Apache-2.0
#include "server/memory/segment_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/failpoint.h"
#include "base/fair_queue.h"
#include "base/io/memfd.h"

namespace hpvm::server {
namespace {

constexpr uint64_t kPage = 4096;

// Clearing smaller segments takes less time than making new ones.
constexpr uint64_t kClearedBytesMax = 1 << 20;

// Frees memory on a thread that nobody waits for: half a gigabyte takes the kernel a tenth of a second. Never
// destroyed.
FairQueue& Disposal() {
  static auto* const queue = new FairQueue("disposal", "memory", 1);
  return *queue;
}

}  // namespace

SegmentPool::SegmentPool(uint64_t idle_bytes_max, scheduler::Account account)
    : state_(std::make_shared<State>()), account_(account) {
  state_->idle_bytes_max = idle_bytes_max;
}

uint64_t SegmentPool::CapacityFor(uint64_t bytes) {
  const uint64_t pages = std::max<uint64_t>(1, bytes / kPage + (bytes % kPage != 0));
  const uint64_t step = std::max<uint64_t>(1, std::bit_floor(pages) / 8);
  return (pages + step - 1) / step * step * kPage;
}

StatusOr<SegmentRef> SegmentPool::Acquire(uint64_t bytes, bool zero) {
  HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("segment.acquire.before"));
  const uint64_t capacity = CapacityFor(bytes);
  if (capacity < bytes) {
    return ResourceExhausted("A memory segment cannot have " + std::to_string(bytes) + " bytes.");
  }
  scheduler::Lease lease;
  if (const auto refusal = account_.Take(scheduler::Resource::kHostBytes, capacity, &lease)) {
    return ToStatus(*refusal);
  }
  std::unique_ptr<Segment> segment;
  Freed freed;
  {
    std::lock_guard lock(state_->mutex);
    // Prefers the newest, whose pages are most likely in the processor's cache.
    const auto found = std::find_if(state_->idle.rbegin(), state_->idle.rend(), [&](const auto& idle) {
      return idle->capacity_bytes == capacity && (!zero || capacity <= kClearedBytesMax);
    });
    if (found != state_->idle.rend()) {
      segment = std::move(*found);
      state_->idle.erase(std::next(found).base());
      state_->idle_bytes -= capacity;
    } else {
      Trim(*state_, account_.Room(scheduler::Resource::kHostBytes), freed);
    }
  }
  if (segment == nullptr) {
    HPVMD_ASSIGN_OR_RETURN(UniqueFd fd, CreateSealedMemfd("hpvm-buffer", capacity));
    segment = std::make_unique<Segment>();
    segment->fd = std::move(fd);
    segment->capacity_bytes = capacity;
  } else if (zero) {
    HPVMD_RETURN_IF_ERROR(ZeroRange(segment->fd.get(), 0, bytes));
  }
  segment->host_bytes = std::move(lease);
  {
    std::lock_guard lock(state_->mutex);
    segment->id = segment->id == 0 ? state_->next_id++ : segment->id;
    state_->live_bytes += capacity;
  }
  return SegmentRef(segment.release(), [state = state_](const Segment* done) {
    Return(*state, std::unique_ptr<Segment>(const_cast<Segment*>(done)));
  });
}

StatusOr<SegmentRef> SegmentPool::Adopt(UniqueFd& fd, uint64_t bytes, bool read_only) {
  auto segment = std::make_unique<Segment>();
  if (const auto refusal = account_.Take(scheduler::Resource::kHostBytes, bytes, &segment->host_bytes)) {
    return ToStatus(*refusal);
  }
  segment->fd = std::move(fd);
  segment->capacity_bytes = bytes;
  segment->registered = true;
  segment->read_only = read_only;
  {
    std::lock_guard lock(state_->mutex);
    segment->id = state_->next_id++;
    state_->live_bytes += bytes;
  }
  return SegmentRef(segment.release(), [state = state_](const Segment* done) {
    Disown(*state, std::unique_ptr<Segment>(const_cast<Segment*>(done)));
  });
}

void SegmentPool::Disown(State& state, std::unique_ptr<Segment> segment) {
  segment->host_bytes.Release();
  Freed freed;  // Before the lock, so destroyed after it.
  std::lock_guard lock(state.mutex);
  state.live_bytes -= segment->capacity_bytes;
  Forget(state, std::move(segment), freed);
}

void SegmentPool::Forget(State& state, std::unique_ptr<Segment> segment, Freed& freed) {
  if (state.freed_ids.size() < 4096) {
    state.freed_ids.push_back(segment->id);
  }
  freed.Add(std::move(segment));
}

void SegmentPool::Return(State& state, std::unique_ptr<Segment> segment) {
  segment->recycled = true;
  segment->host_bytes.Release();
  Freed freed;  // Before the lock, so destroyed after it.
  std::lock_guard lock(state.mutex);
  state.live_bytes -= segment->capacity_bytes;
  state.idle_bytes += segment->capacity_bytes;
  state.idle.push_back(std::move(segment));
  Trim(state, state.idle_bytes_max, freed);
}

void SegmentPool::Trim(State& state, uint64_t bytes_max, Freed& freed) {
  while (state.idle_bytes > bytes_max) {
    state.idle_bytes -= state.idle.front()->capacity_bytes;
    Forget(state, std::move(state.idle.front()), freed);
    state.idle.erase(state.idle.begin());
  }
}

void SegmentPool::Freed::Add(std::unique_ptr<Segment> segment) {
  bytes_ += segment->capacity_bytes;
  segments_.push_back(std::move(segment));
}

SegmentPool::Freed::~Freed() {
  if (bytes_ > kClearedBytesMax) {
    auto segments = std::make_shared<std::vector<std::unique_ptr<Segment>>>(std::move(segments_));
    Disposal().PostOnce("", [segments = std::move(segments)] { segments->clear(); });
  }
}

std::vector<uint64_t> SegmentPool::TakeFreed() {
  std::lock_guard lock(state_->mutex);
  return std::exchange(state_->freed_ids, {});
}

uint64_t SegmentPool::live_bytes() const {
  std::lock_guard lock(state_->mutex);
  return state_->live_bytes;
}

uint64_t SegmentPool::idle_bytes() const {
  std::lock_guard lock(state_->mutex);
  return state_->idle_bytes;
}

}  // namespace hpvm::server
