// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/host_copy.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <system_error>

namespace hpvm::gpu {
namespace {

// About 25 us for one thread: the cost of taking a slice is small in comparison.
constexpr uint64_t kSliceBytes = 256 * 1024;
constexpr uint64_t kShareFromBytes = 1024 * 1024;
// Number of polls by an idle thread before it sleeps, as tasks of one copy follow each other closely.
constexpr int kLooks = 20'000;

inline void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Like memcpy, but bypasses the caches.
void Stream(uint8_t* target, const uint8_t* source, uint64_t bytes) {
  uint64_t at = 0;
#if defined(__x86_64__)
  constexpr uint64_t kLine = 64;
  at = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(target) % kLine) % kLine);
  std::memcpy(target, source, at);
  for (; bytes - at >= kLine; at += kLine) {
    const auto* from = reinterpret_cast<const __m128i*>(source + at);
    auto* to = reinterpret_cast<__m128i*>(target + at);
    const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  _mm_sfence();  // Makes the stores visible to threads that see the slice as done.
#endif
  std::memcpy(target + at, source + at, bytes - at);
}

}  // namespace

uint32_t UsualHelpers() {
  // Measured with an H200: four threads move 28 GB/s, its bus 55.
  return std::min(7u, std::max(2u, std::thread::hardware_concurrency()) / 2 - 1);
}

HostCopier::~HostCopier() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  came_.notify_all();
  for (std::thread& helper : helpers_) {
    helper.join();
  }
}

// The caller holds mutex_.
void HostCopier::StartHelpers() {
  has_started_ = true;
  try {
    while (helpers_.size() < wanted_) {
      helpers_.emplace_back([this] {
        StayNear(near_);
        Serve();
      });
    }
  } catch (const std::system_error&) {
    // Continue with fewer helpers.
  }
}

void HostCopier::Copy(uint8_t* target, const uint8_t* source, uint64_t bytes) {
  if (wanted_ == 0 || bytes < kShareFromBytes) {
    std::memcpy(target, source, bytes);
    return;
  }
  Task task;
  Start(task, {target, source, bytes});
  Finish(task);
}

void HostCopier::Start(Task& task, const Bytes& copy) {
  task.target_ = copy.target;
  task.source_ = copy.source;
  task.bytes_ = copy.bytes;
  task.has_indices_ = copy.has_indices;
  task.is_streamed_ = copy.is_streamed;
  task.claimed_ = 0;
  task.words_ = {};
  if (copy.bytes == 0) {
    return;
  }
  task.undone_.store((copy.bytes + kSliceBytes - 1) / kSliceBytes, std::memory_order_relaxed);
  {
    std::lock_guard lock(mutex_);
    if (!has_started_) {
      StartHelpers();
    }
    open_.push_back(&task);
    has_open_.store(true, std::memory_order_relaxed);
  }
  came_.notify_all();
}

void HostCopier::Finish(Task& task) {
  while (task.undone_.load(std::memory_order_acquire) != 0) {
    if (!MakeSlice()) {
      Await(task);
    }
  }
}

// Precondition: all of its slices are taken.
void HostCopier::Await(const Task& task) {
  for (int looks = 0; looks < kLooks; ++looks) {
    if (task.undone_.load(std::memory_order_acquire) == 0) {
      return;
    }
    Pause();
  }
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return task.undone_.load(std::memory_order_acquire) == 0; });
}

// Returns false when there is no slice left to take.
bool HostCopier::MakeSlice() {
  static_assert(kSliceBytes % sizeof(int32_t) == 0,
                "A slice must be a multiple of a word, so that each slice begins at a word.");
  std::unique_lock lock(mutex_);
  if (open_.empty()) {
    return false;
  }
  Task& task = *open_.front();
  const uint64_t begin = task.claimed_, bytes = std::min(kSliceBytes, task.bytes_ - begin);
  task.claimed_ += bytes;
  if (task.claimed_ == task.bytes_) {
    open_.pop_front();
    has_open_.store(!open_.empty(), std::memory_order_relaxed);
  }
  lock.unlock();

  if (task.is_streamed_) {
    Stream(task.target_ + begin, task.source_ + begin, bytes);
  } else {
    std::memcpy(task.target_ + begin, task.source_ + begin, bytes);
  }
  if (task.has_indices_) {
    // Others may write the source meanwhile, so the arrived bytes are scanned.
    WordScan scan;
    scan.Add(task.target_ + begin, bytes);
    lock.lock();
    task.words_ = Union(task.words_, scan.range());
    lock.unlock();
  }
  if (task.undone_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    // From here on the task may be destroyed. An owner that is about to sleep holds the mutex until it does.
    lock.lock();
    lock.unlock();
    done_.notify_all();
  }
  return true;
}

void HostCopier::Serve() {
  while (!closing_) {
    if (MakeSlice()) {
      continue;
    }
    for (int looks = 0; looks < kLooks && !has_open_.load(std::memory_order_relaxed) && !closing_; ++looks) {
      Pause();
    }
    std::unique_lock lock(mutex_);
    came_.wait(lock, [&] { return !open_.empty() || closing_; });
  }
}

}  // namespace hpvm::gpu
