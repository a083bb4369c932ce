// SPDX-License-Identifier: Apache-2.0
// Client's calls about jobs.
#include <algorithm>
#include <utility>

#include "client/connection.h"
#include "client/status/retry.h"

namespace hpvm {

CallOptions WithKey(CallOptions call) {
  if (call.request.idempotency_key().empty()) {
    call.request.set_idempotency_key(NewIdempotencyKey());
  }
  return call;
}

v1::SubmitRequest RequestOf(const SubmitOptions& options) {
  v1::SubmitRequest request;
  request.set_name(options.name);
  options.repetition.Put(&request);
  request.mutable_symbols()->insert(options.symbols.begin(), options.symbols.end());
  request.mutable_after()->Assign(options.after.begin(), options.after.end());
  request.mutable_retry()->set_attempts_max(options.attempts_max);
  if (options.array.has_value()) {
    *request.mutable_array() = *options.array;
  }
  request.set_held(options.held);
  if (options.limits.ByteSizeLong() > 0) {
    *request.mutable_limits() = options.limits;
  }
  if (options.host_needs.ByteSizeLong() > 0) {
    *request.mutable_host_needs() = options.host_needs;
  }
  return request;
}

void BindIndices(const std::set<std::string>& names, v1::SubmitRequest* request) {
  request->clear_inputs();
  for (const std::string& name : names) {
    v1::InputBinding* binding = request->add_inputs();
    binding->set_name(name);
    binding->set_array_index(true);
  }
}

// An older server would ignore unknown fields and run one job at once.
Status Client::CheckFeatures(const SubmitOptions& options, const CallOptions& call) {
  std::vector<std::string> wanted;
  if (options.array.has_value()) {
    wanted.push_back("job-arrays");
  }
  if (!options.after.empty()) {
    wanted.push_back("job-after");
  }
  if (options.held) {
    wanted.push_back("job-hold");
  }
  if (options.limits.ByteSizeLong() > 0) {
    wanted.push_back("job-limits");
  }
  if (options.host_needs.ByteSizeLong() > 0) {
    wanted.push_back("host-needs");
  }
  if (wanted.empty()) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(const v1::ServerInfoResponse info, ServerInfo(call));
  const auto offers = [&](std::string_view feature) {
    return std::find(info.features().begin(), info.features().end(), feature) != info.features().end();
  };
  for (const std::string& feature : wanted) {
    // Every server of a cluster knows needs of hosts.
    if (!offers(feature) && !(feature == "host-needs" && offers("cluster"))) {
      return Unimplemented("The server (release " + info.version() + ") does not offer \"" + feature + "\".");
    }
  }
  return absl::OkStatus();
}

StatusOr<v1::SubmitResponse> Client::Submit(std::string_view document, const Modules& modules,
                                            const std::map<std::string, Tensor>& inputs, const SubmitOptions& options) {
  const CallOptions call = WithKey(options.call);
  v1::SubmitRequest request = RequestOf(options);
  v1::GraphReference* reference = request.mutable_document();
  Retries retries(connection_->options.patience, SystemRng());
  const Time start = RealClock().Now();
  HPVMD_RETURN_IF_ERROR(CheckFeatures(options, WithoutKey(call)));
  int64_t daemon = 0;  // Start time of the server that answered NOT_FOUND.
  for (;;) {
    HPVMD_ASSIGN_OR_RETURN(const CallOptions rest, Remaining(call, start));
    const CallOptions before = WithoutKey(rest);
    HPVMD_RETURN_IF_ERROR(
        PutAll(document, modules, before, reference->mutable_graph_sha256(), reference->mutable_modules()));
    BindIndices(options.index_inputs, &request);
    std::vector<std::string> buffers;
    const Status bound = BindInputs(inputs, before, request.mutable_inputs(), &buffers);
    StatusOr<v1::SubmitResponse> response =
        bound.ok() ? connection_->Call(&v1::Hpvm::Stub::Submit, request, rest) : StatusOr<v1::SubmitResponse>(bound);
    DeleteAll(buffers, before);  // An accepted job keeps the bytes it uses.
    if (response.ok()) {
      if (response->job().idempotency_key().empty()) {
        response->mutable_job()->set_idempotency_key(call.request.idempotency_key());
      }
      return response;
    }
    if (response.status().code() == absl::StatusCode::kNotFound) {
      // Either the object never existed, or the server that held the upload has restarted since: then it is sent to
      // the new server.
      StatusOr<v1::ServerInfoResponse> info = ServerInfo(before);
      if (!info.ok() || info->started_unix_ns() == daemon) {
        return response;
      }
      daemon = info->started_unix_ns();
    } else if (bound.ok() || !MayRetry(bound) ||
               !SleepBeforeRetry(connection_->options, call, start, bound, &retries)) {
      return response;  // Submit itself was retried as often as the patience allows.
    }
  }
}

StatusOr<v1::SubmitResponse> Client::RetryJob(const std::string& id, const CallOptions& call) {
  v1::RetryJobRequest request;
  request.set_job_id(id);
  return connection_->Call(&v1::Hpvm::Stub::RetryJob, request, WithKey(call));
}

StatusOr<v1::Job> Client::GetJob(const std::string& id, const CallOptions& call) {
  v1::GetJobRequest request;
  request.set_job_id(id);
  HPVMD_ASSIGN_OR_RETURN(v1::GetJobResponse response, connection_->Call(&v1::Hpvm::Stub::GetJob, request, call));
  return std::move(*response.mutable_job());
}

StatusOr<v1::ListJobsResponse> Client::ListJobs(const v1::ListJobsRequest& request, const CallOptions& call) {
  return connection_->Call(&v1::Hpvm::Stub::ListJobs, request, call);
}

StatusOr<std::vector<v1::Job>> Client::ListAllJobs(v1::ListJobsRequest request, uint64_t jobs_max, bool* more,
                                                   const CallOptions& call) {
  constexpr uint64_t kPageMax = 1'000;
  std::vector<v1::Job> jobs;
  do {
    request.set_page_size(static_cast<uint32_t>(std::min(kPageMax, jobs_max - jobs.size())));
    HPVMD_ASSIGN_OR_RETURN(v1::ListJobsResponse page, ListJobs(request, call));
    jobs.insert(jobs.end(), std::make_move_iterator(page.mutable_jobs()->begin()),
                std::make_move_iterator(page.mutable_jobs()->end()));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && jobs.size() < jobs_max);
  if (more != nullptr) {
    *more = !request.page_token().empty();
  }
  return jobs;
}

StatusOr<std::vector<std::string>> Client::ArrayJobs(const std::string& array_id, const CallOptions& call) {
  v1::ListJobsRequest request;
  request.set_array_id(array_id);
  HPVMD_ASSIGN_OR_RETURN(std::vector<v1::Job> jobs, ListAllJobs(request, UINT32_MAX, nullptr, call));
  if (jobs.empty()) {
    return NotFound("There is no job and no array \"" + array_id + "\".");
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const v1::Job& a, const v1::Job& b) { return a.array_index() < b.array_index(); });
  std::vector<std::string> ids;
  ids.reserve(jobs.size());
  for (const v1::Job& job : jobs) {
    ids.push_back(job.id());
  }
  return ids;
}

