// SPDX-License-Identifier: Apache-2.0
#include "base/thread_watch.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace hpvm {
namespace {

std::atomic<bool> is_watching{false};
std::atomic<Duration> told_from{kWatchedTimeMax};
thread_local WatchedItem* innermost = nullptr;
// Minimum interval between reads of the thread's processor time.
constexpr Duration kSampleAge = std::chrono::microseconds(100);
thread_local Time sampled_at{-1};
thread_local Duration sample{0};

struct Listener {
  std::shared_mutex mutex;
  std::function<void(const SlowItem&)> on_slow;
};
// Never destroyed, because threads may still run when the process ends.
Listener& TheListener() {
  static auto* const listener = new Listener;
  return *listener;
}

void Tell(const SlowItem& item) {
  Listener& listener = TheListener();
  std::shared_lock lock(listener.mutex);
  if (listener.on_slow) {
    listener.on_slow(item);
  }
}

Duration ThreadTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec);
}

}  // namespace

void SetOnSlowItem(std::function<void(const SlowItem&)> on_slow, Duration least) {
  Listener& listener = TheListener();
  std::unique_lock lock(listener.mutex);
  told_from.store(least, std::memory_order_relaxed);
  listener.on_slow = std::move(on_slow);
  is_watching.store(static_cast<bool>(listener.on_slow), std::memory_order_relaxed);
}

WatchedItem::WatchedItem(const char* thread, const char* item, std::string_view tenant)
    : thread_(thread), item_(item), tenant_(tenant), outer_(std::exchange(innermost, this)) {
  if (is_watching.load(std::memory_order_relaxed)) {
    begin_ = RealClock().Now();
    if (sampled_at < Time{0} || begin_ - sampled_at > kSampleAge) {
      sampled_at = begin_;
      sample = ThreadTime();
    }
    start_ = sample;
  }
}

WatchedItem::~WatchedItem() {
  innermost = outer_;
  if (begin_ < Time{0}) {
    return;
  }
  const Duration least = told_from.load(std::memory_order_relaxed);
  const bool may_be_slow = RealClock().Now() - begin_ >= least;
  const Duration spent = may_be_slow ? Spent() : Duration{0};
  const bool is_slow = may_be_slow && spent - told_ >= least;
  if (is_slow) {
    Tell({thread_, item_, tenant_, spent - told_});
  }
  if (outer_ != nullptr) {
    outer_->told_ += is_slow ? spent : told_;
  }
}

void WatchedItem::SetCurrentTenant(std::string_view tenant) {
  if (innermost != nullptr) {
    innermost->SetTenant(tenant);
  }
}

Duration WatchedItem::Spent() const { return ThreadTime() - start_; }

WatchedHold::WatchedHold(const char* lock) : lock_(lock) {
  if (is_watching.load(std::memory_order_relaxed)) {
    start_ = RealClock().Now();
  }
}

void WatchedHold::End() {
  if (start_ < Time{0}) {
    return;
  }
  Duration held = RealClock().Now() - std::exchange(start_, Time{-1});
  const Duration least = told_from.load(std::memory_order_relaxed);
  if (held < least) {
    return;
  }
  const WatchedItem* item = innermost;
  if (item != nullptr && item->begin_ >= Time{0}) {
    held = std::min(held, item->Spent());
  }
  if (held >= least) {
    Tell({lock_, item != nullptr ? item->item_ : "", item != nullptr ? item->tenant_ : "", held});
  }
}

}  // namespace hpvm
