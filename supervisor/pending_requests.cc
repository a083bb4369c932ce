// SPDX-License-Identifier: Apache-2.0
#include "supervisor/pending_requests.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "proto/internal/protocol.h"

namespace hpvm::supervisor {
namespace {

using internal::Envelope;

// Records when the run should have stopped; returns true when the process must end.
bool IsOverdue(Pending& pending, Duration grace, Time now, std::optional<Duration> cpu) {
  if (pending.stop_at <= now) {
    pending.patience = KillGrace(pending.stop_at, grace, cpu);
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
    return kNever;  // Not a run, or it was already asked to stop.
  }
  pending.stop_at = kNever;
  pending.patience = KillGrace(now, grace, cpu);
  pending.kill_at = pending.patience.end();
  return pending.kill_at;
}

// Lines are for watchers: events that come too often are dropped, since the run's own log also has the lines.
StatusOr<Pending> PendingRequests::TakeLog(Pending& pending, const v1::RunLog& log, Time now) {
  if (!pending.on_log) {
    return InvalidArgument("Event: the request did not ask for a log.");
  }
  pending.log_lines += static_cast<uint64_t>(log.lines_size());
  for (const v1::LogLine& line : log.lines()) {
    pending.log_bytes += line.text().size();
  }
  // Cleaning text may turn one byte into three.
  if (pending.log_lines > limits::kLogLinesMax || pending.log_bytes > 3 * limits::kLogBytesMax) {
    return InvalidArgument("Event: the run sent more log lines or bytes than the limits allow.");
  }
  if (now - pending.log_at < kLogPauseMin) {
    return Pending{};
  }
  pending.log_at = now;
  return Pending{.on_log = pending.on_log};
}

StatusOr<Pending> PendingRequests::Take(const Envelope& said, Time now) {
  const auto found = requests_.find(said.request_id());
  const bool is_event = said.message_case() == Envelope::kEvent;
  if (found == requests_.end() || (!is_event && found->second.answer != said.message_case())) {
    return InvalidArgument("A message does not answer any pending request of its kind.");
  }
  if (!is_event) {
    return std::move(requests_.extract(found).mapped());
  }
  if (said.event().kind() == internal::Event::KIND_LOG) {
    return TakeLog(found->second, said.event().log(), now);
  }
  if (!found->second.on_started) {
    return InvalidArgument("Event: the request did not ask for it.");
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
