// SPDX-License-Identifier: Apache-2.0
// PendingRequests holds the requests of one executor that await an answer, and the time limit of each. Pure, and not
// locked: the link's mutex guards it.
#ifndef HPVMD_SUPERVISOR_PENDING_REQUESTS_H_
#define HPVMD_SUPERVISOR_PENDING_REQUESTS_H_

#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "supervisor/executor_process.h"
#include "supervisor/kill_grace.h"

namespace hpvm::supervisor {

struct Answer {
  internal::Envelope said;
  std::vector<uint8_t> body;
};

struct Pending {
  // Receives the checked answer of the kind that the request has, or the reason why there is none. Returns an error
  // that says how the answer violates the protocol. Empty when no caller waits.
  std::function<Status(StatusOr<Answer>)> done = nullptr;
  Time kill_at = kNever;
  Time stop_at = kNever;                       // Runs: when it should stop.
  std::function<void()> on_started = nullptr;  // For runs.
  // For runs, with the totals so far.
  std::function<void(v1::RunLog)> on_log = nullptr;
  uint64_t log_lines = 0, log_bytes = 0;
  Time log_at{0};
  KillGrace patience = {};  // Used after stop_at.
  internal::Envelope::MessageCase answer = internal::Envelope::MESSAGE_NOT_SET;

  void Fail(const Status& why) const {
    if (done) {
      done(why).IgnoreError();
    }
  }
};

class PendingRequests {
 public:
  // A healthy process answers requests without work at once; a grant is noticed between two chunks.
  static constexpr Duration kAnswerWithin = std::chrono::seconds(60);

  size_t size() const { return requests_.size(); }
  bool contains(RequestId id) const { return requests_.contains(id); }
  // Returns the next request's id; kResourceExhausted when too many wait.
  StatusOr<RequestId> NextId();
  // Like NoteCancelled, returns when to check for overdue requests.
  Time Add(RequestId id, internal::Envelope::MessageCase request, Pending pending);
  // A run that was asked to stop has its grace from now on.
  Time NoteCancelled(RequestId id, Duration grace, Time now, std::optional<Duration> cpu);
  // Removes and returns the request that `said` answers; for an event, returns only its receiver, or none when it comes
  // too soon after another.
  StatusOr<Pending> Take(const internal::Envelope& said, Time now);
  // Returns when to check next; kUnavailable when the process must end, because it takes too long.
  StatusOr<Time> FindOverdue(Duration grace, Time now, std::optional<Duration> cpu);
  void FailAll(const Status& why) const;

 private:
  // Executors leave 100 ms between two events.
  static constexpr Duration kLogPauseMin = std::chrono::milliseconds(50);
  static StatusOr<Pending> TakeLog(Pending& pending, const v1::RunLog& log, Time now);

  RequestId next_id_ = 1;
  std::unordered_map<RequestId, Pending> requests_;
};

}  // namespace hpvm::supervisor

#endif  // HPVMD_SUPERVISOR_PENDING_REQUESTS_H_
