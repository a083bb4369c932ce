// SPDX-License-Identifier: Apache-2.0
// The end of a submission: its parts are on disk; now its rows are written, and then it is answered.
#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "server/core/jobs/job_submitter.h"
#include "server/jobs/rows/arrays.h"
#include "server/jobs/rows/job_rules.h"
#include "server/jobs/rows/request_hash.h"
#include "server/jobs/stored_request.h"
#include "server/process/log.h"
#include "server/process/object_id.h"

namespace hpvm::server {
namespace {

// Limit on reads of units that change between the read and the check.
constexpr int kRoundsMax = 8;
// Number of an array's elements that are read in one turn.
constexpr size_t kElementsAtOnce = 200;

}  // namespace

// Returns the error of a store that cannot write as a client sees it: the server's paths are for its log only.
Outcome JobSubmitter::StoreRefusal(const Status& status) const {
  LogWarning("The job store refused a request", {{"error", Message(status)}});
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      if (options_.shared != nullptr) {
        return Later(Unavailable("The cluster's database does not answer at this moment."));
      }
      [[fallthrough]];
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInternal:
      return Later(Unavailable("The job store takes no writes until the server has started again."));
    case absl::StatusCode::kResourceExhausted:
      return Later(ResourceExhausted("The server's disk has no room for the job."), std::chrono::seconds(1));
    default:
      return While(status, "storing the job");
  }
}

// Usually called on the store's thread, where reads are allowed.
void JobSubmitter::OnBlobs(const SubmissionRef& submission, StatusOr<std::vector<PinnedBlob>> blobs) {
  if (const Status put = HPVMD_FAILPOINT("core.submit.blobs"); !put.ok()) {
    blobs = put;
  }
  if (!blobs.ok()) {
    CoreScope scope(monitor_);
    Answer(scope, submission, StoreRefusal(blobs.status()));
    return;
  }
  // Files of a shared store are marked as used by each submission.
  if (submission->puts_graph && options_.shared == nullptr) {
    CoreScope scope(monitor_);
    Preparation& preparation = *submission->preparation;
    if (!shutdown_.closed) {  // Stop releases the pins while the store still exists.
      preparation.stored.assign(blobs->begin(),
                                blobs->begin() + 1 + static_cast<ptrdiff_t>(preparation.modules.size()));
    }
  }
  for (const PinnedBlob& blob : *blobs) {
    submission->pins.push_back(blob.pin);
    internal::StoredBlob& stored = *submission->row.add_blobs();
    stored.set_sha256(std::string(Raw(blob.hash)));
    stored.set_size_bytes(blob.size_bytes);
  }
  // The last blobs are the inputs, followed by the request; for a retry only the request was put.
  size_t at = blobs->size();
  if (submission->puts_request && at > 0) {
    NameRequestBlob((*blobs)[--at], &submission->stored);
  }
  for (int i = submission->stored.inputs_size() - 1; i >= 0 && at > 0; --i) {
    internal::StoredInput& input = *submission->stored.mutable_inputs(i);
    if (input.size_bytes() > 0) {
      input.set_sha256(std::string(Raw((*blobs)[--at].hash)));
    }
  }
  if (!submission->key.empty() && submission->request != nullptr) {
    submission->hash = HashOfRequest(submission->stored);
  }
  if (submission->known.has_value()) {
    AnswerKnown(submission, *submission->known);
  } else {
    SettleDependencies(submission);
  }
}

// Inserts the jobs under the same hold of the mutex under which the states of all their dependencies are known.
void JobSubmitter::SettleDependencies(const SubmissionRef& submission) {
  Tenant& tenant = *submission->tenant;
  std::set<std::string> unknown;
  Status refused;
  {
    CoreScope scope(monitor_);
    for (const v1::JobDependency& dependency : submission->row.job().after()) {
      const std::string& id = dependency.job_id();
      const std::optional<StoredUnit> unit = table_.StateOfUnit(tenant, id, submission->units);
      if (!unit.has_value()) {
        unknown.insert(id);
      } else if (unit->missing() > 0) {
        refused = FailedPrecondition(
            std::to_string(unit->missing()) + " of the " + std::to_string(unit->size) + " elements of " +
            id.substr(0, 80) +
            " are no longer stored, so their outcome is not known; name the elements that the job is to come after.");
      } else if (const auto array = tenant.arrays.find(id);
                 array != tenant.arrays.end() && !array->second->unreadable.empty()) {
        refused = DataLoss("The store cannot read the outcome of elements of " + id.substr(0, 80) + ". " +
                           array->second->unreadable);
      }
    }
    if (refused.ok() && unknown.empty()) {
      Insert(scope, submission);
      return;
    }
    if (refused.ok() && submission->unit_reads++ == kRoundsMax) {
      refused = Unavailable("The jobs that the job comes after change too fast; try again.");
    }
    if (!refused.ok()) {
      Answer(scope, submission, std::move(refused));
      return;
    }
  }
  auto reader = std::make_shared<UnitReader>(options_.jobs->database(), tenant.name,
                                             std::vector<std::string>(unknown.begin(), unknown.end()));
  CoreScope scope(monitor_);
  monitor_.Read(scope, tenant.name, [this, submission, reader] { return ReadUnits(submission, *reader); });
}

