// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/agent.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace hpvm::server::cluster {
namespace {

// Delay before a call that failed is made again.
constexpr Duration kAgain = std::chrono::milliseconds(500);

}  // namespace

Agent::Agent(AgentOptions options, AgentStore& store, AgentRuns& runs, const Clock& clock)
    : options_(std::move(options)), store_(store), runs_(runs), clock_(clock), self_(std::make_shared<Agent*>(this)) {
  words_ = options_.worker.has;
}

Agent::~Agent() = default;

Time Agent::Tick() {
  const Time now = clock_.Now();
  if (is_joined() && now >= stop_at()) {
    LoseLease();
  }
  std::vector<std::pair<HeldJob, Held*>> ended;
  for (auto& [job, held] : held_) {
    if (held.finish.has_value() && (held.finish_sent == kNever || now - held.finish_sent >= options_.call_timeout)) {
      ended.emplace_back(job, &held);
    }
  }
  for (auto& [job, held] : ended) {
    if (held_.contains(job)) {  // An earlier answer may have come at once.
      Finish(job, *held, now);
    }
  }
  if (IsOverdue(claim_, now)) {
    settled_claims_ = claim_.number;
    claim_.sent = kNever;
  }
  for (Call* call : {&join_, &renew_, &leave_}) {
    if (IsOverdue(*call, now)) {
      call->sent = kNever;
    }
  }
  if (has_left_) {
    return kNever;
  }
  const bool is_done = is_draining_ && gives_back_ && held_.empty();
  if (is_done && !is_joined()) {
    has_left_ = true;
    return kNever;
  }
  if (!is_joined()) {
    // The store takes back what a process that joins has held: nothing may run, and all ends have to be recorded.
    if (held_.empty() && !join_.is_out() && now >= next_join_) {
      Join(now);
    }
  } else if (is_done) {
    if (!leave_.is_out()) {
      Leave(now);
    }
  } else {
    if (!renew_.is_out() && now >= next_renew_) {
      Renew(now);
    }
    if (MayClaim() && now >= next_claim_) {
      Claim(now);
    }
  }
  Time next = is_joined() ? std::min(stop_at(), renew_.is_out() ? renew_.sent + options_.call_timeout : next_renew_)
                          : (held_.empty() && !join_.is_out() ? next_join_ : kNever);
  if (MayClaim()) {
    next = std::min(next, next_claim_);
  }
  for (const Call* call : {&join_, &claim_, &leave_}) {
    next = call->is_out() ? std::min(next, call->sent + options_.call_timeout) : next;
  }
  for (const auto& [job, held] : held_) {
    next = held.finish.has_value()
               ? std::min(next, held.finish_sent == kNever ? now : held.finish_sent + options_.call_timeout)
               : next;
  }
  return std::max(next, now);
}

void Agent::Wake() { next_claim_ = Time{0}; }

void Agent::Drain(bool gives_back) {
  is_draining_ = true;
  gives_back_ |= gives_back;
  if (gives_back) {
    StopAll(AgentRuns::StopReason::kGivenBack);
  }
}

void Agent::SetWords(std::set<std::string> has) {
  words_ = std::move(has);
  ++words_number_;
  next_renew_ = Time{0};
}

void Agent::StopAll(AgentRuns::StopReason why) {
  std::vector<HeldJob> jobs;
  for (const auto& [job, held] : held_) {
    jobs.push_back(job);
  }
  for (const HeldJob& job : jobs) {
    StopRun(job, why);
  }
}

