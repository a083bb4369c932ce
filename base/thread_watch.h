// SPDX-License-Identifier: Apache-2.0
// Watches threads and locks that serve several tenants: no item of such a thread, and no hold of such a lock, may take
// time that a tenant chooses.
//
// An item is timed by its thread's processor time, to a tenth of a millisecond, so that a busy machine raises no alarm:
// asking for it is a system call, which is made for items that the clock shows to be long. A hold is timed by the
// clock, and not above the processor time of the item that it belongs to, for the same reason. What takes 5 ms or more
// is told.
#ifndef HPVMD_BASE_THREAD_WATCH_H_
#define HPVMD_BASE_THREAD_WATCH_H_

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace hpvm {

inline constexpr Duration kWatchedTimeMax = std::chrono::milliseconds(5);

struct SlowItem {
  const char* thread = "";  // "grpc", "hub", "core lock": one of a few names that never change.
  const char* item = "";    // What it did, such as the call's method; likewise.
  std::string tenant;       // Whose it was; empty: nobody's, or not known.
  Duration spent{0};
};

// Whom to tell, from any thread, perhaps under a lock of the watched code: it must be short. Empty: nobody, and nothing
// is measured. Of the whole process; when it returns, the one before is not called any more. What takes `least` is
// told: a test that sees which threads are watched tells everything.
void SetOnSlowItem(std::function<void(const SlowItem&)> on_slow, Duration least = kWatchedTimeMax);

// One item of a shared thread, from construction to destruction on one thread. Items nest; what an inner one was told
// about is not the outer one's again.
class WatchedItem {
 public:
  // `thread` and `item` live for ever.
  WatchedItem(const char* thread, const char* item, std::string_view tenant = {});
  ~WatchedItem();
  WatchedItem(const WatchedItem&) = delete;
  WatchedItem& operator=(const WatchedItem&) = delete;

  void SetTenant(std::string_view tenant) { tenant_ = tenant; }
  // Of the innermost item of this thread, if there is one.
  static void SetCurrentTenant(std::string_view tenant);

 private:
  friend class WatchedHold;
  Duration Spent() const;

  const char* const thread_;
  const char* const item_;
  std::string tenant_;
  WatchedItem* const outer_;
  Time begin_{-1};     // Negative: not measured.
  Duration start_{0};  // The thread's processor time, a little before.
  Duration told_{0};   // The part of inner items.
};

// One hold of a lock that serves several tenants; what for is said by the innermost item of the thread.
class WatchedHold {
 public:
  explicit WatchedHold(const char* lock);
  ~WatchedHold() { End(); }
  WatchedHold(const WatchedHold&) = delete;
  WatchedHold& operator=(const WatchedHold&) = delete;
  // The lock is about to be let go of.
  void End();

 private:
  const char* const lock_;
  Time start_{-1};
};

}  // namespace hpvm

#endif  // HPVMD_BASE_THREAD_WATCH_H_
