// SPDX-License-Identifier: Apache-2.0
#include "server/core/jobs/job_submitter.h"

#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "server/core/state/bindings.h"
#include "server/core/state/iteration.h"
#include "server/core/state/request_options.h"
#include "server/jobs/rows/arrays.h"
#include "server/jobs/rows/retry.h"
#include "server/jobs/stored_request.h"

namespace hpvm::server {
namespace {

// Limit on the dependencies of all elements of an array together.
constexpr uint64_t kWaitsMax = 100'000;

constexpr size_t kNameBytesMax = 255;
constexpr int kHostWordsMax = 16;

Status CheckHostNeeds(const v1::HostNeeds& needs, bool is_shared) {
  if (!is_shared && (needs.words_size() > 0 || !needs.host().empty() || needs.memory_bytes() > 0)) {
    return FailedPrecondition("The job names what its host must have, but the server is not part of a cluster.");
  }
  if (needs.words_size() > kHostWordsMax) {
    return InvalidArgument("The job needs " + std::to_string(needs.words_size()) + " words of its host; the limit is " +
                           std::to_string(kHostWordsMax) + ".");
  }
  for (const std::string& word : needs.words()) {
    if (word.empty() || word.size() > kNameBytesMax) {
      return InvalidArgument("A word that the job needs of its host has " + std::to_string(word.size()) +
                             " bytes; it may have 1 to 255.");
    }
  }
  return absl::OkStatus();
}

Status CheckShape(const v1::SubmitRequest& request, const Config& config, bool is_shared) {
  if (request.name().size() > kNameBytesMax) {
    return InvalidArgument("The job's name has " + std::to_string(request.name().size()) + " bytes; the limit is 255.");
  }
  if (request.retry().attempts_max() > kAttemptsMax) {
    return InvalidArgument("The retry policy's attempts (" + std::to_string(request.retry().attempts_max()) +
                           ") are more than the limit (" + std::to_string(kAttemptsMax) + ").");
  }
  if (static_cast<uint64_t>(request.after_size()) > config.jobs_dependencies_max) {
    return ResourceExhausted("The job comes after " + std::to_string(request.after_size()) + " others; the limit is " +
                             std::to_string(config.jobs_dependencies_max) + ".");
  }
  HPVMD_RETURN_IF_ERROR(CheckHostNeeds(request.host_needs(), is_shared));
  for (const v1::JobDependency& dependency : request.after()) {
    if (!v1::JobDependency::Condition_IsValid(dependency.condition())) {
      return InvalidArgument("The condition (" + std::to_string(dependency.condition()) + ") of job \"" +
                             dependency.job_id().substr(0, 80) + "\" is not known.");
    }
  }
  return absl::OkStatus();
}

Status CheckInputs(const v1::GraphSummary& summary, const v1::SubmitRequest& request) {
  std::map<std::string, int> bound;
  for (const v1::InputBinding& input : request.inputs()) {
    if (++bound[input.name()] > 1) {
      return InvalidArgument("Input \"" + input.name() + "\" is bound twice.");
    }
  }
  for (const v1::PortSummary& port : summary.inputs()) {
    if (bound.erase(port.name()) == 0) {
      return InvalidArgument("Input \"" + port.name() + "\" of the graph is not bound.");
    }
  }
  if (!bound.empty()) {
    return InvalidArgument("The graph has no input \"" + bound.begin()->first.substr(0, 80) + "\".");
  }
  return absl::OkStatus();
}

v1::ElementType PortType(const v1::GraphSummary& summary, const std::string& name) {
  for (const v1::PortSummary& port : summary.inputs()) {
    if (port.name() == name) {
      return port.type();
    }
  }
  return v1::ELEMENT_TYPE_UNSPECIFIED;
}

bool WritesBuffers(const v1::SubmitRequest& request) {
  return std::any_of(request.outputs().begin(), request.outputs().end(),
                     [](const v1::OutputBinding& output) { return output.has_buffer_id() || output.has_new_buffer(); });
}

bool IsInPlace(const v1::SubmitRequest& request) {
  return std::any_of(request.outputs().begin(), request.outputs().end(), [&](const v1::OutputBinding& output) {
    return std::any_of(request.inputs().begin(), request.inputs().end(), [&](const v1::InputBinding& input) {
      return output.has_buffer_id() && input.has_buffer() && input.buffer().buffer_id() == output.buffer_id();
    });
  });
}

}  // namespace

Outcome JobSubmitter::AdmitJobs(Tenant& tenant, uint64_t count, scheduler::Lease* queued) {
  Status status = shutdown_.RefuseWork();
  status = status.ok() ? table_.RefuseWithoutRoom() : status;
  if (status.ok() && table_.lease == 0) {
    status = Unavailable("The server has not read its stored jobs yet.");
  }
  const uint64_t all_max = config_->jobs_queued_max;
  if (status.ok() && (count > all_max || table_.waiting > all_max - count)) {
    status = ResourceExhausted("The server's queue is full (" + std::to_string(table_.waiting) +
                               " jobs wait; the limit is " + std::to_string(all_max) + ").");
  }
  if (status.ok()) {
    if (const auto refusal = tenant.account.Take(scheduler::Resource::kQueuedJobs, count, queued)) {
      status = ToStatus(*refusal);
    }
  }
  if (!status.ok()) {
    options_.observer->On(events::Rejected{tenant.name, "submit", status});
    return Later(std::move(status), kQueueFullPause);
  }
  table_.waiting += count;
  return Outcome();
}

// Returns true when another request with this key is in progress: after its answer this request is tried again.
bool JobSubmitter::JoinPending(Tenant& tenant, const std::string& key, std::function<void()> again) {
  if (key.empty()) {
    return false;
  }
  const auto [pending, first] = tenant.pending_keys.try_emplace(key);
  if (!first) {
    pending->second.push_back([this, name = tenant.name, again = std::move(again)](CoreScope& scope) {
      monitor_.Read(scope, name, [again] {
        again();
        return FairQueue::Step::kDone;
      });
    });
  }
  return !first;
}

void JobSubmitter::Submit(const TenantRef& tenant, const v1::SubmitRequest& request, v1::SubmitResponse* response,
                          Done done, std::string who) {
  Submit({.tenant = tenant,
          .request = &request,
          .response = response,
          .done = std::move(done),
          .batch = nullptr,
          .who = std::move(who)});
}

void JobSubmitter::Submit(Entry entry) {
  if (const Outcome refused = Examine(entry); !refused.ok()) {
    entry.done(refused);
    return;
  }
  CoreScope scope(monitor_);
  Enter(scope, std::move(entry));
}

// Checks the request itself, and looks up its key. Called without the mutex; reads the store.
Outcome JobSubmitter::Examine(Entry& entry) {
  const v1::SubmitRequest& request = *entry.request;
  const std::shared_ptr<const Config> config = config_.Get();
  Status valid = CheckRequestOptions(request.options(), /*key_honoured=*/true);
  valid = valid.ok() ? CheckShape(request, *config, options_.shared != nullptr) : valid;
  if (valid.ok() && request.has_array()) {
    const StatusOr<uint64_t> elements = CountElements(request.array(), config->jobs_array_max);
    valid = elements.status();
    entry.count = elements.value_or(0);
    if (const uint64_t waits = entry.count * static_cast<uint64_t>(request.after_size());
        valid.ok() && waits > kWaitsMax) {
      valid = ResourceExhausted("The " + std::to_string(entry.count) + " elements come after " +
                                std::to_string(request.after_size()) + " jobs each: " + std::to_string(waits) +
                                " dependencies in all, of at most " + std::to_string(kWaitsMax) +
                                ". Let them come after one job that comes after all of these.");
    }
  }
  if (!valid.ok()) {
    options_.observer->On(events::Rejected{entry.tenant->name, "submit", valid});
    return valid;
  }
  if (const std::string& key = request.options().idempotency_key(); !key.empty()) {
    StatusOr<KeyRecord> found = options_.jobs->database().FindKey(entry.tenant->name, key);
    if (!found.ok() && found.status().code() != absl::StatusCode::kNotFound) {
      return StoreRefusal(found.status());
    }
    if (found.ok()) {
      entry.known = *std::move(found);
    }
  }
  return {};
}

// Begins a submission, which is answered from then on. Returns false when the request is refused, or waits for another
// request with its key; then its rows are not part of the batch.
bool JobSubmitter::Enter(CoreScope& scope, Entry entry) {
  const std::string& key = entry.request->options().idempotency_key();
  // The job of a known key is on disk: no request has to wait for another.
  const std::string pending_key = entry.known.has_value() ? "" : key;
  if (!pending_key.empty()) {
    Entry alone = entry;
    alone.batch = nullptr;
    if (JoinPending(*entry.tenant, pending_key, [this, alone = std::move(alone)] { Submit(alone); })) {
      return false;
    }
  }
  Outcome admitted;
  scheduler::Lease queued;
  if (!entry.known.has_value()) {
    admitted = AdmitJobs(*entry.tenant, entry.count, &queued);
  }
  if (!admitted.ok()) {
    entry.tenant->pending_keys.erase(pending_key);  // No duplicate waits yet, because the mutex was held since.
    scope.Defer([done = std::move(entry.done), admitted] { done(admitted); });
    return false;
  }
  auto submission = std::make_shared<Submission>();
  submission->tenant = entry.tenant;
  submission->request = entry.request;
  submission->response = entry.response;
  submission->done = std::move(entry.done);
  submission->who = std::move(entry.who);
  submission->is_brief = entry.is_brief;
  submission->batch = std::move(entry.batch);
  submission->key = key;
  submission->holds_key = !pending_key.empty();
  submission->count = entry.known.has_value() ? 0 : entry.count;
  submission->queued = std::move(queued);
  submission->known = std::move(entry.known);
  submission->received = options_.clock->Now();
  table_.submissions.insert(submission.get());
  BeginSubmission(scope, submission);
  return true;
}

void JobSubmitter::BeginSubmission(CoreScope& scope, const SubmissionRef& submission) {
  const v1::SubmitRequest& request = *submission->request;
  // For a known key only the hashes of the document count: it need not have been uploaded again.
  if (!submission->known.has_value() || request.has_handle()) {
    StatusOr<PreparationRef> preparation = PreparationOf(scope, *submission->tenant, request);
    if (!preparation.ok()) {
      Answer(scope, submission, preparation.status());
      return;
    }
    submission->preparation = *std::move(preparation);
  }
  if (!submission->known.has_value() && !submission->preparation->validated) {
    if (Outcome refused = quotas_.AdmitCompile(*submission->tenant, *submission->preparation); !refused.ok()) {
      Answer(scope, submission, std::move(refused));
      return;
    }
  }
  const auto go_on = [this, submission](CoreScope& inner, const Outcome& outcome) {
    Outcome accepted = outcome;
    if (accepted.ok()) {
      accepted = Accept(inner, submission);
    }
    if (!accepted.ok()) {
      Answer(inner, submission, std::move(accepted));
    }
  };
  if (submission->known.has_value() || submission->preparation->validated) {
    go_on(scope, Outcome());
  } else {
    graphs_.WithPrepared(scope, submission->tenant, submission->preparation, go_on);
  }
}

StatusOr<PreparationRef> JobSubmitter::PreparationOf(CoreScope& scope, Tenant& tenant,
                                                     const v1::SubmitRequest& request) {
  if (request.graph_case() == v1::SubmitRequest::kDocument) {
    return graphs_.FindPreparation(scope, tenant, request.document().graph_sha256(), /*check=*/false,
                                   request.document().modules());
  }
  return graphs_.UseHandle(tenant, request.handle());
}

// The graph is valid: checks its bindings, and sends everything that the job will need to disk.
Status JobSubmitter::Accept(CoreScope& scope, const SubmissionRef& submission) {
  HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("core.submit.accept"));
  const v1::SubmitRequest& request = *submission->request;
  Tenant& tenant = *submission->tenant;
  if (!submission->known.has_value()) {
    HPVMD_RETURN_IF_ERROR(CheckInputs(submission->preparation->summary, request));
    HPVMD_RETURN_IF_ERROR(CheckArrayUse(request, submission->preparation->summary));
  }
  HPVMD_RETURN_IF_ERROR(Normalise(*submission));
  if (!submission->known.has_value()) {
    uint64_t bytes = request.ByteSizeLong();
    for (const BlobInput& blob : submission->blobs) {
      bytes += blob.source.fd_bytes;
    }
    HPVMD_RETURN_IF_ERROR(quotas_.ReserveBytes(tenant, bytes, "The job", &submission->disk_bytes));
    if (auto blob = BlobOfRequest(submission->stored.request(), options_.request_row_bytes_max)) {
      submission->blobs.push_back(*std::move(blob));
      submission->puts_request = true;
    }
  }
  Put(scope, submission);
  return absl::OkStatus();
}