FairQueue::Step JobSubmitter::ReadUnits(const SubmissionRef& submission, UnitReader& reader) {
  const StatusOr<bool> step = reader.Step();
  if (step.ok() && !*step) {
    return FairQueue::Step::kAgain;
  }
  if (step.ok()) {
    submission->units.insert(reader.units().begin(), reader.units().end());
    SettleDependencies(submission);
  } else {
    CoreScope scope(monitor_);
    Answer(scope, submission, StoreRefusal(step.status()));
  }
  return FairQueue::Step::kDone;
}

void JobSubmitter::Insert(CoreScope& scope, const SubmissionRef& submission) {
  Status allowed = shutdown_.stopped ? shutdown_.RefuseWork() : HPVMD_FAILPOINT("core.submit.insert");
  if (!allowed.ok()) {
    Answer(scope, submission, std::move(allowed));
    return;
  }
  const int64_t now = options_.clock->WallNs();
  const bool is_array = submission->stored.request().has_array();
  submission->waits_as = NewTimedId(is_array ? "array" : "job", now, *options_.rng);
  InsertJobs& insert = submission->insert;
  const v1::JobArray array = submission->stored.request().array();
  if (submission->stored.request_bytes() != 0) {
    submission->stored.clear_request();  // Stored in its blob.
  }
  insert.request = submission->stored.SerializeAsString();
  insert.idempotency_key = submission->key;
  insert.request_hash = submission->hash;
  // From here on the submission is told when dependencies end, also while its rows are being written.
  Tenant& tenant = *submission->tenant;
  const std::vector<v1::JobDependency> after(submission->row.job().after().begin(),
                                             submission->row.job().after().end());
  const Waits waits = table_.JudgeUnits(tenant, after, submission->units);
  submission->failed_dependency = waits.failed;
  tenant.dependencies.Add(submission->waits_as, waits.pending);
  table_.inserting.emplace(submission->waits_as, submission);
  monitor_.InSlices(scope, submission->tenant, [this, submission, array, now, is_array](CoreScope&) {
    return MakeRows(submission, is_array ? &array : nullptr, now);
  });
}

// Makes some of the jobs; when all are made, sends them to the store. Returns true then.
bool JobSubmitter::MakeRows(const SubmissionRef& submission, const v1::JobArray* array, int64_t now) {
  InsertJobs& insert = submission->insert;
  if (array != nullptr && submission->shared == nullptr) {
    insert.shared = SharedOf(submission->row);
    insert.shared->mutable_job()->set_array_id(submission->waits_as);
    submission->shared = std::make_shared<const StoredJob>(*insert.shared);
    RemoveShared(&submission->row);
  }
  const uint64_t bytes = submission->disk_bytes.amount();
  const uint64_t part = bytes / submission->count;  // Shared fields are counted once: each element has its part.
  for (int i = 0; i < Monitor::kJobsAtOnce && submission->jobs.size() < submission->count; ++i) {
    const uint64_t at = submission->jobs.size();
    // A single job takes the submission's row; elements get a copy each.
    ExecutionRef job =
        NewJob(submission->tenant, array == nullptr ? std::move(submission->row) : StoredJob(submission->row));
    job->received = submission->received;
    job->stored->shared = submission->shared;
    v1::Job& shown = *job->stored->row.mutable_job();
    shown.set_id(array == nullptr ? submission->waits_as : NewTimedId("job", now, *options_.rng));
    shown.set_state(v1::JOB_STATE_ACCEPTED);
    shown.set_idempotency_key(submission->key);
    if (array != nullptr) {
      shown.set_array_id(submission->waits_as);
      shown.set_array_index(IndexOf(*array, at));
    }
    job->stored->row.set_request_hash(std::string(Raw(submission->hash)));
    job->stored->row.set_stored_bytes(part + (at == 0 ? bytes % submission->count : 0));
    insert.jobs.push_back(job->stored->row);
    submission->jobs.push_back(std::move(job));
  }
  if (submission->jobs.size() < submission->count) {
    return false;
  }
  const auto on_inserted = [this, submission](const WriteResult& result) { OnInserted(submission, result); };
  if (const std::shared_ptr<SubmitBatch> batch = std::exchange(submission->batch, nullptr)) {
    batch->Write(std::move(insert), on_inserted);
  } else {
    options_.jobs->Write(std::move(insert), on_inserted);
  }
  return true;
}

