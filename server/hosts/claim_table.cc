// SPDX-License-Identifier: Apache-2.0
#include "server/hosts/claim_table.h"

#include "server/hosts/stored_view.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

Status ClaimIsOver(const std::string& id) { return FailedPrecondition("This host's claim of job " + id + " is over."); }

JobClaims::StopReason ReasonOf(cluster::AgentRuns::StopReason why) {
  switch (why) {
    case cluster::AgentRuns::StopReason::kCancelled:
      return JobClaims::StopReason::kCancelled;
    case cluster::AgentRuns::StopReason::kExpired:
      return JobClaims::StopReason::kExpired;
    case cluster::AgentRuns::StopReason::kLost:
      return JobClaims::StopReason::kLost;
    case cluster::AgentRuns::StopReason::kGivenBack:
      return JobClaims::StopReason::kGivenBack;
  }
  return JobClaims::StopReason::kLost;
}

}  // namespace

void ClaimTable::SetParts(JobClaims* claims, cluster::AgentLoop* loop) {
  std::lock_guard lock(mutex_);
  claims_ = claims;
  loop_ = loop;
}

size_t ClaimTable::size() {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

StatusOr<std::string> ClaimTable::FindRequest(std::string_view tenant, std::string_view id) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(Key(tenant, id));
  return found == entries_.end() ? StatusOr<std::string>(NotFound("This host has not claimed the job."))
                                 : found->second.request;
}

void ClaimTable::Start(const cluster::Claim& claim) {
  const cluster::HeldJob held{claim.tenant, claim.id, claim.fence};
  JobClaims* claims = nullptr;
  {
    std::lock_guard lock(mutex_);
    claims = claims_;
    // An earlier claim may still be there, whose end is on its way; the new one takes its place when it has gone.
    if (claims != nullptr && !entries_.contains({claim.tenant, claim.id})) {
      entries_[{claim.tenant, claim.id}] = {
          .held = held, .request = claim.request, .attempts = claim.attempts, .has_ended = false, .done = nullptr};
    } else {
      claims = nullptr;
    }
  }
  if (claims == nullptr) {
    End(held, {.state = cluster::JobState::kWaiting, .result = "", .record = "", .is_lost = false});
    return;
  }
  StatusOr<StoredJob> row = RowOf(claim);
  if (!row.ok()) {
    LogError("A claimed job cannot be read",
             {{"tenant", claim.tenant}, {"job", claim.id}, {"error", Message(row.status())}});
    End(held, {.state = cluster::JobState::kFailed, .result = "", .record = ""});
    return;
  }
  row->mutable_job()->set_host(host_);
  row->set_sequence(claim.number);
  if (const Status taken = claims->Take(*std::move(row)); !taken.ok()) {
    End(held, {.state = cluster::JobState::kWaiting, .result = "", .record = "", .is_lost = false});
  }
}

void ClaimTable::Stop(const cluster::HeldJob& job, StopReason why) {
  JobClaims* claims = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find({job.tenant, job.id});
    if (found == entries_.end() || found->second.held != job || found->second.has_ended) {
      return;
    }
    claims = claims_;
  }
  const bool has_job = claims != nullptr && claims->Stop(job.tenant, job.id, ReasonOf(why));
  if (!has_job || why == StopReason::kLost) {
    End(job, {.state = cluster::JobState::kWaiting, .result = "", .record = "", .is_lost = false});
  }
}

// Tells the loop once, even for claims that have no entry.
void ClaimTable::End(const cluster::HeldJob& job, cluster::RunEnd end) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find({job.tenant, job.id});
  if (found != entries_.end() && found->second.held == job && std::exchange(found->second.has_ended, true)) {
    return;
  }
  if (loop_ != nullptr) {
    loop_->OnRunEnded(job, std::move(end));
  }
}

void ClaimTable::OnRecorded(const cluster::HeldJob& job, const StatusOr<cluster::JobView>& recorded) {
  JobStore::WriteDone done;
  {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find({job.tenant, job.id});
    if (found == entries_.end() || found->second.held != job) {
      return;
    }
    done = std::move(found->second.done);
    entries_.erase(found);
  }
  if (done) {
    Answer(job.tenant, std::move(done), recorded.ok() ? absl::OkStatus() : ClaimIsOver(job.id));
  }
}

void ClaimTable::Answer(const std::string& tenant, JobStore::WriteDone done, Status status) {
  post_(tenant, [done = std::move(done), status = std::move(status)] { done(WriteResult{.status = status}); });
}

void ClaimTable::Change(ChangeJob change, JobStore::WriteDone done) {
  cluster::HeldJob held;
  uint32_t attempts = 0;
  const bool ends = change.job.job().state() != v1::JOB_STATE_RUNNING;
  bool is_over = false;
  {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find({change.tenant, change.id});
    is_over = found == entries_.end() || found->second.has_ended;
    if (!is_over && ends) {
      found->second.done = done;
      held = found->second.held;
      attempts = found->second.attempts;
    }
  }
  if (is_over || !ends) {
    // Nothing of a running attempt is stored: the claim says that it runs.
    Answer(change.tenant, std::move(done), is_over ? ClaimIsOver(change.id) : absl::OkStatus());
    return;
  }
  const v1::Job& job = change.job.job();
  cluster::RunEnd end{.state = EndStateOf(job.state()), .result = "", .record = change.job.SerializeAsString()};
  end.is_lost = end.state == cluster::JobState::kWaiting &&
                (job.state() == v1::JOB_STATE_DEAD || change.job.attempts_spent() >= attempts);
  end.result = change.results.has_value() ? change.results->SerializeAsString() : "";
  end.device_time = Duration(static_cast<int64_t>(job.timing().run_ns()));
  End(held, std::move(end));
}

}  // namespace hpvm::server
