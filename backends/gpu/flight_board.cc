// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/flight_board.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace hpvm::gpu {

void Milestone::Settle(Status status) const {
  {
    std::lock_guard lock(mutex_);
    has_ended_ = true;
    status_ = std::move(status);
  }
  changed_.notify_all();
}

Status Milestone::Await() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return has_ended_; });
  return status_;
}

Status AwaitAll(const Milestones& milestones) {
  for (const std::shared_ptr<const Milestone>& milestone : milestones) {
    HPVMD_RETURN_IF_ERROR(milestone->Await());
  }
  return absl::OkStatus();
}

void FlightBoard::Enter(Lane lane) {
  constexpr uint32_t kAllFlightsMax = kFlightsMax * kLanes;
  uint32_t& own = flights_[static_cast<size_t>(lane)];
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    const uint32_t all = std::accumulate(flights_.begin(), flights_.end(), 0u);
    return own < kFlightsMax && all < (gate_ == nullptr ? kAllFlightsMax : gate_->InFlightMax(kAllFlightsMax));
  });
  ++own;
}

void FlightBoard::Leave(Lane lane) {
  {
    std::lock_guard lock(mutex_);
    --flights_[static_cast<size_t>(lane)];
  }
  changed_.notify_all();
}

void FlightBoard::Post(std::span<const TimelinePoint> signals, Behind behind) {
  if (behind.milestone == nullptr) {
    return;
  }
  std::lock_guard lock(mutex_);
  for (const TimelinePoint& signal : signals) {
    entries_.push_back({signal, behind});
  }
  posted_->Signal(++posts_);
}

void FlightBoard::Strike(std::span<const TimelinePoint> signals) {
  std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) {
    return std::any_of(signals.begin(), signals.end(), [&](const TimelinePoint& signal) {
      return signal.timeline == entry.signal.timeline && signal.value == entry.signal.value;
    });
  });
}

TimelinePoint FlightBoard::NextPost() const {
  std::lock_guard lock(mutex_);
  return {posted_.get(), posts_ + 1};
}

Behind FlightBoard::Find(const TimelinePoint& point) const {
  std::lock_guard lock(mutex_);
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    const bool reaches = entry.signal.timeline == point.timeline && entry.signal.value >= point.value;
    if (reaches && (found == nullptr || entry.signal.value < found->signal.value)) {
      found = &entry;
    }
  }
  return found == nullptr ? Behind{} : found->behind;
}

}  // namespace hpvm::gpu