void JobSubmitter::OnInserted(const SubmissionRef& submission, const WriteResult& result) {
  const Status& status = result.status;
  HPVMD_FAILPOINT("core.submit.recorded").IgnoreError();  // On disk, not acknowledged.
  submission->pins.clear();                               // The rows hold the blobs now, or no job does.
  CoreScope scope(monitor_);
  if (!status.ok()) {
    EndInserting(*submission);
    submission->jobs.clear();  // The jobs never existed.
    if (result.known.has_value()) {
      scope.Defer([this, submission, known = *result.known] { AnswerKnown(submission, known); });
    } else {
      Answer(scope, submission, StoreRefusal(status));
    }
    return;
  }
  Tenant& tenant = *submission->tenant;
  LogInfo("Job accepted", {{"tenant", tenant.name},
                           {"job", submission->jobs.front()->shown().id()},
                           {"count", std::to_string(submission->jobs.size())}});
  if (options_.shared != nullptr) {
    AnswerShared(scope, submission);
    return;
  }
  tenant.stored_rows.Merge(std::move(submission->disk_bytes));
  if (const std::string& array_id = submission->jobs.front()->shown().array_id(); !array_id.empty()) {
    auto array = std::make_shared<LiveArray>();
    array->running_max = submission->row.array_running_max();
    array->joining = submission->jobs.size();
    tenant.arrays.emplace(array_id, std::move(array));
  }
  monitor_.InSlices(scope, submission->tenant, [this, submission, sequences = result.sequences](CoreScope& inner) {
    return JoinJobs(inner, submission, sequences);
  });
}

// The jobs are the store's, which gives them to hosts: answers without making them live.
void JobSubmitter::AnswerShared(CoreScope& scope, const SubmissionRef& submission) {
  EndInserting(*submission);
  for (const ExecutionRef& job : submission->jobs) {
    options_.observer->On(events::JobChanged{submission->tenant->name, job->shown(), job->stored->lost_cause});
    if (submission->row.array_size() > 0) {
      submission->response->add_array_job_ids(job->shown().id());
    }
  }
  v1::Job* answered = submission->response->mutable_job();
  if (submission->is_brief) {
    SubmitBatch::FillBrief(submission->jobs.front()->shown(), answered);
  } else {
    *answered = feed_.Describe(*submission->jobs.front());
  }
  submission->jobs.clear();
  Answer(scope, submission, Outcome());
}

// Makes some of the jobs, which are on disk, live; when all are, answers the submission. Returns true then.
bool JobSubmitter::JoinJobs(CoreScope& scope, const SubmissionRef& submission, const std::vector<uint64_t>& sequences) {
  Tenant& tenant = *submission->tenant;
  const Waits waits{.pending = tenant.dependencies.PendingOf(submission->waits_as),
                    .failed = submission->failed_dependency};
  const bool is_array = submission->row.array_size() > 0;
  for (int i = 0; i < Monitor::kJobsAtOnce && submission->joined < submission->jobs.size(); ++i) {
    const size_t at = submission->joined++;
    const ExecutionRef job = submission->jobs[at];
    job->stored->row.set_sequence(at < sequences.size() ? sequences[at] : 0);
    job->stored->queued = submission->queued.Split(1);
    --submission->count;
    if (!is_array) {
      EndInserting(*submission);  // The submission waited under the job's id.
    }
    table_.AddLive(job);
    table_.AddWaits(tenant, *job, waits);
    job->deadline = job->received + Duration(job->shown().deadline_unix_ns() - job->shown().created_unix_ns());
    lifecycle_.SetDeadline(scope, job);
    feed_.AddStateEvent(scope, *job);
    options_.observer->On(events::JobChanged{tenant.name, job->shown(), job->stored->lost_cause});
    if (is_array) {
      submission->response->add_array_job_ids(job->shown().id());
    }
    lifecycle_.Settle(scope, job);
  }
  if (submission->joined < submission->jobs.size()) {
    return false;
  }
  EndInserting(*submission);
  v1::Job* answered = submission->response->mutable_job();
  if (submission->is_brief) {
    SubmitBatch::FillBrief(submission->jobs.front()->shown(), answered);
    answered->set_state(JobFeed::StateOf(*submission->jobs.front()));
  } else {
    *answered = feed_.Describe(*submission->jobs.front());
  }
  Answer(scope, submission, Outcome());
  return true;
}

