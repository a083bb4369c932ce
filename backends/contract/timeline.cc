// SPDX-License-Identifier: Apache-2.0
// Implements Hub and the host's timelines.
#include <optional>

#include "backends/contract/device.h"

namespace hpvm {
namespace {

std::optional<size_t> FirstSettled(std::span<const TimelinePoint> points) {
  for (size_t i = 0; i < points.size(); ++i) {
    if (Poll(points[i]) != PointState::kPending) {
      return i;
    }
  }
  return std::nullopt;
}

}  // namespace

StatusOr<size_t> Hub::WaitAny(std::span<const TimelinePoint> points, Time deadline) {
  if (std::optional<size_t> settled = FirstSettled(points)) {
    return *settled;
  }
  // Announced before the points are read again: a timeline changes first and then looks for waiters, so one of the two
  // sees the other.
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  struct Leave {
    std::atomic<uint32_t>& waiters;
    ~Leave() { waiters.fetch_sub(1, std::memory_order_seq_cst); }
  } leave{waiters_};
  std::unique_lock lock(mutex_);
  while (true) {
    const uint64_t generation = generation_;
    lock.unlock();
    if (std::optional<size_t> settled = FirstSettled(points)) {
      return *settled;
    }
    lock.lock();
    auto changed = [&] { return generation_ != generation; };
    if (deadline == kNever) {
      changed_.wait(lock, changed);
    } else if (!changed_.wait_until(lock, std::chrono::steady_clock::time_point(deadline), changed)) {
      return DeadlineExceeded("No awaited timeline point was reached before the deadline.");
    }
  }
}

void Hub::Notify() {
  if (waiters_.load(std::memory_order_seq_cst) == 0) {
    return;
  }
  {
    std::lock_guard lock(mutex_);
    ++generation_;
  }
  changed_.notify_all();
}

StatusOr<uint64_t> Timeline::Query() const {
  if (failed_.load(std::memory_order_seq_cst)) {
    std::lock_guard lock(mutex_);
    return failure_;
  }
  return value_.load(std::memory_order_seq_cst) & ~kFrozen;
}

// The fast path takes no lock, because values form a maximum.
void Timeline::Signal(uint64_t value) {
  HPVMD_CHECK((value & kFrozen) == 0);
  Hub& hub = hub_;  // A waiter that sees the value may destroy this timeline before the notification.
  uint64_t current = value_.load(std::memory_order_relaxed);
  do {
    if ((current & kFrozen) != 0 || current >= value) {
      return;
    }
  } while (!value_.compare_exchange_weak(current, value, std::memory_order_seq_cst));
  hub.Notify();
}

void Timeline::Fail(Status status) {
  HPVMD_CHECK(!status.ok());
  Hub& hub = hub_;  // As in Signal.
  {
    std::lock_guard lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) {
      return;
    }
    failure_ = std::move(status);
    value_.fetch_or(kFrozen, std::memory_order_seq_cst);
    failed_.store(true, std::memory_order_seq_cst);
  }
  hub.Notify();
}

Status Timeline::Wait(uint64_t value, Time deadline) {
  while (true) {
    if ((value_.load(std::memory_order_seq_cst) & ~kFrozen) >= value) {
      return absl::OkStatus();
    }
    if (failed_.load(std::memory_order_seq_cst)) {
      std::lock_guard lock(mutex_);
      // Signal may have overtaken Fail after the load above.
      bool reached = (value_.load(std::memory_order_relaxed) & ~kFrozen) >= value;
      return reached ? absl::OkStatus() : failure_;
    }
    TimelinePoint point{this, value};
    StatusOr<size_t> settled = hub_.WaitAny({&point, 1}, deadline);
    if (!settled.ok()) {
      return settled.status();
    }
  }
}

}  // namespace hpvm
