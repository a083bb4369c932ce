// SPDX-License-Identifier: Apache-2.0
// SendWindow decides which of a client's runs are in progress on its gRPC connection, which wait for their turn, and
// when cancelled calls may be reset. A server closes a connection that resets more than limits.resets_per_second_max
// calls a second (200 unless configured), together with all its other calls: a client that drops thousands of runs at
// once must not look like an attack. A run that waits here has not been sent, so its cancellation needs no reset.
//
// Method: at most kInProgressMax calls are in progress; the others wait in order of arrival. A token bucket limits
// resets.
#ifndef HPVMD_CLIENT_SEND_WINDOW_H_
#define HPVMD_CLIENT_SEND_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "hpvm/types.h"

namespace hpvm {

// May be used by one thread at a time. All times are of one monotonic clock.
class SendWindow {
 public:
  // Number of calls that a server accepts on one connection by default: gRPC would hold further calls back.
  static constexpr size_t kInProgressMax = 100;
  // Resets: the largest burst, and the rate after it. Their sum is below the server's limit of 200.
  static constexpr double kResetsAtOnce = 50;
  static constexpr double kResetsPerSecond = 100;

  // Adds a call that should be sent; its id is unique. Returns true when the call is in progress now. Returns false
  // when it waits: Next then returns it when its turn has come, or when `deadline` (kNever for none) has passed.
  bool Enter(uint64_t call, Time deadline);
  // Removes a call in progress, which has ended. Ignores other calls.
  void Leave(uint64_t call);

  enum class Cancelled {
    kUnsent,  // The call was waiting, and has been removed.
    kNow,     // The caller has to reset the call now.
    kLater,   // Next returns the call when it may be reset, unless it ends before.
    kEnded,   // The call has ended, or its reset is already due later: there is nothing to do.
  };
  Cancelled Cancel(uint64_t call, Time now);

  enum class What { kSend, kReset, kExpire };
  struct Due {
    What what = What::kSend;
    uint64_t call = 0;
  };
  // Returns one action that is due at `now`, if any. A call that is returned for sending is in progress from then on.
  std::optional<Due> Next(Time now);
  // Returns the time at which Next will return an action even if no other call is made before; kNever when there is
  // none.
  Time Wakes(Time now) const;
  bool HasWaiting() const { return !waiting_.empty(); }

 private:
  bool TakeReset(Time now);
  void Forget(std::map<uint64_t, std::pair<uint64_t, Time>>::iterator waiting);

  // Waiting calls with their deadlines, keyed by place, which is the number of their arrival.
  std::map<uint64_t, std::pair<uint64_t, Time>> waiting_;
  std::unordered_map<uint64_t, uint64_t> places_;  // The place of each waiting call.
  std::set<std::pair<Time, uint64_t>> deadlines_;  // The deadline and place of each waiting call that has a deadline.
  uint64_t next_place_ = 0;
  std::unordered_map<uint64_t, bool> in_progress_;  // True once the call was cancelled.
  std::deque<uint64_t> resets_;                     // Calls that wait for their reset; some may have ended since.
  double resets_left_ = kResetsAtOnce;
  Time refilled_{0};
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_SEND_WINDOW_H_
