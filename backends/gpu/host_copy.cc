// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/host_copy.h"

#include <algorithm>
#include <cstring>
#include <system_error>

namespace hpvm::gpu {
namespace {

constexpr uint64_t kSliceBytes = 256 * 1024;  // Some 25 us by one thread: what handing over costs is small beside.
constexpr uint64_t kShareFromBytes = 1024 * 1024;
// An idle helper looks for so long before it sleeps, as chunks of one copy follow each other closely.
constexpr int kLooks = 20'000;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

uint32_t HostCopier::UsualHelpers() {
  // Measured beside an H200: four threads move 28 GB/s, its bus 55.
  return std::min(7u, std::max(2u, std::thread::hardware_concurrency()) / 2 - 1);
}

HostCopier::~HostCopier() {
  closing_ = true;
  turns_.fetch_add(1);
  turns_.notify_all();
  for (std::thread& helper : helpers_) {
    helper.join();
  }
}

void HostCopier::Start() {
  has_started_ = true;
  try {
    while (helpers_.size() < wanted_) {
      helpers_.emplace_back([this] {
        StayNear(near_);
        Serve();
      });
    }
  } catch (const std::system_error&) {
    // With fewer, then.
  }
}

void HostCopier::Copy(uint8_t* target, const uint8_t* source, uint64_t bytes) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (wanted_ == 0 || bytes < kShareFromBytes || !lock.try_lock()) {
    std::memcpy(target, source, bytes);
    return;
  }
  if (!has_started_) {
    Start();
  }
  target_ = target;
  source_ = source;
  bytes_ = bytes;
  const auto slices = static_cast<int64_t>((bytes + kSliceBytes - 1) / kSliceBytes);
  undone_.store(slices, std::memory_order_relaxed);
  left_.store(slices, std::memory_order_release);
  turns_.fetch_add(1);
  turns_.notify_all();
  while (CopySlice()) {
  }
  while (undone_.load(std::memory_order_acquire) != 0) {
    Pause();
  }
}

// False when there is none left.
bool HostCopier::CopySlice() {
  const int64_t left = left_.fetch_sub(1, std::memory_order_acquire);
  if (left <= 0) {
    return false;
  }
  const uint64_t begin = static_cast<uint64_t>(left - 1) * kSliceBytes;
  std::memcpy(target_ + begin, source_ + begin, std::min(kSliceBytes, bytes_ - begin));
  undone_.fetch_sub(1, std::memory_order_release);
  return true;
}

void HostCopier::Serve() {
  while (!closing_) {
    const uint32_t seen = turns_.load();
    int looks = 0;
    while (looks < kLooks && !closing_) {
      if (left_.load(std::memory_order_relaxed) > 0 && CopySlice()) {
        looks = 0;
      } else {
        ++looks;
        Pause();
      }
    }
    if (left_.load(std::memory_order_relaxed) <= 0 && !closing_) {
      turns_.wait(seen);  // Returns at once when a copy has come since.
    }
  }
}

}  // namespace hpvm::gpu
