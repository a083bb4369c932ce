// SPDX-License-Identifier: Apache-2.0
#include "supervisor/pending_requests.h"

#include <algorithm>
#include <utility>

#include "proto/internal/protocol.h"

namespace hpvm::supervisor {
namespace {

using internal::Envelope;

// Notes when the run should have stopped; true when the process must end.
bool IsOverdue(Pending& pending, Duration grace, Time now, std::optional<Duration> cpu) {
  if (pending.stop_at <= now) {
    pending.patience = StopPatience(pending.stop_at, grace, cpu);
    pending.stop_at = kNever;
  }
  if (pending.kill_at > now) {
    return false;
  }
  const std::optional<Time> longer = pending.patience.Longer(now, cpu);
  pending.kill_at = longer.value_or(pending.kill_at);
  return !longer.has_value();
}

}  // namespace

StatusOr<RequestId> PendingRequests::NextId() {
  if (requests_.size() >= kRequestsMax) {
    return ResourceExhausted("The requests that wait for the executor (" + std::to_string(requests_.size()) +
                             ") reach the limit (" + std::to_string(kRequestsMax) + ").");
  }
  return next_id_++;
}

Time PendingRequests::Add(RequestId id, Envelope::MessageCase request, Pending pending) {
  pending.answer = AnswerTo(request);
  const Time next = std::min(pending.stop_at, pending.kill_at);
  requests_.emplace(id, std::move(pending));
  return next;
}

Time PendingRequests::NoteCancelled(RequestId id, Duration grace, Time now, std::optional<Duration> cpu) {
  Pending& pending = requests_.at(id);
  if (pending.answer != Envelope::kRunDone || pending.stop_at <= now || pending.kill_at <= now + grace) {
    return kNever;  // Not a run, or it has been asked already.
  }
  pending.stop_at = kNever;
  pending.patience = StopPatience(now, grace, cpu);
  pending.kill_at = pending.patience.end();
  return pending.kill_at;
}

StatusOr<Pending> PendingRequests::Take(const Envelope& said) {
  const auto found = requests_.find(said.request_id());
  const bool is_event = said.message_case() == Envelope::kEvent;
  if (found == requests_.end() || (!is_event && found->second.answer != said.message_case())) {
    return InvalidArgument("A message answers no request of its kind.");
  }
  if (!is_event) {
    return std::move(requests_.extract(found).mapped());
  }
  if (!found->second.on_started) {
    return InvalidArgument("Event: nobody asked for it.");
  }
  return Pending{.on_started = std::exchange(found->second.on_started, nullptr)};
}

StatusOr<Time> PendingRequests::FindOverdue(Duration grace, Time now, std::optional<Duration> cpu) {
  Time next = kNever;
  for (auto& [id, pending] : requests_) {
    if (IsOverdue(pending, grace, now, cpu)) {
      const bool is_work = pending.answer == Envelope::kRunDone || pending.answer == Envelope::kPrepared;
      return Unavailable(
          "The executor process was killed because " +
          (is_work ? "a request did not stop within " + std::to_string(grace / std::chrono::milliseconds(1)) +
                         " ms after its deadline or cancellation."
                   : "it did not answer within " + std::to_string(kAnswerWithin / std::chrono::seconds(1)) + " s."));
    }
    next = std::min({next, pending.stop_at, pending.kill_at});
  }
  return next;
}

void PendingRequests::FailAll(const Status& why) const {
  for (const auto& [id, pending] : requests_) {
    pending.Fail(why);
  }
}

}  // namespace hpvm::supervisor
