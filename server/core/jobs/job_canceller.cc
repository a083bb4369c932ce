// SPDX-License-Identifier: Apache-2.0
#include "server/core/jobs/job_canceller.h"

#include <utility>

#include "base/failpoint.h"
#include "server/jobs/rows/job_rules.h"

namespace hpvm::server {

// One CancelJob of an array until its answer.
struct JobCanceller::ArrayCancel {
  std::shared_ptr<LiveArray> array;
  v1::CancelJobResponse* response = nullptr;
  Done done;
  uint64_t next = 0;   // Elements with this sequence and later ones are still to be asked.
  uint64_t waits = 1;  // Wishes that are not on disk yet, and one for asking.
  Status failed;
};

void JobCanceller::CancelJob(const TenantRef& tenant, std::string_view id, v1::CancelJobResponse* response, Done done) {
  const std::string name(id);
  {
    CoreScope scope(monitor_);
    if (const auto array = tenant->arrays.find(name); array != tenant->arrays.end() && array->second->joining == 0) {
      auto cancel = std::make_shared<ArrayCancel>(ArrayCancel{array->second, response, std::move(done), 0, 1, {}});
      monitor_.InSlices(scope, tenant, [this, cancel](CoreScope& inner) { return CancelElements(inner, cancel); });
      return;
    }
    if (const auto job = tenant->jobs.find(name); job != tenant->jobs.end()) {
      response->set_cancelled(1);
      lifecycle_.AskCancel(scope, job->second,
                           [this, job = job->second, response, done](CoreScope& inner, const Status& status) {
                             *response->mutable_job() = feed_.Describe(*job);
                             inner.Defer([done, status] { done(status); });
                           });
      return;
    }
  }
  CoreScope scope(monitor_);
  monitor_.Read(scope, tenant->name, [this, tenant, name, response, done = std::move(done)] {
    HPVMD_FAILPOINT("core.cancel.read").IgnoreError();
    done(AnswerCancelOfEnded(*tenant, name, response));
    return FairQueue::Step::kDone;
  });
}

// Asks some elements; true: none is left to ask. The answer comes with the last of their wishes.
bool JobCanceller::CancelElements(CoreScope& scope, const std::shared_ptr<ArrayCancel>& cancel) {
  const auto answered = [cancel](CoreScope& inner, const Status& status) {
    cancel->failed.Update(status);
    if (--cancel->waits == 0) {
      inner.Defer([cancel] { cancel->done(cancel->failed); });
    }
  };
  for (int i = 0; i < Monitor::kJobsAtOnce; ++i) {
    const auto found = cancel->array->live.lower_bound(cancel->next);
    if (found == cancel->array->live.end()) {
      answered(scope, absl::OkStatus());
      return true;
    }
    const ExecutionRef job = found->second;
    cancel->next = found->first + 1;
    ++cancel->waits;
    cancel->response->set_cancelled(cancel->response->cancelled() + 1);
    lifecycle_.AskCancel(scope, job, answered);
  }
  return false;
}

// It has ended, or there is none. In the tenant's turn and without the mutex: asks the store.
Outcome JobCanceller::AnswerCancelOfEnded(Tenant& tenant, const std::string& name, v1::CancelJobResponse* response) {
  bool has_ended = true;
  if (name.starts_with("array-")) {
    JobFilter one;
    one.array_id = name;
    one.count_max = 1;
    HPVMD_ASSIGN_OR_RETURN(const std::vector<StoredJob> rows, options_.jobs->database().List(tenant.name, one));
    if (rows.empty()) {
      return NotFound("There is no array \"" + name.substr(0, 80) + "\".");
    }
    has_ended = IsTerminal(rows.front().job().state());
  } else {
    HPVMD_ASSIGN_OR_RETURN(*response->mutable_job(), reader_.FindJob(tenant, name));
    has_ended = IsTerminal(response->job().state());
  }
  if (has_ended) {
    return Outcome();
  }
  // It is between its commit and the answer to its submission; or its row is not what the core knew.
  return Later(Unavailable("How " + name.substr(0, 80) + " stands is not known at this moment; cancel it again."));
}

}  // namespace hpvm::server