// Fills `stored`, `row` and `blobs`.
Status JobSubmitter::Normalise(Submission& submission) {
  const v1::SubmitRequest& request = *submission.request;
  *submission.stored.mutable_request() = request;
  submission.stored.mutable_request()->mutable_options()->clear_idempotency_key();
  if (submission.preparation != nullptr) {
    StoreGraph(submission);
  }
  // The inputs of the first element, for the checks.
  v1::SubmitRequest element;
  if (request.has_array()) {
    *element.mutable_inputs() = request.inputs();
    for (v1::InputBinding& input : *element.mutable_inputs()) {
      if (input.array_index()) {
        input.mutable_tensor()->set_type(v1::ELEMENT_TYPE_U8);  // Any scalar: CheckArrayUse has checked the real one.
        input.mutable_tensor()->set_data(std::string(1, 0));
      }
    }
  }
  Execution run;
  run.sending = std::make_shared<Sending>();
  HPVMD_RETURN_IF_ERROR(runs_.SetOptions(run, request.options(), request.repeat()));
  HPVMD_RETURN_IF_ERROR(SetIteration(request, &run.sending->input.options));
  const auto& inputs = request.has_array() ? element.inputs() : request.inputs();
  // The output buffers of a known key's request may be gone.
  const auto& outputs = submission.known.has_value() ? element.outputs() : request.outputs();
  HPVMD_RETURN_IF_ERROR(runs_.ResolveBindings(*submission.tenant, *run.sending, inputs, outputs));
  StoreInputs(submission, run);
  if (!submission.known.has_value()) {
    FillRow(submission, run);
  }
  return absl::OkStatus();
}