// Removes the submission from the place of its jobs.
void JobSubmitter::EndInserting(Submission& submission) {
  if (table_.inserting.erase(submission.waits_as) > 0) {
    submission.tenant->dependencies.Remove(submission.waits_as);
  }
}

// Compares the request with that of the known key, and answers. Called without the mutex.
void JobSubmitter::AnswerKnown(const SubmissionRef& submission, const KeyRecord& known) {
  if (known.request_hash != submission->hash) {
    Outcome outcome = AlreadyExists("The idempotency key \"" + submission->key +
                                    "\" was used with another request, for job " + known.job_id + ".");
    outcome.detail.emplace().set_job_id(known.job_id);
    CoreScope scope(monitor_);
    Answer(scope, submission, std::move(outcome));
    return;
  }
  submission->response->set_existed(true);
  if (known.array_id.empty()) {
    AnswerExisting(submission, known);
    return;
  }
  JobFilter filter;
  filter.array_id = known.array_id;
  filter.count_max = kElementsAtOnce;
  CoreScope scope(monitor_);
  monitor_.Read(scope, submission->tenant->name,
                [this, submission, known, filter]() mutable { return AddElements(submission, known, &filter); });
}

// Adds some elements of the array of a known key, newest first; then answers with all of them in order.
FairQueue::Step JobSubmitter::AddElements(const SubmissionRef& submission, const KeyRecord& known, JobFilter* filter) {
  const StatusOr<std::vector<StoredJob>> rows = options_.jobs->database().ListSome(submission->tenant->name, filter);
  google::protobuf::RepeatedPtrField<std::string>& ids = *submission->response->mutable_array_job_ids();
  for (const StoredJob& row : rows.value_or(std::vector<StoredJob>())) {
    *ids.Add() = row.job().id();
  }
  if (rows.ok() && filter->before_sequence > 0) {
    return FairQueue::Step::kAgain;
  }
  std::reverse(ids.pointer_begin(), ids.pointer_end());
  if (rows.ok()) {
    AnswerExisting(submission, known);
  } else {
    CoreScope scope(monitor_);
    Answer(scope, submission, StoreRefusal(rows.status()));
  }
  return FairQueue::Step::kDone;
}

// Answers with the present state of the job, so that a client never sees less of it than before. Called without the
// mutex.
void JobSubmitter::AnswerExisting(const SubmissionRef& submission, const KeyRecord& known) {
  Outcome outcome;
  v1::Job& answered = *submission->response->mutable_job();
  if (StatusOr<v1::Job> job = reader_.FindJob(*submission->tenant, known.job_id); job.ok()) {
    answered = *std::move(job);
  } else {
    answered.set_id(known.job_id);
    answered.set_state(known.state);
    answered.set_array_id(known.array_id);
    // The row may have been removed by age; failing to read the store is an error.
    outcome = absl::IsNotFound(job.status()) ? Outcome() : StoreRefusal(job.status());
  }
  CoreScope scope(monitor_);
  Answer(scope, submission, std::move(outcome));
}

// Releases what was reserved for jobs that were not made, lets duplicates go on, and answers.
void JobSubmitter::Answer(CoreScope& scope, const SubmissionRef& submission, Outcome outcome) {
  table_.submissions.erase(submission.get());
  if (const std::shared_ptr<SubmitBatch> batch = std::exchange(submission->batch, nullptr)) {
    batch->GoWithout(1);
  }
  Tenant& tenant = *submission->tenant;
  table_.waiting -= submission->count;
  submission->count = 0;
  submission->queued.Release();
  submission->disk_bytes.Release();
  if (submission->holds_key) {
    if (const auto pending = tenant.pending_keys.find(submission->key); pending != tenant.pending_keys.end()) {
      const auto duplicates = std::move(pending->second);
      tenant.pending_keys.erase(pending);
      for (const auto& duplicate : duplicates) {
        duplicate(scope);
      }
    }
  }
  if (!outcome.ok()) {
    options_.observer->On(events::Rejected{tenant.name, "submit", outcome.status});
    outcome = LaterIfUnavailable(std::move(outcome));
  }
  scope.Defer([submission, outcome = std::move(outcome)] { submission->done(outcome); });
}

}  // namespace hpvm::server
