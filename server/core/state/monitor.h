// SPDX-License-Identifier: Apache-2.0
// Monitor is the mutex of the core together with deferred actions, which are run after it is unlocked, timers, and
// long work in slices.
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
  // Number of jobs processed under one hold of the mutex.
  static constexpr int kJobsAtOnce = 16;

  // Both are borrowed and must outlive the monitor.
  Monitor(JobStore& jobs, const Shutdown& shutdown) : jobs_(jobs), shutdown_(shutdown) {}

  TimerKey AddTimer(CoreScope& scope, Time when, std::function<void(CoreScope&)> action);
  // Removes the timer and resets `timer`.
  void DropTimer(TimerKey& timer);
  // Fires some of the timers that are due by `now`. Returns false when there are more.
  bool FireTimers(CoreScope& scope, Time now);
  // Makes the thread that waits for `NextWake` wake by `when`.
  void WakeBy(CoreScope& scope, Time when);
  // Returns the time of the first timer, or `other` if that is earlier, and makes it the time with which WakeBy
  // compares.
  Time NextWake(Time other);
  // Wakes the timer thread. Thread-safe; called without the mutex.
  void Wake() const;
  // Sets the function that Wake calls. Called before anything else.
  void SetWake(std::function<void()> wake) { wake_ = std::move(wake); }

  // Does work without the mutex in the tenant's turn (JobStore::PostRead). Once the server has stopped, the work is
  // done right after unlocking, because the store ends its readers before its writes, whose answers may still ask for
  // more reads.
  void Read(CoreScope& scope, const std::string& tenant, FairQueue::Work work);

  // Does work under the mutex whose size a tenant chooses: calls `slice` once at once and then in the tenant's turns
  // (JobStore::PostRead), each time under a new hold of the mutex, until it returns true.
  void InSlices(CoreScope& scope, const TenantRef& tenant, std::function<bool(CoreScope&)> slice);
  // Does the same as InSlices, but calls `slice` in the tenant's turns only.
  void InLaterSlice(CoreScope& scope, const TenantRef& tenant, std::function<bool(CoreScope&)> slice);

 private:
  friend class CoreScope;
  std::unique_lock<std::mutex> Lock();

  JobStore& jobs_;
  const Shutdown& shutdown_;
  // Held by the next thread in line while it waits for mutex_. Without it, a thread that works in slices would take
  // mutex_ again before a thread that its unlocking wakes, and all others would wait for the last slice.
  std::mutex next_mutex_;
  std::mutex mutex_;
  std::map<TimerKey, std::function<void(CoreScope&)>> timers_;
  uint64_t next_timer_ = 1;
  Time next_wake_ = kNever;
  std::function<void()> wake_;
};

// CoreScope is the locked part of one method, with the actions that it runs after unlocking.
class CoreScope {
 public:
  explicit CoreScope(Monitor& monitor) : monitor_(monitor), lock_(monitor.Lock()), hold_("core lock") {}
  ~CoreScope();
  CoreScope(const CoreScope&) = delete;
  CoreScope& operator=(const CoreScope&) = delete;
  void Defer(std::function<void()> action) { actions_.push_back(std::move(action)); }
  // Makes the destructor wake the timer thread.
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