// Stores a document instead of a handle, and adds the bytes of document and modules.
void JobSubmitter::StoreGraph(Submission& submission) {
  const Preparation& preparation = *submission.preparation;
  v1::GraphReference& graph = *submission.stored.mutable_request()->mutable_document();
  graph.set_graph_sha256(ToHex(preparation.document->hash));
  graph.clear_modules();
  const auto add = [&](const BlobRef& blob) {
    BlobInput& input = submission.blobs.emplace_back();
    input.source.fd = blob->fd.get();
    input.source.fd_bytes = blob->size_bytes;
    input.source.known_hash = &blob->hash;
    input.keeps = blob;
  };
  add(preparation.document);
  for (const NamedBlob& module : preparation.modules) {
    v1::ModuleBinding& binding = *graph.add_modules();
    binding.set_name(module.name);
    binding.set_sha256(ToHex(module.blob->hash));
    add(module.blob);
  }
  submission.stored.set_check(preparation.check);
}

void JobSubmitter::StoreInputs(Submission& submission, const Execution& run) {
  const v1::SubmitRequest& request = *submission.request;
  size_t pin = 0;  // Index into the pins of the inputs that have memory, in order.
  for (int i = 0; i < request.inputs_size(); ++i) {
    const v1::InputBinding& binding = request.inputs(i);
    if (binding.has_tensor()) {
      continue;
    }
    internal::StoredInput& stored = *submission.stored.add_inputs();
    stored.set_index(static_cast<uint32_t>(i));
    if (binding.array_index()) {
      stored.set_type(submission.preparation == nullptr
                          ? 0
                          : static_cast<uint32_t>(PortType(submission.preparation->summary, binding.name())));
      continue;
    }
    const supervisor::InputTensor& from = run.sending->input.inputs[static_cast<size_t>(i)];
    stored.set_type(static_cast<uint32_t>(from.type));
    stored.mutable_shape()->Add(from.shape.begin(), from.shape.end());
    if (from.memory.has_value()) {
      stored.set_size_bytes(from.memory->bytes);
      BlobInput& input = submission.blobs.emplace_back();
      input.source.fd = from.memory->fd;
      input.source.fd_bytes = from.memory->bytes;
      input.keeps = run.sending->pins[pin++];
    }
  }
}

