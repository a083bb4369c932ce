// SPDX-License-Identifier: Apache-2.0
#include "client/send_window.h"

#include <algorithm>
#include <chrono>

namespace hpvm {
namespace {

double Refilled(double left, Time since, Time now) {
  const double elapsed_s = std::max(0.0, std::chrono::duration<double>(now - since).count());
  return std::min(SendWindow::kResetsAtOnce, left + elapsed_s * SendWindow::kResetsPerSecond);
}

}  // namespace

bool SendWindow::Enter(uint64_t call, Time deadline) {
  if (in_progress_.size() < kInProgressMax && waiting_.empty()) {
    in_progress_[call] = false;
    return true;
  }
  const uint64_t place = next_place_++;
  waiting_[place] = {call, deadline};
  places_[call] = place;
  if (deadline != kNever) {
    deadlines_.emplace(deadline, place);
  }
  return false;
}

void SendWindow::Leave(uint64_t call) { in_progress_.erase(call); }

SendWindow::Cancelled SendWindow::Cancel(uint64_t call, Time now) {
  if (const auto place = places_.find(call); place != places_.end()) {
    Forget(waiting_.find(place->second));
    return Cancelled::kUnsent;
  }
  const auto found = in_progress_.find(call);
  if (found == in_progress_.end() || found->second) {
    return Cancelled::kEnded;
  }
  // Calls that were cancelled earlier are reset first.
  if (resets_.empty() && TakeReset(now)) {
    found->second = true;
    return Cancelled::kNow;
  }
  found->second = true;
  resets_.push_back(call);
  return Cancelled::kLater;
}

std::optional<SendWindow::Due> SendWindow::Next(Time now) {
  if (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto waiting = waiting_.find(deadlines_.begin()->second);
    const uint64_t call = waiting->second.first;
    Forget(waiting);
    return Due{What::kExpire, call};
  }
  while (!resets_.empty() && !in_progress_.contains(resets_.front())) {
    resets_.pop_front();
  }
  if (!resets_.empty() && TakeReset(now)) {
    const uint64_t call = resets_.front();
    resets_.pop_front();
    return Due{What::kReset, call};
  }
  if (!waiting_.empty() && in_progress_.size() < kInProgressMax) {
    const uint64_t call = waiting_.begin()->second.first;
    Forget(waiting_.begin());
    in_progress_[call] = false;
    return Due{What::kSend, call};
  }
  return std::nullopt;
}

Time SendWindow::Wakes(Time now) const {
  Time wakes = deadlines_.empty() ? kNever : deadlines_.begin()->first;
  if (!resets_.empty()) {
    const double missing = std::max(0.0, 1 - Refilled(resets_left_, refilled_, now));
    const auto wait = std::chrono::duration<double>(missing / kResetsPerSecond);
    wakes = std::min(wakes, now + std::chrono::ceil<Duration>(wait));
  }
  return wakes;
}

bool SendWindow::TakeReset(Time now) {
  resets_left_ = Refilled(resets_left_, refilled_, now);
  refilled_ = std::max(refilled_, now);
  if (resets_left_ < 1) {
    return false;
  }
  resets_left_ -= 1;
  return true;
}

void SendWindow::Forget(std::map<uint64_t, std::pair<uint64_t, Time>>::iterator waiting) {
  const auto& [place, what] = *waiting;
  deadlines_.erase({what.second, place});
  places_.erase(what.first);
  waiting_.erase(waiting);
}

}  // namespace hpvm
