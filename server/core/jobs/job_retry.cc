// SPDX-License-Identifier: Apache-2.0
// RetryJob: submits the request of a finished job again, as a new job.
#include <utility>

#include "server/core/jobs/job_submitter.h"
#include "server/core/state/request_options.h"
#include "server/jobs/rows/arrays.h"
#include "server/jobs/rows/job_state_name.h"
#include "server/jobs/rows/request_hash.h"
#include "server/jobs/stored_request.h"

namespace hpvm::server {
namespace {

uint64_t BytesOf(const Submission& submission) {
  uint64_t bytes = submission.stored.request().ByteSizeLong();
  for (const internal::StoredBlob& blob : submission.row.blobs()) {
    bytes += blob.size_bytes();
  }
  return bytes;
}

}  // namespace

void JobSubmitter::RetryJob(const TenantRef& tenant, const v1::RetryJobRequest& request, v1::SubmitResponse* response,
                            Done done) {
  const std::string& key = request.options().idempotency_key();
  Outcome refused = CheckRequestOptions(request.options(), /*key_honoured=*/true);
  std::optional<KeyRecord> known;
  if (refused.ok() && !key.empty()) {
    StatusOr<KeyRecord> found = options_.jobs->database().FindKey(tenant->name, key);
    if (found.ok()) {
      known = *std::move(found);
    } else if (found.status().code() != absl::StatusCode::kNotFound) {
      refused = StoreRefusal(found.status());
    }
  }
  if (!refused.ok()) {
    done(refused);
    return;
  }
  auto submission = std::make_shared<Submission>();
  {
    CoreScope scope(monitor_);
    const std::string pending_key = known.has_value() ? "" : key;
    if (JoinPending(*tenant, pending_key,
                    [this, tenant, &request, response, done] { RetryJob(tenant, request, response, done); })) {
      return;
    }
    if (!known.has_value()) {
      refused = AdmitJobs(*tenant, 1, &submission->queued);
    }
    if (!refused.ok()) {
      tenant->pending_keys.erase(pending_key);  // No duplicate waits yet, because the mutex was held since.
      scope.Defer([done = std::move(done), refused] { done(refused); });
      return;
    }
    submission->tenant = tenant;
    submission->response = response;
    submission->done = std::move(done);
    submission->key = key;
    submission->holds_key = !pending_key.empty();
    submission->count = known.has_value() ? 0 : 1;
    submission->hash = HashOfRetry(request.job_id());
    submission->received = options_.clock->Now();
    table_.submissions.insert(submission.get());
  }
  if (known.has_value()) {
    AnswerKnown(submission, *known);
    return;
  }
  if (Status prepared = PrepareRetry(*submission, request); !prepared.ok()) {
    CoreScope scope(monitor_);
    Answer(scope, submission, std::move(prepared));
    return;
  }
  auto blob = BlobOfRequest(submission->stored.request(), options_.request_row_bytes_max);
  if (!blob.has_value()) {
    SettleDependencies(submission);
    return;
  }
  submission->puts_request = true;
  options_.jobs->PutBlobs(tenant->name, {*std::move(blob)}, [this, submission](StatusOr<std::vector<PinnedBlob>> put) {
    OnBlobs(submission, std::move(put));
  });
}

// Called without the mutex: reads the store.
Status JobSubmitter::PrepareRetry(Submission& submission, const v1::RetryJobRequest& request) {
  Tenant& tenant = *submission.tenant;
  const std::string& id = request.job_id();
  StatusOr<StoredJob> found = options_.jobs->database().Find(tenant.name, id);
  if (!found.ok()) {
    return NotFound("There is no job \"" + id.substr(0, 80) + "\".");
  }
  if (!IsTerminal(found->job().state())) {
    return FailedPrecondition("Job " + id + " is " + StateName(found->job().state()) +
                              "; only a job that has ended is tried again.");
  }
  StatusOr<StoredRequest> stored = ReadWholeRequest(options_.jobs->database(), options_.jobs->blobs(), tenant.name, id);
  if (absl::IsDataLoss(stored.status())) {
    return stored.status();
  }
  if (found->job().dropped() || !stored.ok()) {
    return FailedPrecondition("The request of job " + id + " was dropped to make room; submit the job anew.");
  }
  submission.stored = *std::move(stored);
  submission.stored.clear_request_sha256();  // The new job's request differs.
  submission.stored.clear_request_bytes();
  submission.stored.mutable_request()->clear_held();  // A retry is meant to run.
  const v1::Job& old = found->job();
  if (!old.array_id().empty()) {
    HPVMD_RETURN_IF_ERROR(TakeElement(submission.stored, old.array_index()));
  }
  v1::RequestOptions& options = *submission.stored.mutable_request()->mutable_options();
  if (request.options().deadline_ns() != 0) {
    options.set_deadline_ns(request.options().deadline_ns());
  }
  options.set_priority(request.options().priority() != 0 ? request.options().priority() : old.priority());
  for (const auto& [label, value] : request.options().labels()) {
    (*options.mutable_labels())[label] = value;
  }
  HPVMD_RETURN_IF_ERROR(CheckRequestOptions(options, /*key_honoured=*/true));
  // The dependencies of a job that has run were met; otherwise they are checked again.
  if (old.attempt() > 0) {
    submission.stored.mutable_request()->clear_after();
  }
  Execution run;
  run.sending = std::make_shared<Sending>();
  {
    CoreScope scope(monitor_);
    HPVMD_RETURN_IF_ERROR(runs_.SetOptions(run, options, old.repeat()));
  }
  StoredJob& row = submission.row;
  row.set_tenant(tenant.name);
  row.set_in_place(found->in_place());
  *row.mutable_needs() = found->needs();
  row.set_bound_to_host(found->bound_to_host());
  v1::Job& job = *row.mutable_job();
  job.set_name(old.name());
  if (old.has_host_needs()) {
    *job.mutable_host_needs() = old.host_needs();
  }
  job.set_graph_sha256(old.graph_sha256());
  job.set_graph_name(old.graph_name());
  *job.mutable_labels() = options.labels();
  job.set_priority(run.priority);
  job.set_repeat(run.sending->input.options.repeat());
  job.set_created_unix_ns(options_.clock->WallNs() - (options_.clock->Now() - submission.received).count());
  job.set_deadline_unix_ns(job.created_unix_ns() + (run.deadline - run.received).count());
  *job.mutable_math() = old.math();
  *job.mutable_defects() = old.defects();
  job.set_traceparent(request.options().traceparent());
  job.set_attempts_max(old.attempts_max());
  *job.mutable_after() = submission.stored.request().after();
  job.set_retry_of(id);
  row.mutable_asked_limits()->CopyFrom(submission.stored.request().limits());
  HPVMD_RETURN_IF_ERROR(PinBlobs(submission, *found));
  CoreScope scope(monitor_);
  *job.mutable_limits() = JobLifecycle::LimitsFor(tenant, row.asked_limits());
  return quotas_.ReserveBytes(tenant, BytesOf(submission), "The job", &submission.disk_bytes);
}

// Pins the graph, the modules and the inputs, which are stored already, until the new row names them.
Status JobSubmitter::PinBlobs(Submission& submission, const StoredJob& from) {
  std::map<std::string, uint64_t> needed;  // Sizes, by raw hash.
  const auto need = [&](const std::string& hex) {
    if (const std::optional<Sha256> hash = Sha256FromHex(hex)) {
      needed.emplace(Raw(*hash), 0);
    }
  };
  need(submission.stored.request().document().graph_sha256());
  for (const v1::ModuleBinding& module : submission.stored.request().document().modules()) {
    need(module.sha256());
  }
  for (const internal::StoredInput& input : submission.stored.inputs()) {
    if (!input.sha256().empty()) {
      needed.emplace(input.sha256(), input.size_bytes());
    }
  }
  for (const internal::StoredBlob& blob : from.blobs()) {
    const std::optional<Sha256> hash = Sha256FromRaw(blob.sha256());
    if (!needed.contains(blob.sha256()) || !hash.has_value()) {
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(const PinnedBlob pinned,
                           While(options_.jobs->blobs().Pin(submission.tenant->name, *hash, blob.size_bytes()),
                                 "finding the stored data of job " + from.job().id()));
    submission.pins.push_back(pinned.pin);
    *submission.row.add_blobs() = blob;
    needed.erase(blob.sha256());
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
