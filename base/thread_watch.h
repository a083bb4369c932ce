// SPDX-License-Identifier: Apache-2.0
// ThreadWatch reports slow work on threads and locks that serve several tenants: no item of such a thread, and no hold
// of such a lock, may take time that a tenant chooses.
//
// An item is timed by its thread's processor time, to a tenth of a millisecond, so that a busy machine raises no alarm.
// Reading that time is a system call, made only for items that are long by the clock. A hold is timed by the clock, but
// not above the processor time of its item, for the same reason. Items and holds of 5 ms or more are reported.
#ifndef HPVMD_BASE_THREAD_WATCH_H_
#define HPVMD_BASE_THREAD_WATCH_H_

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace hpvm {

inline constexpr Duration kWatchedTimeMax = std::chrono::milliseconds(5);

struct SlowItem {
  const char* thread = "";  // Such as "grpc", "hub", "core lock"; one of a few constant names.
  const char* item = "";    // The work done, such as the call's method; also one of a few constant names.
  std::string tenant;       // The tenant served; empty when there is none, or it is unknown.
  Duration spent{0};
};

// Sets the process-wide listener, which is called from any thread, perhaps under a lock of the watched code, and must
// be short. An empty listener disables measurement. When the call returns, the previous listener is no longer called.
// Items of at least `least` are reported: a test that verifies which threads are watched reports everything.
void SetOnSlowItem(std::function<void(const SlowItem&)> on_slow, Duration least = kWatchedTimeMax);

// One item of a shared thread, from construction to destruction on one thread. Items nest; time that was reported for
// an inner item is not reported again for the outer one.
class WatchedItem {
 public:
  // `thread` and `item` must live for ever.
  WatchedItem(const char* thread, const char* item, std::string_view tenant = {});
  ~WatchedItem();
  WatchedItem(const WatchedItem&) = delete;
  WatchedItem& operator=(const WatchedItem&) = delete;

  void SetTenant(std::string_view tenant) { tenant_ = tenant; }
  // Sets the tenant of this thread's innermost item, if there is one.
  static void SetCurrentTenant(std::string_view tenant);

 private:
  friend class WatchedHold;
  Duration Spent() const;

  const char* const thread_;
  const char* const item_;
  std::string tenant_;
  WatchedItem* const outer_;
  Time begin_{-1};     // Negative when not measured.
  Duration start_{0};  // The thread's processor time, read shortly before.
  Duration told_{0};   // The part already reported for inner items.
};

// One hold of a lock that serves several tenants; the thread's innermost item says what for.
class WatchedHold {
 public:
  explicit WatchedHold(const char* lock);
  ~WatchedHold() { End(); }
  WatchedHold(const WatchedHold&) = delete;
  WatchedHold& operator=(const WatchedHold&) = delete;
  // Call before the lock is released.
  void End();

 private:
  const char* const lock_;
  Time start_{-1};
};

}  // namespace hpvm

#endif  // HPVMD_BASE_THREAD_WATCH_H_
