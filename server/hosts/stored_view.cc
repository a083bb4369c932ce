// SPDX-License-Identifier: Apache-2.0
#include "server/hosts/stored_view.h"

#include <algorithm>
#include <set>
#include <utility>

#include "server/core/state/outcome.h"
#include "server/jobs/rows/job_rules.h"

namespace hpvm::server {
namespace {

using cluster::JobState;

bool IsEndedByStore(const std::string& result) {
  return result == cluster::kEndedByDependency || result == cluster::kEndedByDeadline ||
         result == cluster::kEndedByCancel || result == cluster::kEndedByLoss;
}

StatusOr<StoredJob> Parse(const std::string& record, const std::string& id) {
  StoredJob row;
  if (!row.ParseFromString(record) || row.job().id() != id) {
    return DataLoss("The record of job " + id + " in the cluster's store is damaged.");
  }
  return row;
}

void SetError(v1::Job& job, absl::StatusCode code, const std::string& message) {
  Outcome outcome = MakeStatus(code, message);
  outcome.detail.emplace().set_job_id(job.id());
  *job.mutable_error() = ToMessage(outcome);
}

// Gives a job without an error the sentence for how the store ended it.
void SetEnd(const cluster::JobView& view, v1::Job& job) {
  if (job.ended_unix_ns() == 0) {
    job.set_ended_unix_ns(view.ended.count());  // Otherwise the host's time, as its start is.
  }
  job.clear_hold();
  if (job.has_error() || view.state == JobState::kSucceeded) {
    return;
  }
  switch (view.state) {
    case JobState::kCancelled:
      SetError(job, absl::StatusCode::kCancelled, "The job was cancelled.");
      break;
    case JobState::kExpired:
      SetError(job, absl::StatusCode::kDeadlineExceeded, "The job's deadline passed before it started.");
      break;
    case JobState::kDead:
      SetError(job, absl::StatusCode::kUnavailable,
               "Each of the job's attempts was lost; the job is not tried again. The last one ran on host \"" +
                   view.host + "\".");
      break;
    default:
      if (view.state == JobState::kFailed && view.attempts == 0) {
        SetError(job, absl::StatusCode::kFailedPrecondition,
                 "A job that this one comes after ended otherwise than required.");
      } else {
        SetError(job, absl::StatusCode::kDeadlineExceeded, "The job did not end within its deadline.");
      }
      break;
  }
}

cluster::Dependency::Condition ConditionOf(v1::JobDependency::Condition condition) {
  switch (condition) {
    case v1::JobDependency::CONDITION_ENDED:
      return cluster::Dependency::Condition::kEnded;
    case v1::JobDependency::CONDITION_FAILED:
      return cluster::Dependency::Condition::kFailed;
    default:
      return cluster::Dependency::Condition::kSucceeded;
  }
}

// Returns the words of one set of the row's `needs`, which are comma-separated ids of devices.
std::set<std::string> DeviceWords(const std::string& ids) {
  std::set<std::string> words;
  for (size_t begin = 0; begin <= ids.size();) {
    const size_t end = std::min(ids.find(',', begin), ids.size());
    if (end > begin) {
      words.insert("device:" + ids.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  return words;
}

cluster::Needs NeedsOf(const StoredJob& row) {
  cluster::Needs needs;
  for (const std::string& set : row.needs()) {
    needs.any_of.push_back(DeviceWords(set));
  }
  for (const std::string& word : row.job().host_needs().words()) {
    needs.any_of.push_back({word});
  }
  needs.memory_bytes = row.job().host_needs().memory_bytes();
  needs.host = row.job().host_needs().host();
  if (row.array_running_max() > 0) {
    needs.running_max = row.array_running_max();
    needs.group = row.job().array_id();
  }
  return needs;
}

}  // namespace

v1::JobState ToPublic(JobState state) {
  switch (state) {
    case JobState::kWaiting:
      return v1::JOB_STATE_ACCEPTED;
    case JobState::kRunning:
      return v1::JOB_STATE_RUNNING;
    case JobState::kSucceeded:
      return v1::JOB_STATE_SUCCEEDED;
    case JobState::kFailed:
      return v1::JOB_STATE_FAILED;
    case JobState::kCancelled:
      return v1::JOB_STATE_CANCELLED;
    case JobState::kExpired:
      return v1::JOB_STATE_EXPIRED;
    case JobState::kDead:
      return v1::JOB_STATE_DEAD;
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

JobState EndStateOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED:
      return JobState::kSucceeded;
    case v1::JOB_STATE_CANCELLED:
      return JobState::kCancelled;
    case v1::JOB_STATE_FAILED:
    case v1::JOB_STATE_EXPIRED:
      return JobState::kFailed;
    default:
      return JobState::kWaiting;  // Also DEAD: the store counts the attempts itself.
  }
}

StatusOr<StoredJob> RowOf(const cluster::JobView& view) {
  HPVMD_ASSIGN_OR_RETURN(StoredJob row, Parse(view.record, view.id));
  v1::Job& job = *row.mutable_job();
  row.set_tenant(view.tenant);
  row.set_sequence(view.number);
  job.set_state(ToPublic(view.state));
  job.set_attempt(std::max(job.attempt(), view.attempts));
  job.set_attempts_counted(view.attempts);
  job.set_host(view.host);
  if (job.started_unix_ns() == 0) {
    job.set_started_unix_ns(view.started.count());
  }
  job.set_cancel_requested(view.cancel_requested || view.state == JobState::kCancelled);
  job.clear_hold();
  if (view.is_held && !job.mutable_hold()->ParseFromString(view.hold)) {
    job.mutable_hold()->Clear();  // Held, by whom is not known.
  }
  if (IsEnd(view.state)) {
    SetEnd(view, job);
  }
  return row;
}

StatusOr<StoredJob> RowOf(const cluster::Claim& claim) {
  HPVMD_ASSIGN_OR_RETURN(StoredJob row, Parse(claim.record, claim.id));
  v1::Job& job = *row.mutable_job();
  row.set_tenant(claim.tenant);
  row.set_attempts_spent(claim.attempts - std::min(1u, claim.attempts));
  job.set_state(v1::JOB_STATE_ACCEPTED);
  job.set_attempt(std::max(job.attempt(), row.attempts_spent()));
  job.clear_hold();
  job.clear_not_before_unix_ns();
  return row;
}

StatusOr<cluster::NewJob> NewJobOf(const InsertJobs& insert, size_t index, const std::string& host,
                                   const ArrayElements& elements) {
  StoredJob row = insert.jobs[index];
  if (insert.shared.has_value()) {
    HPVMD_RETURN_IF_ERROR(AddShared(*insert.shared, &row));
  }
  cluster::NewJob job;
  job.tenant = row.tenant();
  job.id = row.job().id();
  // Each element of an array has a key of its own, so that a repeated call adds none twice.
  const std::string& key = insert.idempotency_key;
  job.idempotency_key = key.empty() || index == 0 ? key : key + "#" + std::to_string(index);
  job.request = insert.request;
  job.request_hash = key.empty() ? "" : std::string(Raw(insert.request_hash));
  job.priority = row.job().priority();
  job.attempts_max = row.in_place() ? 1 : std::max(1u, row.job().attempts_max());
  if (row.job().deadline_unix_ns() != 0) {
    job.deadline = std::max(Duration(row.job().deadline_unix_ns() - row.job().created_unix_ns()), Duration{1});
  }
  for (const v1::JobDependency& dependency : row.job().after()) {
    const auto array = elements.find(dependency.job_id());
    const std::vector<std::string> ids =
        array == elements.end() ? std::vector<std::string>{dependency.job_id()} : array->second;
    for (const std::string& id : ids) {
      job.after.push_back({.job = id, .condition = ConditionOf(dependency.condition())});
    }
  }
  job.needs = NeedsOf(row);
  if (row.bound_to_host() && !job.needs.host.empty() && job.needs.host != host) {
    return InvalidArgument("The job writes buffers of host \"" + host + "\" and so cannot run on host \"" +
                           job.needs.host + "\".");
  }
  if (row.bound_to_host()) {
    job.needs.host = host;
  }
  job.is_held = row.job().has_hold();
  job.hold = job.is_held ? row.job().hold().SerializeAsString() : "";
  job.record = row.SerializeAsString();
  return job;
}

StatusOr<StoredResults> ResultsOf(const cluster::JobView& view) {
  StoredResults results;
  if (!IsEnd(view.state) || IsEndedByStore(view.result)) {
    return results;
  }
  if (!results.ParseFromString(view.result)) {
    return DataLoss("The results of job " + view.id + " in the cluster's store are damaged.");
  }
  return results;
}

}  // namespace hpvm::server
