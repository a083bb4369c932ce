// SPDX-License-Identifier: Apache-2.0
// Jobs: runs that outlive the call that made them.
#include <charconv>
#include <utility>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "server/core.h"
#include "server/log.h"
#include "server/object_id.h"
#include "server/request_options.h"
#include "server/run_log.h"

namespace hpvm {
namespace {

constexpr size_t kPlacementsMax = 1'000;
constexpr uint32_t kPageMax = 1'000, kPageDefault = 100;

// Of everything the idempotency key stands for: the trace and the key itself may differ between attempts.
Sha256 HashOfRequest(const v1::SubmitRequest& request) {
  v1::SubmitRequest plain = request;
  plain.mutable_options()->clear_idempotency_key();
  plain.mutable_options()->clear_traceparent();
  plain.mutable_options()->clear_tracestate();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);   // Maps in order of their keys.
    plain.SerializeToCodedStream(&coded);
  }
  return HashOf(bytes);
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

void FillTiming(const RunOutcome& outcome, v1::RunTiming* timing) {
  timing->set_queue_ns(static_cast<uint64_t>(outcome.queue.count()));
  timing->set_bind_ns(static_cast<uint64_t>(outcome.reply.bind.count()));
  timing->set_copy_in_ns(static_cast<uint64_t>(outcome.reply.copy_in.count()));
  timing->set_run_ns(static_cast<uint64_t>(outcome.reply.run.count()));
  timing->set_copy_out_ns(static_cast<uint64_t>(outcome.reply.copy_out.count()));
  timing->set_total_ns(static_cast<uint64_t>(outcome.total.count()));
}

v1::JobState EndState(const Outcome& outcome, bool cancel_requested, v1::JobState from) {
  if (outcome.ok()) {
    return v1::JOB_STATE_SUCCEEDED;
  }
  if (cancel_requested && outcome.status.code() == absl::StatusCode::kCancelled) {
    return v1::JOB_STATE_CANCELLED;
  }
  if (outcome.status.code() == absl::StatusCode::kDeadlineExceeded && from != v1::JOB_STATE_RUNNING) {
    return v1::JOB_STATE_EXPIRED;
  }
  return v1::JOB_STATE_FAILED;
}

v1::JobEvent PhaseEvent(v1::JobEvent::Phase phase, Duration duration) {
  v1::JobEvent event;
  event.mutable_phase()->set_phase(phase);
  event.mutable_phase()->set_duration_ns(static_cast<uint64_t>(duration.count()));
  return event;
}

Status NoSuchJob(std::string_view id) { return NotFound("There is no job \"" + std::string(id.substr(0, 80)) + "\"."); }

}  // namespace

// One Submit until its answer.
struct Core::Submission {
  TenantRef tenant;
  std::shared_ptr<const v1::SubmitRequest> request;
  Sha256 hash;
  v1::SubmitResponse* response = nullptr;   // The caller's; until `done`.
  std::function<void(const Outcome&)> done;
  PreparationRef preparation;
  std::string job_id;
};

void Core::Submit(const TenantRef& tenant, std::shared_ptr<const v1::SubmitRequest> request,
                  v1::SubmitResponse* response, std::function<void(const Outcome&)> done) {
  const Sha256 hash = HashOfRequest(*request);
  const std::string& key = request->options().idempotency_key();
  CoreScope scope(*this);
  if (const Status valid = CheckRequestOptions(request->options(), /*key_honoured=*/true); !valid.ok()) {
    scope.Defer([done, valid] { done(valid); });
    return;
  }
  if (const JobRecord* known = key.empty() ? nullptr : options_.jobs->FindByKey(tenant->name, key)) {
    Outcome outcome;
    if (known->request_hash == hash) {
      *response->mutable_job() = known->job;
      response->set_existed(true);
    } else {
      outcome = AlreadyExists("The idempotency key \"" + key + "\" was used with another request, for job " +
                              known->job.id() + ".");
      outcome.detail.emplace().set_job_id(known->job.id());
    }
    scope.Defer([done, outcome] { done(outcome); });
    return;
  }
  if (!key.empty()) {
    const auto [pending, first] = tenant->pending_keys.try_emplace(key);
    if (!first) {
      // The first one's answer decides; then this one asks again.
      pending->second.push_back([this, tenant, request, response, done](CoreScope& inner) {
        inner.Defer([=, this] { Submit(tenant, request, response, done); });
      });
      return;
    }
  }
  ++submits_;
  auto submission =
      std::make_shared<Submission>(Submission{tenant, request, hash, response, std::move(done), nullptr, ""});
  StatusOr<PreparationRef> preparation = PreparationOf(scope, *tenant, *request);
  if (!preparation.ok()) {
    Answer(scope, submission, preparation.status());
    return;
  }
  submission->preparation = *preparation;
  if ((*preparation)->validated) {
    Accept(scope, submission);
    return;
  }
  WithPrepared(scope, tenant, *preparation, [this, submission](CoreScope& inner, const Outcome& outcome) {
    if (outcome.ok()) {
      Accept(inner, submission);
    } else {
      Answer(inner, submission, outcome);
    }
  });
}

