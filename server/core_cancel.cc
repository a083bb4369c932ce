// SPDX-License-Identifier: Apache-2.0
// Cancelling jobs: the wish is on disk before it is answered, and is honoured wherever the job is.
#include <utility>

#include "base/failpoint.h"
#include "server/core.h"

namespace hpvm {

void Core::CancelJob(const TenantRef& tenant, std::string_view id, v1::CancelJobResponse* response, Done done) {
  struct Wish {
    size_t left = 0;
    Status failed;
  };
  const std::string name(id);
  const bool is_array = name.starts_with("array-");
  {
    CoreScope scope(*this);
    std::vector<LiveJobRef> jobs;
    if (const auto array = tenant->arrays.find(name); array != tenant->arrays.end()) {
      for (const auto& [sequence, job] : array->second->live) {
        jobs.push_back(job);
      }
    } else if (FindLive(*tenant, name) != nullptr) {
      jobs.push_back(tenant->jobs.at(name));
    }
    if (!jobs.empty()) {
      response->set_cancelled(static_cast<uint32_t>(jobs.size()));
      auto wish = std::make_shared<Wish>();
      wish->left = jobs.size();
      for (const LiveJobRef& job : jobs) {
        AskCancel(scope, job, [this, wish, job, is_array, response, done](CoreScope& inner, const Status& status) {
          wish->failed.Update(status);
          if (--wish->left > 0) {
            return;
          }
          if (!is_array) {
            *response->mutable_job() = Describe(*job);
          }
          inner.Defer([done, failed = wish->failed] { done(failed); });
        });
      }
      return;
    }
  }
  // It has ended, or there is none.
  Status status;
  if (is_array) {
    JobFilter one;
    one.array_id = name;
    one.count_max = 1;
    const StatusOr<std::vector<StoredJob>> rows = options_.jobs->database().List(tenant->name, one);
    status = !rows.ok()      ? rows.status()
             : rows->empty() ? NotFound("There is no array \"" + name.substr(0, 80) + "\".")
                             : absl::OkStatus();
  } else {
    StatusOr<v1::Job> job = FindJob(*tenant, name);
    status = job.status();
    if (job.ok()) {
      *response->mutable_job() = *std::move(job);
    }
  }
  done(status);
}

void Core::AskCancel(CoreScope& scope, const LiveJobRef& job, CancelDone then) {
  if (closed_) {
    then(scope, Unavailable("The server stopped."));
    return;
  }
  if (job->row.job().cancel_requested() && job->row.job().state() == v1::JOB_STATE_RUNNING) {
    then(scope, absl::OkStatus());  // On disk already.
    return;
  }
  if (HPVMD_MUTANT("core_cancel_acked_before_record")) {
    then(scope, absl::OkStatus());
    then = [](CoreScope&, const Status&) {};
  }
  job->cancel_waiters.push_back(std::move(then));
  if (std::exchange(job->cancel_asked, true)) {
    return;
  }
  HPVMD_FAILPOINT("core.cancel.record").IgnoreError();
  switch (job->phase) {
    case LiveJob::Phase::kQueued:
      Unqueue(scope, job);
      Settle(scope, job);
      break;
    case LiveJob::Phase::kWaiting:
      Settle(scope, job);
      break;
    case LiveJob::Phase::kReading:
    case LiveJob::Phase::kRunning: {
      StoredJob next = job->row;
      next.mutable_job()->set_cancel_requested(true);
      ChangeRow(scope, job, std::move(next), /*with_results=*/false, &Core::OnCancelRecorded);
      break;
    }
    default:
      break;  // A write is in flight, or the outputs are: what follows it looks at the wish.
  }
}

void Core::OnCancelRecorded(CoreScope& scope, const LiveJobRef& job) {
  HPVMD_FAILPOINT("core.cancel.recorded").IgnoreError();
  AddStateEvent(scope, *job);
  options_.observer->OnJob(job->tenant->name, job->row.job());
  AnswerCancels(scope, *job, absl::OkStatus());
  if (job->phase == LiveJob::Phase::kRunning) {
    StopRun(scope, std::shared_ptr<RunOp>(job->attempt->op), Cancelled("The job was cancelled."));
  } else if (job->phase == LiveJob::Phase::kStoring) {
    EndAttempt(scope, job);  // It ended while the wish was written.
  }
}

void Core::AnswerCancels(CoreScope& scope, LiveJob& job, const Status& status) {
  for (const CancelDone& then : std::exchange(job.cancel_waiters, {})) {
    then(scope, status);
  }
}

void Core::RefuseCancels(CoreScope& scope) {
  for (const auto& [name, tenant] : tenants_) {
    for (const auto& [id, job] : tenant->jobs) {
      AnswerCancels(scope, *job, Unavailable("The server stopped before the wish to cancel was stored."));
    }
  }
}

}  // namespace hpvm