void Agent::Join(Time now) {
  join_ = {.number = join_.number + 1, .sent = now};
  next_join_ = now + options_.call_timeout;
  Worker worker = options_.worker;
  worker.joins = join_.number;
  worker.has = words_;
  store_.Join(std::move(worker), [weak = std::weak_ptr(self_), number = join_.number, words = words_number_,
                                  now](const StatusOr<Lease>& lease) {
    const std::shared_ptr<Agent*> self = weak.lock();
    if (self == nullptr || (*self)->join_.number != number || !(*self)->join_.is_out()) {
      return;
    }
    Agent& agent = **self;
    agent.join_.sent = kNever;
    if (agent.options_.on_join) {
      agent.options_.on_join(lease.status());
    }
    if (!lease.ok()) {
      agent.next_join_ = agent.clock_.Now() + kAgain;
      return;
    }
    agent.incarnation_ = lease->incarnation;
    agent.words_told_ = words;
    agent.valid_until_ = now + lease->length;
    agent.settled_claims_ = 0;
    agent.claim_ = {};
    agent.renew_.sent = kNever;
    agent.next_claim_ = agent.clock_.Now();
    agent.next_renew_ = now + agent.options_.renew_every;
  });
}

void Agent::Renew(Time now) {
  renew_ = {.number = renew_.number + 1, .sent = now};
  next_renew_ = now + options_.renew_every;
  RenewRequest request{.worker = options_.worker.name,
                       .incarnation = incarnation_,
                       .held = {},
                       .claims_settled = settled_claims_,
                       .has = {},
                       .has_number = words_number_};
  if (words_told_ != words_number_) {
    request.has = words_;
  }
  for (const auto& [job, held] : held_) {
    request.held.push_back(job);
  }
  store_.Renew(std::move(request), [weak = std::weak_ptr(self_), incarnation = incarnation_, number = renew_.number,
                                    words = words_number_, now](const StatusOr<Renewal>& renewal) {
    const std::shared_ptr<Agent*> self = weak.lock();
    if (self == nullptr || (*self)->incarnation_ != incarnation) {
      return;
    }
    Agent& agent = **self;
    if (agent.renew_.number == number) {
      agent.renew_.sent = kNever;
    }
    if (renewal.ok()) {
      agent.words_told_ = std::max(agent.words_told_, words);
      agent.OnRenewal(now, number, *renewal);  // Also late: the lease was counted from a later moment than `now`.
    } else if (absl::IsFailedPrecondition(renewal.status())) {
      agent.LoseLease();
    }
  });
}

void Agent::OnRenewal(Time sent, uint64_t number, const Renewal& renewal) {
  valid_until_ = std::max(valid_until_, sent + renewal.length);
  for (const HeldJob& job : renewal.lost) {
    StopRun(job, AgentRuns::StopReason::kLost);
  }
  for (const HeldJob& job : renewal.cancelled) {
    StopRun(job, AgentRuns::StopReason::kCancelled);
  }
  for (const HeldJob& job : renewal.expired) {
    StopRun(job, AgentRuns::StopReason::kExpired);
  }
  // The answer to an earlier renewal may come after the host was opened again.
  const bool is_newest = number > renewal_heard_;
  renewal_heard_ = std::max(renewal_heard_, number);
  if (renewal.is_draining && is_newest) {
    StopAll(AgentRuns::StopReason::kGivenBack);
  }
}

void Agent::Claim(Time now) {
  claim_ = {.number = claim_.number + 1, .sent = now};
  next_claim_ = now + options_.claim_every;
  const ClaimRequest request{.worker = options_.worker.name,
                             .incarnation = incarnation_,
                             .number = claim_.number,
                             .jobs_max = static_cast<uint32_t>(options_.runs_max - held_.size())};
  store_.Claim(request, [weak = std::weak_ptr(self_), incarnation = incarnation_,
                         number = claim_.number](const StatusOr<Claims>& claims) {
    const std::shared_ptr<Agent*> self = weak.lock();
    if (self == nullptr || (*self)->incarnation_ != incarnation || (*self)->claim_.number != number ||
        !(*self)->claim_.is_out()) {
      return;  // Nothing was started for it, and the next renewal says so.
    }
    Agent& agent = **self;
    agent.claim_.sent = kNever;
    agent.settled_claims_ = number;
    if (claims.ok()) {
      agent.OnClaims(incarnation, *claims);
    } else if (absl::IsFailedPrecondition(claims.status())) {
      agent.next_renew_ = Time{0};  // Finds out whether the lease is lost.
    }
  });
}