void JobSubmitter::FillRow(Submission& submission, const Execution& run) {
  const v1::SubmitRequest& request = *submission.request;
  StoredJob& row = submission.row;
  row.set_tenant(submission.tenant->name);
  row.set_in_place(IsInPlace(request));
  row.set_bound_to_host(WritesBuffers(request));
  row.set_array_running_max(request.array().running_max());
  row.set_array_size(request.has_array() ? submission.count : 0);
  v1::Job& job = *row.mutable_job();
  *row.mutable_needs() = submission.preparation->needs;
  job.set_name(request.name());
  job.set_graph_sha256(submission.stored.request().document().graph_sha256());
  job.set_graph_name(submission.preparation->summary.name());
  *job.mutable_labels() = request.options().labels();
  job.set_priority(run.priority);
  job.set_repeat(run.sending->input.options.repeat());
  // Counted from the receipt, as the deadline is: validating the graph and storing its parts took a while.
  job.set_created_unix_ns(options_.clock->WallNs() - (options_.clock->Now() - submission.received).count());
  job.set_deadline_unix_ns(job.created_unix_ns() + (run.deadline - run.received).count());
  *job.mutable_math() = submission.preparation->summary.math();
  *job.mutable_defects() = submission.preparation->summary.defects();
  *job.mutable_prepare() = TakeTiming(*submission.preparation);
  const bool has_trace = !request.options().traceparent().empty() || submission.batch == nullptr;
  job.set_traceparent(has_trace ? request.options().traceparent() : submission.batch->traceparent());
  job.set_attempts_max(request.retry().attempts_max() != 0 ? request.retry().attempts_max()
                                                           : static_cast<uint32_t>(config_->jobs_attempts_default));
  *job.mutable_after() = request.after();
  if (request.has_host_needs()) {
    *job.mutable_host_needs() = request.host_needs();
  }
  row.mutable_asked_limits()->CopyFrom(request.limits());
  *job.mutable_limits() = JobLifecycle::LimitsFor(*submission.tenant, request.limits());
  if (request.held()) {
    job.mutable_hold()->set_by(submission.who);
    job.mutable_hold()->set_since_unix_ns(job.created_unix_ns());
  }
}

