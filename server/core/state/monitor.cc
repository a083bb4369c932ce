// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/monitor.h"

#include <algorithm>
#include <utility>

#include "server/core/state/shutdown.h"
#include "server/jobs/job_store.h"

namespace hpvm::server {
namespace {

// Number of timers that fire under one hold of the mutex.
constexpr int kTimersAtOnce = 8;

}  // namespace

CoreScope::~CoreScope() {
  hold_.End();
  lock_.unlock();
  for (const std::function<void()>& action : actions_) {
    action();
  }
  if (wake_timer_) {
    monitor_.Wake();
  }
}

std::unique_lock<std::mutex> Monitor::Lock() {
  std::lock_guard next(next_mutex_);
  return std::unique_lock(mutex_);
}

Monitor::TimerKey Monitor::AddTimer(CoreScope& scope, Time when, std::function<void(CoreScope&)> action) {
  const TimerKey key(when, next_timer_++);
  timers_.emplace(key, std::move(action));
  WakeBy(scope, when);
  return key;
}

void Monitor::DropTimer(TimerKey& timer) {
  timers_.erase(timer);
  timer = {kNever, 0};
}

bool Monitor::FireTimers(CoreScope& scope, Time now) {
  int fired = 0;
  for (auto timer = timers_.begin(); timer != timers_.end() && timer->first.first <= now && fired < kTimersAtOnce;
       timer = timers_.begin(), ++fired) {
    const auto action = std::move(timer->second);
    timers_.erase(timer);
    action(scope);
  }
  return fired < kTimersAtOnce;
}

void Monitor::WakeBy(CoreScope& scope, Time when) {
  if (when < next_wake_) {
    next_wake_ = when;
    scope.WakeTimer();
  }
}

Time Monitor::NextWake(Time other) {
  next_wake_ = std::min(other, timers_.empty() ? kNever : timers_.begin()->first.first);
  return next_wake_;
}

void Monitor::Wake() const {
  if (wake_) {
    wake_();
  }
}

void Monitor::Read(CoreScope& scope, const std::string& tenant, FairQueue::Work work) {
  if (!shutdown_.stopped) {
    // Posted under the mutex, so that nothing is posted once the server has stopped.
    jobs_.PostRead(tenant, std::move(work));
    return;
  }
  scope.Defer([work = std::move(work)] {
    while (work() == FairQueue::Step::kAgain) {
    }
  });
}

void Monitor::InSlices(CoreScope& scope, const TenantRef& tenant, std::function<bool(CoreScope&)> slice) {
  if (!slice(scope)) {
    InLaterSlice(scope, tenant, std::move(slice));
  }
}

void Monitor::InLaterSlice(CoreScope& scope, const TenantRef& tenant, std::function<bool(CoreScope&)> slice) {
  if (shutdown_.closed) {  // The store is ending, and its threads with it.
    while (!slice(scope)) {
    }
    return;
  }
  jobs_.PostRead(tenant->name, [this, tenant, slice = std::move(slice)] {
    CoreScope inner(*this);
    return slice(inner) ? FairQueue::Step::kDone : FairQueue::Step::kAgain;
  });
}

}  // namespace hpvm::server