void Agent::OnClaims(uint64_t incarnation, const Claims& claims) {
  for (const cluster::Claim& claim : claims.jobs) {
    // A process that was paused while the answer was on its way must not start what another host may run by now.
    if (incarnation_ != incarnation || clock_.Now() >= stop_at() || is_draining_) {
      return;
    }
    held_.try_emplace(HeldJob{claim.tenant, claim.id, claim.fence});
    runs_.Start(claim);
  }
  if (!claims.jobs.empty()) {
    next_claim_ = clock_.Now();
  }
}

// The store may give the jobs to another host from now on.
void Agent::LoseLease() {
  incarnation_ = 0;
  renew_.sent = claim_.sent = kNever;
  StopAll(AgentRuns::StopReason::kLost);
}

void Agent::StopRun(const HeldJob& job, AgentRuns::StopReason why) {
  const auto found = held_.find(job);
  // The end of a run is recorded, or refused, by Finish.
  if (found == held_.end() || !found->second.is_running) {
    return;
  }
  const std::optional<AgentRuns::StopReason> before = found->second.stopped;
  if (!before.has_value() || (why == AgentRuns::StopReason::kLost && *before != why)) {
    found->second.stopped = why;
    runs_.Stop(job, why);
  }
}

void Agent::OnRunEnded(const HeldJob& job, RunEnd end) {
  const auto found = held_.find(job);
  if (found == held_.end() || !found->second.is_running) {
    return;
  }
  Held& held = found->second;
  held.is_running = false;
  FinishRequest finish{.worker = options_.worker.name,
                       .job = job,
                       .state = end.state,
                       .result = std::move(end.result),
                       .record = std::move(end.record),
                       .is_lost = end.state == JobState::kWaiting && end.is_lost,
                       .device_time = end.device_time};
  if (end.state != JobState::kSucceeded && held.stopped.has_value()) {
    switch (*held.stopped) {
      case AgentRuns::StopReason::kLost:  // The store knows, or takes it back when the lease has expired.
        held_.erase(found);
        runs_.OnRecorded(job, FailedPrecondition("The claim was lost."));
        return;
      case AgentRuns::StopReason::kCancelled:
        finish.state = JobState::kCancelled;
        break;
      case AgentRuns::StopReason::kExpired:
        finish.state = JobState::kFailed;
        break;
      case AgentRuns::StopReason::kGivenBack:
        finish.state = JobState::kWaiting;
        finish.is_lost = false;
        break;
    }
  }
  held.finish = std::move(finish);
}

void Agent::Finish(const HeldJob& job, Held& held, Time now) {
  held.finish_sent = now;
  store_.Finish(*held.finish, [weak = std::weak_ptr(self_), job](const StatusOr<JobView>& view) {
    if (const std::shared_ptr<Agent*> self = weak.lock()) {
      (*self)->OnFinished(job, view);
    }
  });
}

void Agent::OnFinished(const HeldJob& job, const StatusOr<JobView>& view) {
  const Status& status = view.status();
  const auto found = held_.find(job);
  if (found == held_.end() || !found->second.finish.has_value()) {
    return;
  }
  if (status.ok() || absl::IsFailedPrecondition(status) || absl::IsNotFound(status)) {
    held_.erase(found);
    next_claim_ = std::min(next_claim_, clock_.Now());
    runs_.OnRecorded(job, view);
    return;
  }
  FinishRequest& finish = *found->second.finish;
  if (absl::IsInvalidArgument(status) && !finish.record.empty()) {
    finish.record.clear();  // It is too large. The end counts without it.
    found->second.finish_sent = kNever;
  }
  // Otherwise the call is repeated when it is overdue.
}

void Agent::Leave(Time now) {
  leave_ = {.number = leave_.number + 1, .sent = now};
  store_.Leave(options_.worker.name, incarnation_, [weak = std::weak_ptr(self_)](const StatusOr<Nothing>& left) {
    const std::shared_ptr<Agent*> self = weak.lock();
    if (self != nullptr && (left.ok() || absl::IsFailedPrecondition(left.status()))) {
      (*self)->has_left_ = true;
      (*self)->incarnation_ = 0;
    }
  });
}

}  // namespace hpvm::server::cluster