StatusOr<v1::CancelJobResponse> Client::CancelJob(const std::string& id, const CallOptions& call) {
  v1::CancelJobRequest request;
  request.set_job_id(id);
  return connection_->Call(&v1::Hpvm::Stub::CancelJob, request, call);
}

StatusOr<v1::SetJobHoldResponse> Client::SetJobHold(const std::string& id, bool held, const std::string& reason,
                                                    const CallOptions& call) {
  v1::SetJobHoldRequest request;
  request.set_job_id(id);
  request.set_held(held);
  request.set_reason(reason);
  return connection_->Call(&v1::Hpvm::Stub::SetJobHold, request, call);
}

StatusOr<v1::Job> Client::WatchJob(const std::string& id, const std::function<bool(const v1::JobEvent&)>& on_event,
                                   const CallOptions& call, bool marks_past) {
  v1::WatchJobRequest request;
  request.set_job_id(id);
  request.set_marks_past(marks_past);
  *request.mutable_options() = call.request;
  v1::Job job;
  bool stopped = false;
  const Status ended = connection_->Attempt(call, [&](grpc::ClientContext& context) {
    std::unique_ptr<grpc::ClientReader<v1::JobEvent>> reader = connection_->stub->WatchJob(&context, request);
    v1::JobEvent event;
    while (!stopped && reader->Read(&event)) {
      if (event.has_job()) {
        job = event.job();
      }
      stopped = !on_event(event);
    }
    if (stopped) {
      context.TryCancel();
    }
    return FromGrpc(reader->Finish());
  });
  if (!ended.ok() && !stopped) {
    return ended;
  }
  return job;
}

namespace {

// Events that a wait has seen. After an outage the server sends all events again from the first; a restarted server
// numbers them from 1, so the sequence number alone does not show which are new.
struct Seen {
  uint64_t sequence = 0;
  int64_t time_ns = 0;

  bool IsNew(const v1::JobEvent& event) {
    const bool is_new = event.sequence() > sequence || event.time_unix_ns() > time_ns;
    if (is_new) {
      sequence = event.sequence();
      time_ns = event.time_unix_ns();
    }
    return is_new;
  }
};

Status TimedOut(const std::string& id, const CallOptions& call) {
  return DeadlineExceeded("Job \"" + id + "\" has not ended within " +
                          std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(call.timeout).count()) +
                          " ms; the job goes on.");
}

}  // namespace

