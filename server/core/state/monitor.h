// SPDX-License-Identifier: Apache-2.0
// The mutex of the core, what is done after it is let go of, timers, and long work in slices.
#ifndef HPVMD_SERVER_CORE_STATE_MONITOR_H_
#define HPVMD_SERVER_CORE_STATE_MONITOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fair_queue.h"
#include "base/thread_watch.h"
#include "server/core/state/tenant.h"

namespace hpvm::server {

class CoreScope;
class JobStore;
struct Shutdown;

class Monitor {
 public:
  using TimerKey = std::pair<Time, uint64_t>;
  // The number of jobs that one hold of the mutex looks at.
  static constexpr int kJobsAtOnce = 16;

  // Both are borrowed and live longer.
  Monitor(JobStore& jobs, const Shutdown& shutdown) : jobs_(jobs), shutdown_(shutdown) {}

  TimerKey AddTimer(CoreScope& scope, Time when, std::function<void(CoreScope&)> action);
  // Afterwards it is none.
  void DropTimer(TimerKey& timer);
  // Some of the timers that are due by `now`. False: there are more.
  bool FireTimers(CoreScope& scope, Time now);
  // A thread that waits for `NextWake` wakes no later than that.
  void WakeBy(CoreScope& scope, Time when);
  // The time of the first timer, or `other` if that is earlier; WakeBy counts from it.
  Time NextWake(Time other);
  // Wakes the thread that waits for the time. Any thread; without the mutex.
  void Wake() const;
  // The function that Wake calls. Set before anything else.
  void SetWake(std::function<void()> wake) { wake_ = std::move(wake); }

  // Work without the mutex in the tenant's turn (JobStore::PostRead). Once the server has stopped it is done right
  // after unlocking: the store ends its readers before its writes, whose answers may still ask for more.
  void Read(CoreScope& scope, const std::string& tenant, FairQueue::Work work);

  // Work under the mutex whose size a tenant chooses: `slice` does some of it at once and the rest in the tenant's
  // turns (JobStore::PostRead), each under a hold of its own, until it says that all is done.
  void InSlices(CoreScope& scope, const TenantRef& tenant, std::function<bool(CoreScope&)> slice);
  // Likewise, and nothing at once.
  void InLaterSlice(CoreScope& scope, const TenantRef& tenant, std::function<bool(CoreScope&)> slice);

 private:
  friend class CoreScope;
  std::unique_lock<std::mutex> Lock();

  JobStore& jobs_;
  const Shutdown& shutdown_;
  // Held by the thread that is next while it waits for mutex_. Without it a thread that works in slices has mutex_
  // again before a thread that its unlocking wakes can take it, and all others wait for the last slice.
  std::mutex next_mutex_;
  std::mutex mutex_;
  std::map<TimerKey, std::function<void(CoreScope&)>> timers_;
  uint64_t next_timer_ = 1;
  Time next_wake_ = kNever;
  std::function<void()> wake_;
};

// The locked part of one method, and what it decided to do after unlocking.
class CoreScope {
 public:
  explicit CoreScope(Monitor& monitor) : monitor_(monitor), lock_(monitor.Lock()), hold_("core lock") {}
  ~CoreScope();
  CoreScope(const CoreScope&) = delete;
  CoreScope& operator=(const CoreScope&) = delete;
  void Defer(std::function<void()> action) { actions_.push_back(std::move(action)); }
  // The thread that waits for the time is woken.
  void WakeTimer() { wake_timer_ = true; }

 private:
  Monitor& monitor_;
  std::unique_lock<std::mutex> lock_;
  WatchedHold hold_;
  std::vector<std::function<void()>> actions_;
  bool wake_timer_ = false;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_MONITOR_H_
