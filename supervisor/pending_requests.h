// SPDX-License-Identifier: Apache-2.0
// The requests of one executor that wait for an answer, and how long each may take. Pure, and not locked: the link's
// mutex guards it.
#ifndef HPVMD_SUPERVISOR_PENDING_REQUESTS_H_
#define HPVMD_SUPERVISOR_PENDING_REQUESTS_H_

#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "supervisor/executor_process.h"
#include "supervisor/stop_patience.h"

namespace hpvm::supervisor {

struct Answer {
  internal::Envelope said;
  std::vector<uint8_t> body;
};

struct Pending {
  // Gets the checked answer, of the kind that the request has, or why there is none. Its status says how the answer
  // breaks the protocol. Empty: nobody waits.
  std::function<Status(StatusOr<Answer>)> done = nullptr;
  Time kill_at = kNever;
  Time stop_at = kNever;                       // Runs: from when on it should stop.
  std::function<void()> on_started = nullptr;  // Runs.
  StopPatience patience = {};                  // After stop_at.
  internal::Envelope::MessageCase answer = internal::Envelope::MESSAGE_NOT_SET;

  void Fail(const Status& why) const {
    if (done) {
      done(why).IgnoreError();
    }
  }
};

class PendingRequests {
 public:
  // What asks for no work is answered at once by a process that is well; a grant is noticed between two chunks.
  static constexpr Duration kAnswerWithin = std::chrono::seconds(60);

  size_t size() const { return requests_.size(); }
  bool contains(RequestId id) const { return requests_.contains(id); }
  // The next request's; kResourceExhausted when too many wait.
  StatusOr<RequestId> NextId();
  // Like NoteCancelled, answers when to look for what is overdue.
  Time Add(RequestId id, internal::Envelope::MessageCase request, Pending pending);
  // A run that was asked to stop has its grace from now on.
  Time NoteCancelled(RequestId id, Duration grace, Time now, std::optional<Duration> cpu);
  // The request that `said` answers, which then waits no longer; of an event only `on_started`.
  StatusOr<Pending> Take(const internal::Envelope& said);
  // When to look next; kUnavailable when the process must end, for it takes too long.
  StatusOr<Time> FindOverdue(Duration grace, Time now, std::optional<Duration> cpu);
  void FailAll(const Status& why) const;

 private:
  RequestId next_id_ = 1;
  std::unordered_map<RequestId, Pending> requests_;
};

}  // namespace hpvm::supervisor

#endif  // HPVMD_SUPERVISOR_PENDING_REQUESTS_H_