// The caller holds the mutex, or is the only one to have the submission.
void JobSubmitter::Put(CoreScope& scope, const SubmissionRef& submission) {
  if (shutdown_.closed) {
    Answer(scope, submission, shutdown_.RefuseWork());
    return;
  }
  const bool has_buffers = std::any_of(submission->stored.inputs().begin(), submission->stored.inputs().end(),
                                       [](const internal::StoredInput& input) { return input.size_bytes() > 0; });
  if (submission->known.has_value() && !has_buffers) {
    scope.Defer([this, submission] { OnBlobs(submission, std::vector<PinnedBlob>()); });
    return;
  }
  std::vector<PinnedBlob> held;
  if (submission->preparation != nullptr) {
    held = submission->preparation->stored;
    submission->puts_graph = held.empty();
    submission->blobs.erase(submission->blobs.begin(), submission->blobs.begin() + static_cast<ptrdiff_t>(held.size()));
  }
  if (submission->blobs.empty()) {
    scope.Defer([this, submission, held = std::move(held)] { OnBlobs(submission, held); });
    return;
  }
  options_.jobs->PutBlobs(submission->tenant->name, std::exchange(submission->blobs, {}),
                          [this, submission, held = std::move(held)](StatusOr<std::vector<PinnedBlob>> blobs) {
                            if (blobs.ok()) {
                              blobs->insert(blobs->begin(), held.begin(), held.end());
                            }
                            OnBlobs(submission, std::move(blobs));
                          });
}

}  // namespace hpvm::server