StatusOr<PreparationRef> Core::PreparationOf(CoreScope& scope, Tenant& tenant, const v1::SubmitRequest& request) {
  HPVMD_RETURN_IF_ERROR(RefuseWhenDraining());
  if (request.name().size() > 255) {
    return InvalidArgument("The job's name has " + std::to_string(request.name().size()) + " bytes; the limit is 255.");
  }
  if (request.graph_case() == v1::SubmitRequest::kDocument) {
    return FindPreparation(scope, tenant, request.document().graph_sha256(), /*check=*/false,
                           request.document().modules());
  }
  const auto handle = tenant.handles.find(request.handle());
  if (handle == tenant.handles.end()) {
    return NotFound("There is no prepared graph \"" + request.handle().substr(0, 80) + "\".");
  }
  return handle->second;
}

// Frees the key, if the job did not take it, and lets duplicates go on.
void Core::Answer(CoreScope& scope, const std::shared_ptr<Submission>& submission, Outcome outcome) {
  --submits_;
  Tenant& tenant = *submission->tenant;
  if (const auto pending = tenant.pending_keys.find(submission->request->options().idempotency_key());
      pending != tenant.pending_keys.end()) {
    const auto duplicates = std::move(pending->second);
    tenant.pending_keys.erase(pending);
    for (const auto& duplicate : duplicates) {
      duplicate(scope);
    }
  }
  scope.Defer([submission, outcome = std::move(outcome)] { submission->done(outcome); });
}

void Core::Accept(CoreScope& scope, const std::shared_ptr<Submission>& submission) {
  if (Status recorded = Record(scope, *submission); !recorded.ok()) {
    Answer(scope, submission, std::move(recorded));
    return;
  }
  scope.Defer([this, submission] {
    options_.jobs->WhenDurable([this, submission](const Status& durable) { StartJob(submission, durable); });
  });
}

Status Core::Record(CoreScope& scope, Submission& submission) {
  const v1::SubmitRequest& request = *submission.request;
  Tenant& tenant = *submission.tenant;
  auto live = std::make_shared<LiveJob>();
  live->op = std::make_shared<RunOp>();
  RunOp& op = *live->op;
  op.tenant = submission.tenant;
  op.preparation = submission.preparation;
  op.keeps = submission.request;
  op.keep_outputs = true;
  op.input.symbols.insert(request.symbols().begin(), request.symbols().end());
  op.input.node_records_max = kPlacementsMax;
  op.input.log = true;
  HPVMD_RETURN_IF_ERROR(SetOptions(op, request.options(), request.repeat()));
  HPVMD_RETURN_IF_ERROR(CheckInputs(submission.preparation->summary, request));
  HPVMD_RETURN_IF_ERROR(ResolveBindings(tenant, op, request.inputs(), request.outputs()));
  live->reserved_bytes = request.ByteSizeLong();
  HPVMD_RETURN_IF_ERROR(tenant.buffers.Reserve(live->reserved_bytes, "The job's request"));

  JobRecord record;
  record.tenant = tenant.name;
  record.idempotency_key = request.options().idempotency_key();
  record.request_hash = submission.hash;
  record.request = submission.request;
  v1::Job& job = record.job;
  job.set_id(NewObjectId("job", *options_.rng));
  job.set_name(request.name());
  job.set_state(v1::JOB_STATE_ACCEPTED);
  job.set_graph_sha256(ToHex(submission.preparation->document->hash));
  job.set_graph_name(submission.preparation->summary.name());
  *job.mutable_labels() = request.options().labels();
  job.set_priority(op.priority);
  job.set_repeat(op.input.repeat);
  job.set_created_unix_ns(options_.clock->WallNs());
  job.set_deadline_unix_ns(job.created_unix_ns() + (op.deadline - op.received).count());
  *job.mutable_math() = submission.preparation->summary.math();
  *job.mutable_prepare() = TakeTiming(*submission.preparation);
  job.set_traceparent(request.options().traceparent());
  submission.job_id = job.id();
  v1::JobEvent event;
  *event.mutable_job() = job;
  if (Status inserted = options_.jobs->Insert(std::move(record)); !inserted.ok()) {
    tenant.buffers.Unreserve(live->reserved_bytes);
    return inserted;
  }
  AddEvent(scope, *live, std::move(event));
  tenant.jobs.emplace(submission.job_id, std::move(live));
  return absl::OkStatus();
}