StatusOr<v1::Job> Client::WaitJob(const std::string& id, const WaitOptions& options) {
  const CallOptions& call = options.call;
  const Time start = RealClock().Now();
  Retries retries(connection_->options.patience, SystemRng());
  Seen seen;
  const auto on_event = [&](const v1::JobEvent& event) {
    retries.Answered();
    if (options.on_event && seen.IsNew(event)) {
      options.on_event(event);
    }
    return true;
  };
  for (;;) {
    StatusOr<CallOptions> rest = Remaining(call, start);
    if (!rest.ok()) {
      return TimedOut(id, call);
    }
    StatusOr<v1::Job> job = WatchJob(id, on_event, *rest);
    if (job.ok() && HasEnded(job->state())) {
      StatusOr<v1::Job> whole = GetJob(id, *rest);  // With its log and outputs.
      return whole.status().code() == absl::StatusCode::kNotFound ? job : whole;
    }
    const Status failure = job.ok() ? Unavailable("The server ended the stream before the job ended.") : job.status();
    if (failure.code() == absl::StatusCode::kDeadlineExceeded && call.timeout != kNever) {
      return TimedOut(id, call);
    }
    // A server with too many watchers has room again when others have ended.
    const bool crowded = failure.code() == absl::StatusCode::kResourceExhausted;
    if ((!MayRetry(failure) && !crowded) || !SleepBeforeRetry(connection_->options, call, start, failure, &retries)) {
      return failure;
    }
  }
}

StatusOr<std::vector<v1::Job>> Client::WaitAll(const std::vector<std::string>& ids, const WaitOptions& options) {
  const Time start = RealClock().Now();
  std::vector<v1::Job> jobs;
  WaitOptions one = options;
  for (const std::string& id : ids) {
    StatusOr<CallOptions> rest = Remaining(options.call, start);
    if (!rest.ok()) {
      return TimedOut(id, options.call);
    }
    one.call = *std::move(rest);
    StatusOr<v1::Job> job = WaitJob(id, one);
    if (!job.ok()) {
      return job.status().code() == absl::StatusCode::kDeadlineExceeded ? TimedOut(id, options.call) : job.status();
    }
    if (options.on_ended) {
      options.on_ended(*job);
    }
    jobs.push_back(*std::move(job));
  }
  return jobs;
}

// Appends the bytes of one stream to `tensor`, from `*filled` on.
Status Client::Fetch(const std::string& job_id, const std::string& name, const CallOptions& call,
                     std::optional<Tensor>* tensor, uint64_t* filled) {
  v1::FetchOutputRequest request;
  request.set_job_id(job_id);
  request.set_name(name);
  *request.mutable_options() = call.request;
  Status wrong;
  const auto take = [&](const v1::FetchOutputResponse& part) {
    if (part.has_header()) {
      StatusOr<Tensor> empty = EmptyTensor(part.header().type(), part.header().shape());
      if (!empty.ok()) {
        wrong = empty.status();
      } else if (!tensor->has_value()) {
        *tensor = *std::move(empty);
      } else if ((*tensor)->type != empty->type || (*tensor)->shape != empty->shape) {
        wrong = DataLoss("Output \"" + name + "\" changed while it was fetched.");
      }
    }
    if (wrong.ok() && (!tensor->has_value() || part.data().size() > (*tensor)->data.size() - *filled)) {
      wrong = Internal("The server sent more of output \"" + name + "\" than it announced.");
    }
    if (wrong.ok()) {
      std::copy(part.data().begin(), part.data().end(), (*tensor)->data.begin() + static_cast<ptrdiff_t>(*filled));
      *filled += part.data().size();
    }
  };
  const Status ended = connection_->Attempt(call, [&](grpc::ClientContext& context) {
    request.set_offset(*filled);
    std::unique_ptr<grpc::ClientReader<v1::FetchOutputResponse>> reader =
        connection_->stub->FetchOutput(&context, request);
    v1::FetchOutputResponse part;
    while (wrong.ok() && reader->Read(&part)) {
      take(part);
    }
    if (!wrong.ok()) {
      context.TryCancel();
    }
    return FromGrpc(reader->Finish());
  });
  return wrong.ok() ? ended : wrong;
}

StatusOr<Tensor> Client::FetchOutput(const std::string& job_id, const std::string& name, const CallOptions& call) {
  const Time start = RealClock().Now();
  Retries retries(connection_->options.patience, SystemRng());
  std::optional<Tensor> tensor;
  uint64_t filled = 0;
  for (;;) {
    HPVMD_ASSIGN_OR_RETURN(const CallOptions rest, Remaining(call, start));
    const uint64_t before = filled;
    const Status status = Fetch(job_id, name, rest, &tensor, &filled);
    if (filled != before) {
      retries.Answered();
    }
    if (status.ok()) {
      break;
    }
    if (!MayRetry(status) || !SleepBeforeRetry(connection_->options, call, start, status, &retries)) {
      return status;
    }
  }
  if (!tensor.has_value()) {
    return Internal("The server ended the stream without a header.");
  }
  if (filled != tensor->data.size()) {
    return DataLoss("The server sent " + std::to_string(filled) + " of " + std::to_string(tensor->data.size()) +
                    " bytes of output \"" + name + "\".");
  }
  return *std::move(tensor);
}

}  // namespace hpvm
