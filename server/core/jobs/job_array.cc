// SPDX-License-Identifier: Apache-2.0
// Elements of arrays: gives turns where only some elements may run at a time, and tracks the array's state.
#include <algorithm>
#include <utility>

#include "server/core/jobs/job_lifecycle.h"

namespace hpvm::server {

// Returns true when the job may be queued; otherwise LeaveArrayTurn of another element settles it later.
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
  // Holds the array, which Settle may remove.
  const std::shared_ptr<LiveArray> array = job->tenant->arrays[job->shown().array_id()];
  if (!std::exchange(job->stored->has_array_turn, false)) {
    return;
  }
  --array->turns;
  // Some of these elements may not run now, and then wait for something else.
  monitor_.InSlices(scope, job->tenant, [this, array](CoreScope& inner) {
    for (int i = 0; i < Monitor::kJobsAtOnce && array->turns < array->running_max && !array->waiting.empty(); ++i) {
      const ExecutionRef next = array->waiting.begin()->second;
      array->waiting.erase(array->waiting.begin());
      Settle(inner, next);
    }
    return array->turns >= array->running_max || array->waiting.empty();
  });
}

// Counts an element that has ended, and informs the jobs that depend on the array.
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
  } else {  // The element was given up: its state is unknown, so the array never ends for jobs that depend on it.
    ++array->given_up;
    array->unreadable = "An element's state is not known until the server has started again.";
  }
  if (array->live.empty() && array->joining == 0 && array->given_up == 0) {
    job->tenant->arrays.erase(id);
  }
  TellUnit(scope, job->tenant, id, array->State());
}

}  // namespace hpvm::server