void Core::StartJob(const std::shared_ptr<Submission>& submission, const Status& durable) {
  CoreScope scope(*this);
  const TenantRef& tenant = submission->tenant;
  const std::string& id = submission->job_id;
  const std::shared_ptr<LiveJob> live = tenant->jobs.at(id);
  if (!durable.ok()) {
    // Not acknowledged, so it may not run.
    live->op->done = nullptr;
    ChangeJob(scope, *tenant, id, v1::JOB_STATE_ACCEPTED, [&](v1::Job& job) {
      job.set_state(v1::JOB_STATE_FAILED);
      *job.mutable_error() = ToMessage(Outcome(durable));
    }).IgnoreError();
    Answer(scope, submission, While(durable, "storing the job"));
    return;
  }
  ChangeJob(scope, *tenant, id, v1::JOB_STATE_ACCEPTED, [](v1::Job& job) {
    job.set_state(v1::JOB_STATE_QUEUED);
  }).IgnoreError();
  *submission->response->mutable_job() = options_.jobs->Find(tenant->name, id)->job;
  Answer(scope, submission, Outcome());
  const std::shared_ptr<RunOp> op = live->op;
  op->on_started = [this, tenant, id](CoreScope& inner) {
    ChangeJob(inner, *tenant, id, v1::JOB_STATE_QUEUED, [&](v1::Job& job) {
      job.set_state(v1::JOB_STATE_RUNNING);
      job.set_attempt(job.attempt() + 1);
      job.set_started_unix_ns(options_.clock->WallNs());
    }).IgnoreError();
  };
  op->done = [this, tenant, id](RunOutcome outcome) { OnJobDone(tenant, id, std::move(outcome)); };
  LogInfo("Job queued tenant=" + tenant->name + " job=" + id);
  Start(scope, op);
  if (live->cancel_requested) {
    StopRun(scope, op, Cancelled("The job was cancelled."));
  }
}

Status Core::ChangeJob(CoreScope& scope, Tenant& tenant, const std::string& id, v1::JobState from,
                       const std::function<void(v1::Job&)>& change) {
  HPVMD_RETURN_IF_ERROR(options_.jobs->Change(tenant.name, id, from, [&](JobRecord& record) { change(record.job); }));
  const auto live = tenant.jobs.find(id);
  const JobRecord* record = options_.jobs->Find(tenant.name, id);
  if (live != tenant.jobs.end() && record != nullptr) {
    v1::JobEvent event;
    *event.mutable_job() = record->job;
    AddEvent(scope, *live->second, std::move(event));
  }
  return absl::OkStatus();
}

void Core::AddEvent(CoreScope& scope, LiveJob& job, v1::JobEvent event) {
  job.events.Add(std::move(event), options_.clock->WallNs());
  for (const auto& [key, wake] : job.events.watchers()) {
    scope.Defer(wake);
  }
}

Status Core::KeepOutputs(Tenant& tenant, LiveJob& live, RunOutcome& outcome, v1::Job* job) {
  uint64_t bytes = 0;
  for (const RunOutput& output : outcome.outputs) {
    bytes += output.buffer_id.empty() ? output.bytes : 0;
  }
  HPVMD_RETURN_IF_ERROR(tenant.buffers.Reserve(bytes, "The job's outputs"));
  live.reserved_bytes += bytes;
  for (RunOutput& output : outcome.outputs) {
    v1::OutputValue& value = *job->add_outputs();
    value.set_name(output.name);
    if (!output.buffer_id.empty()) {
      v1::BufferView& view = *value.mutable_buffer();
      view.set_buffer_id(output.buffer_id);
      view.set_generation(output.generation);
      view.set_type(static_cast<v1::ElementType>(output.type));
      view.mutable_shape()->Add(output.shape.begin(), output.shape.end());
      continue;
    }
    v1::StoredOutput& header = *value.mutable_stored();
    header.set_type(static_cast<v1::ElementType>(output.type));
    header.mutable_shape()->Add(output.shape.begin(), output.shape.end());
    header.set_size_bytes(output.bytes);
    live.outputs[output.name] = {header, std::string(output.data.begin(), output.data.end()),
                                 std::move(output.segment)};
  }
  return absl::OkStatus();
}

