// SPDX-License-Identifier: Apache-2.0
// Elements of arrays: whose turn it is where only some may run at a time, and how the array stands.
#include <algorithm>
#include <utility>

#include "server/core/jobs/job_lifecycle.h"

namespace hpvm::server {

// Whether the job may be queued; when not, it is told by LeaveArrayTurn of another.
bool JobLifecycle::TakeArrayTurn(const ExecutionRef& job) {
  LiveArray* array = table_.ArrayOf(*job);
  if (array == nullptr || array->running_max == 0 || job->stored->has_array_turn) {
    return true;
  }
  if (array->turns >= array->running_max) {
    array->waiting.emplace(job->stored->row.sequence(), job);
    return false;
  }
  array->waiting.erase(job->stored->row.sequence());
  ++array->turns;
  job->stored->has_array_turn = true;
  return true;
}

void JobLifecycle::LeaveArrayTurn(CoreScope& scope, const ExecutionRef& job) {
  LiveArray* found = table_.ArrayOf(*job);
  if (found == nullptr) {
    return;
  }
  const std::shared_ptr<LiveArray> array = job->tenant->arrays[job->shown().array_id()];  // Settle may end it.
  if (!std::exchange(job->stored->has_array_turn, false)) {
    return;
  }
  --array->turns;
  // Some may not run now, and wait for something else from then on.
  monitor_.InSlices(scope, job->tenant, [this, array](CoreScope& inner) {
    for (int i = 0; i < Monitor::kJobsAtOnce && array->turns < array->running_max && !array->waiting.empty(); ++i) {
      const ExecutionRef next = array->waiting.begin()->second;
      array->waiting.erase(array->waiting.begin());
      Settle(inner, next);
    }
    return array->turns >= array->running_max || array->waiting.empty();
  });
}

// The element has ended; those that wait for the array learn how it stands.
void JobLifecycle::LeaveArray(CoreScope& scope, const ExecutionRef& job, v1::JobState state) {
  LiveArray* found = table_.ArrayOf(*job);
  if (found == nullptr) {
    return;
  }
  LeaveArrayTurn(scope, job);
  const std::string id = job->shown().array_id();
  const std::shared_ptr<LiveArray> array = job->tenant->arrays[id];
  array->waiting.erase(job->stored->row.sequence());
  array->live.erase(job->stored->row.sequence());
  if (IsTerminal(state)) {
    ++(state == v1::JOB_STATE_SUCCEEDED ? array->succeeded : array->failed);
  } else {  // It was given up: nobody knows how it stands, so the array never ends for those that wait.
    ++array->given_up;
    array->unreadable = "An element's state is not known until the server has started again.";
  }
  if (array->live.empty() && array->joining == 0 && array->given_up == 0) {
    job->tenant->arrays.erase(id);
  }
  TellUnit(scope, job->tenant, id, array->State());
}

}  // namespace hpvm::server