void Core::OnJobDone(const TenantRef& tenant, const std::string& id, RunOutcome outcome) {
  CoreScope scope(*this);
  const auto found = tenant->jobs.find(id);
  const JobRecord* record = options_.jobs->Find(tenant->name, id);
  if (found == tenant->jobs.end() || record == nullptr) {
    return;
  }
  const std::shared_ptr<LiveJob> live = found->second;
  live->op.reset();   // And with it the memory of the inputs and the request.
  tenant->buffers.Unreserve(std::exchange(live->reserved_bytes, 0));
  v1::Job ended;
  if (outcome.outcome.ok()) {
    if (Status kept = KeepOutputs(*tenant, *live, outcome, &ended); !kept.ok()) {
      ended.clear_outputs();
      outcome.outcome = std::move(kept);
    }
  }
  if (!IsEmpty(outcome.reply.log)) {
    KeepLog(*tenant, *live, outcome.reply.log);
  }
  for (const ExecutorNodeRecord& node : outcome.reply.nodes) {
    v1::JobEvent event;
    v1::NodePlacement& placement = *event.mutable_placement();
    placement.set_node(node.path);
    placement.set_device(node.device);
    placement.set_start_ns(static_cast<uint64_t>(node.start_ns));
    placement.set_end_ns(static_cast<uint64_t>(node.end_ns));
    placement.set_math(node.fast_math ? "fast" : "exact");
    AddEvent(scope, *live, std::move(event));
  }
  if (outcome.outcome.ok()) {
    AddEvent(scope, *live, PhaseEvent(v1::JobEvent::PHASE_BIND, outcome.reply.bind));
    AddEvent(scope, *live, PhaseEvent(v1::JobEvent::PHASE_COPY_IN, outcome.reply.copy_in));
    AddEvent(scope, *live, PhaseEvent(v1::JobEvent::PHASE_RUN, outcome.reply.run));
    AddEvent(scope, *live, PhaseEvent(v1::JobEvent::PHASE_COPY_OUT, outcome.reply.copy_out));
    v1::JobEvent progress;
    progress.mutable_progress()->set_nodes_run(outcome.reply.nodes_run);
    progress.mutable_progress()->set_nodes_total(outcome.reply.nodes_run);
    AddEvent(scope, *live, std::move(progress));
  }
  const v1::JobState from = record->job.state();
  const v1::JobState to = EndState(outcome.outcome, live->cancel_requested, from);
  const Status changed = ChangeJob(scope, *tenant, id, from, [&](v1::Job& job) {
    job.set_state(to);
    job.set_ended_unix_ns(options_.clock->WallNs());
    job.set_nodes_run(outcome.reply.nodes_run);
    job.set_nodes_total(outcome.reply.nodes_run);
    *job.mutable_outputs() = ended.outputs();
    FillTiming(outcome, job.mutable_timing());
    if (!outcome.outcome.ok()) {
      if (!outcome.outcome.detail.has_value()) {
        outcome.outcome.detail.emplace();
      }
      outcome.outcome.detail->set_job_id(id);
      *job.mutable_error() = ToMessage(outcome.outcome);
    }
  });
  LogInfo("Job ended tenant=" + tenant->name + " job=" + id + " state=" + v1::JobState_Name(to) +
          (outcome.outcome.ok() ? "" : ": " + Message(outcome.outcome.status)) +
          (changed.ok() ? "" : Message(changed)));
}

void Core::KeepLog(Tenant& tenant, LiveJob& live, const ExecutorLog& log) {
  live.log = ToMessage(log);
  const uint64_t bytes = live.log.ByteSizeLong();
  if (tenant.buffers.Reserve(bytes, "The job's log").ok()) {
    live.reserved_bytes += bytes;
  } else {
    DropTexts(live.log);
  }
}

Status Core::GetJob(Tenant& tenant, std::string_view id, v1::Job* job) {
  CoreScope scope(*this);
  const JobRecord* record = options_.jobs->Find(tenant.name, id);
  if (record == nullptr) {
    return NoSuchJob(id);
  }
  *job = record->job;
  if (const auto live = tenant.jobs.find(std::string(id)); live != tenant.jobs.end() && IsTerminal(job->state())) {
    *job->mutable_log() = live->second->log;
  }
  return absl::OkStatus();
}

Status Core::ListJobs(Tenant& tenant, const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
  if (request.page_size() > kPageMax) {
    return InvalidArgument("The page size (" + std::to_string(request.page_size()) +
                           ") is larger than the limit (1000).");
  }
  const uint32_t page = request.page_size() == 0 ? kPageDefault : request.page_size();
  JobFilter filter;
  const std::string& token = request.page_token();
  if (!token.empty()) {
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), filter.before_sequence);
    if (error != std::errc() || end != token.data() + token.size()) {
      return InvalidArgument("The page token is not from this server.");
    }
  }
  for (const int state : request.states()) {
    filter.states.push_back(static_cast<v1::JobState>(state));
  }
  filter.labels.insert(request.labels().begin(), request.labels().end());
  filter.count_max = page + 1;   // One more tells whether there is another page.
  CoreScope scope(*this);
  const std::vector<const JobRecord*> found = options_.jobs->List(tenant.name, filter);
  for (size_t i = 0; i < found.size() && i < page; ++i) {
    v1::Job& job = *response->add_jobs();
    job = found[i]->job;
    job.clear_outputs();
  }
  if (found.size() > page) {
    response->set_next_page_token(std::to_string(found[page - 1]->sequence));
  }
  return absl::OkStatus();
}

Status Core::CancelJob(Tenant& tenant, std::string_view id, v1::Job* job) {
  CoreScope scope(*this);
  const JobRecord* record = options_.jobs->Find(tenant.name, id);
  const auto live = tenant.jobs.find(std::string(id));
  if (record == nullptr || live == tenant.jobs.end()) {
    return NoSuchJob(id);
  }
  if (!IsTerminal(record->job.state()) && !live->second->cancel_requested) {
    live->second->cancel_requested = true;
    HPVMD_RETURN_IF_ERROR(ChangeJob(scope, tenant, std::string(id), record->job.state(),
                                    [](v1::Job& changed) { changed.set_cancel_requested(true); }));
    if (live->second->op->id != 0) {
      StopRun(scope, std::shared_ptr<RunOp>(live->second->op), Cancelled("The job was cancelled."));
    }
  }
  *job = options_.jobs->Find(tenant.name, id)->job;
  return absl::OkStatus();
}

StatusOr<uint64_t> Core::WatchJob(Tenant& tenant, std::string_view id, JobEvents::Wake wake) {
  CoreScope scope(*this);
  const auto live = tenant.jobs.find(std::string(id));
  if (live == tenant.jobs.end()) {
    return NoSuchJob(id);
  }
  if (watchers_ >= options_.config.jobs_watchers_max) {
    return ResourceExhausted("As many jobs are watched as may be (" +
                             std::to_string(options_.config.jobs_watchers_max) + ").");
  }
  ++watchers_;
  return live->second->events.Watch(std::move(wake));
}

void Core::Unwatch(Tenant& tenant, std::string_view id, uint64_t key) {
  CoreScope scope(*this);
  --watchers_;
  if (const auto live = tenant.jobs.find(std::string(id)); live != tenant.jobs.end()) {
    live->second->events.Unwatch(key);
  }
}

StatusOr<Core::EventBatch> Core::ReadEvents(Tenant& tenant, std::string_view id, uint64_t after, size_t count_max) {
  CoreScope scope(*this);
  const JobRecord* record = options_.jobs->Find(tenant.name, id);
  const auto live = tenant.jobs.find(std::string(id));
  if (record == nullptr || live == tenant.jobs.end()) {
    return NoSuchJob(id);
  }
  EventBatch batch;
  batch.events = live->second->events.After(after, count_max);
  const uint64_t reached = batch.events.empty() ? after : batch.events.back().sequence();
  batch.last = IsTerminal(record->job.state()) && reached >= live->second->events.last_sequence();
  return batch;
}

StatusOr<Core::StoredBytes> Core::FindOutput(Tenant& tenant, std::string_view id, std::string_view name) {
  CoreScope scope(*this);
  const JobRecord* record = options_.jobs->Find(tenant.name, id);
  const auto live = tenant.jobs.find(std::string(id));
  if (record == nullptr || live == tenant.jobs.end()) {
    return NoSuchJob(id);
  }
  if (record->job.state() != v1::JOB_STATE_SUCCEEDED) {
    return FailedPrecondition("The job is " + v1::JobState_Name(record->job.state()) +
                              "; only a succeeded job has outputs.");
  }
  const auto kept = live->second->outputs.find(std::string(name));
  if (kept != live->second->outputs.end()) {
    return StoredBytes{kept->second.header, kept->second.bytes, kept->second.segment};
  }
  for (const v1::OutputValue& output : record->job.outputs()) {
    if (output.name() == name) {
      return FailedPrecondition("Output \"" + output.name() + "\" is in buffer " + output.buffer().buffer_id() +
                                "; read it there.");
    }
  }
  return NotFound("The job has no output \"" + std::string(name.substr(0, 80)) + "\".");
}

}  // namespace hpvm
