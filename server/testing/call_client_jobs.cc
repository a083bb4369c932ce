// SPDX-License-Identifier: Apache-2.0
// Jobs.
#include "server/jobs/rows/job_database.h"
#include "server/testing/call_client.h"
#include "server/testing/call_client_bind.h"

namespace hpvm::server::testing {
namespace {

constexpr uint64_t kReadOutputMax = 1 << 20;

StatusOr<std::string> ReadOutput(JobReader::StoredBytes& stored) {
  if (stored.file == nullptr) {
    return stored.inline_bytes;
  }
  std::string bytes(std::min(stored.header.size_bytes(), kReadOutputMax), '\0');
  HPVMD_ASSIGN_OR_RETURN(const size_t got,
                         stored.file->ReadAt(0, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()}));
  bytes.resize(got);
  return bytes;
}

void MakeArray(uint8_t number, uint8_t options, v1::SubmitRequest* request) {
  v1::JobArray& array = *request->mutable_array();
  array.set_first(number % 3);
  array.set_last(number == 255 ? UINT64_MAX : array.first() + number % 8);
  array.set_step(options % 4);
  array.set_running_max(options / 4 % 3);
  if (options % 32 == 31) {
    array.set_symbol(options == 31 ? "no such" : "n");
  }
  if (options % 8 >= 6) {
    v1::InputBinding& input = *request->add_inputs();
    input.set_name("i");
    input.set_array_index(true);
  }
}

}  // namespace

v1::SubmitRequest CallClient::MakeSubmission(const Numbers& numbers) const {
  v1::SubmitRequest request;
  if (numbers[1] % 4 == 0 || documents_.empty()) {
    request.set_handle(Pick(handles_, "graph-", numbers[1]));
  } else {
    request.mutable_document()->set_graph_sha256(documents_[numbers[1] % documents_.size()]);
    BindModules(numbers[1], request.mutable_document()->mutable_modules());
  }
  BindPorts(LetterOf(tenant_), numbers[0], Pick(buffers_, "buf-", numbers[1]), request.mutable_inputs(),
            request.mutable_outputs());
  SetRunOptions(numbers[2], &request);
  request.mutable_retry()->set_attempts_max(numbers[2] == 255 ? 1'000 : numbers[2] / 8 % 4);
  request.set_held(numbers[1] % 16 == 7);
  AddAfter(numbers[0] ^ numbers[2], &request);
  if (numbers[1] % 8 == 5) {
    request.set_name("job");
    (*request.mutable_options()->mutable_labels())["color"] = numbers[0] % 2 == 0 ? "red" : "blue";
  }
  return request;
}

// Adds a job, an array, both, one job twice, more than the limit, or a missing one.
void CallClient::AddAfter(uint8_t number, v1::SubmitRequest* request) const {
  const auto add = [&](const std::string& id) {
    v1::JobDependency& after = *request->add_after();
    after.set_job_id(id);
    after.set_condition(static_cast<v1::JobDependency::Condition>(number == 77 ? 9 : number / 8 % 4));
  };
  if (number % 8 == 1 || number % 8 == 2) {
    add(Pick(jobs_, "job-", number));
  }
  if (number % 16 == 2 || number % 16 == 3) {
    add(Pick(arrays_, "array-", number / 16));
  }
  if (number % 64 == 4) {
    add(Pick(jobs_, "job-", number));
    add(Pick(jobs_, "job-", number));
    add(Pick(jobs_, "job-", number / 2));
  }
}

// Sets a new key, or a used one, with its original request or with another.
void CallClient::SetKey(uint8_t number, v1::SubmitRequest* request) {
  if (number % 4 < 2) {
    return;
  }
  if (number % 4 == 3 && !keyed_.empty()) {
    const auto& [key, earlier] = keyed_[keyed_.size() - 1 - number / 8 % keyed_.size()];
    if (number % 8 == 3) {
      *request = earlier;
    }
    request->mutable_options()->set_idempotency_key(key);
    return;
  }
  const std::string key = number == 254 ? std::string(256, 'k') : "key-" + std::to_string(++next_key_);
  request->mutable_options()->set_idempotency_key(key);
  keyed_.emplace_back(key, *request);
}

void CallClient::OnSubmitted(CallPromises::Call& call, const v1::RequestOptions& options, const Outcome& outcome,
                             const v1::SubmitResponse& response) {
  promises_.Answer(call, outcome, response.SerializeAsString());
  if (!outcome.ok()) {
    return;
  }
  std::vector<std::string> ids(response.array_job_ids().begin(), response.array_job_ids().end());
  if (response.job().array_id().empty() || ids.empty()) {
    ids.push_back(response.job().id());
  }
  if (!response.job().array_id().empty()) {
    arrays_.push_back(response.job().array_id());
  }
  for (const std::string& id : ids) {
    jobs_.push_back(id);
    promises_.OnAcknowledged(tenant_, id);
  }
  if (!options.idempotency_key().empty()) {
    promises_.OnKey(tenant_, options.idempotency_key(), response.job().id());
  }
  // The row of a known key's job may be gone: then only its name and state are known.
  if (!response.existed()) {
    promises_.OnJob(tenant_, response.job());
  }
}

void CallClient::Submit(ActionKind kind, const Numbers& numbers) {
  auto played = std::make_shared<Played<v1::SubmitRequest, v1::SubmitResponse>>();
  played->request = MakeSubmission(numbers);
  if (kind == ActionKind::kSubmitArray) {
    MakeArray(numbers[1], numbers[2], &played->request);
  }
  SetKey(numbers[0] / 4, &played->request);
  played->call = Begin(kind, played->request.SerializeAsString());
  TenantRef tenant;
  if (const Outcome refused = Enter(played->request.ByteSizeLong(), &tenant); !refused.ok()) {
    promises_.Answer(*played->call, refused, "");
    return;
  }
  core_->job_submitter().Submit(tenant, played->request, &played->response, [this, played](const Outcome& outcome) {
    OnSubmitted(*played->call, played->request.options(), outcome, played->response);
  });
}

void CallClient::Retry(const Numbers& numbers) {
  auto played = std::make_shared<Played<v1::RetryJobRequest, v1::SubmitResponse>>();
  played->request.set_job_id(Pick(jobs_, "job-", numbers[0]));
  v1::RequestOptions& options = *played->request.mutable_options();
  if (numbers[1] % 4 == 0) {
    options.set_idempotency_key("retry-" + std::to_string(numbers[1] / 4 % 4) + played->request.job_id().substr(0, 60));
  }
  options.set_deadline_ns(numbers[2] % 4 == 0 ? 60'000'000'000 : 0);
  played->call = Begin(ActionKind::kRetryJob, played->request.SerializeAsString());
  TenantRef tenant;
  if (const Outcome refused = Enter(played->request.ByteSizeLong(), &tenant); !refused.ok()) {
    promises_.Answer(*played->call, refused, "");
    return;
  }
  core_->job_submitter().RetryJob(tenant, played->request, &played->response, [this, played](const Outcome& outcome) {
    OnSubmitted(*played->call, played->request.options(), outcome, played->response);
  });
}

void CallClient::CancelJob(const std::string& id) {
  auto played = std::make_shared<Played<v1::CancelJobRequest, v1::CancelJobResponse>>();
  played->call = Begin(ActionKind::kCancelJob, id);
  TenantRef tenant;
  if (const Outcome refused = Enter(id.size(), &tenant); !refused.ok()) {
    promises_.Answer(*played->call, refused, "");
    return;
  }
  core_->job_wishes().CancelJob(tenant, id, &played->response, [this, played](const Outcome& outcome) {
    promises_.Answer(*played->call, outcome, played->response.SerializeAsString());
    if (outcome.ok() && played->response.has_job()) {
      promises_.OnJob(tenant_, played->response.job());
    }
  });
}

// Holds a job or an array, as a tenant or an administrator, a little more often than it releases one.
void CallClient::SetJobHold(const Numbers& numbers) {
  auto played = std::make_shared<Played<v1::SetJobHoldRequest, v1::SetJobHoldResponse>>();
  played->request.set_job_id(numbers[1] % 4 == 0 ? Pick(arrays_, "array-", numbers[0])
                                                 : Pick(jobs_, "job-", numbers[0]));
  played->request.set_held(numbers[2] % 8 < 5);
  played->request.set_reason(std::string(numbers[2] == 255 ? 256 : numbers[2] % 3, 'r'));
  played->call = Begin(ActionKind::kSetJobHold, played->request.SerializeAsString());
  TenantRef tenant;
  if (const Outcome refused = Enter(played->request.ByteSizeLong(), &tenant); !refused.ok()) {
    promises_.Answer(*played->call, refused, "");
    return;
  }
  core_->job_wishes().SetJobHold(tenant, played->request, {"uid 1", numbers[1] / 4 % 4 == 0}, &played->response,
                                 [this, played](const Outcome& outcome) {
                                   promises_.Answer(*played->call, outcome, played->response.SerializeAsString());
                                   if (outcome.ok() && played->response.has_job()) {
                                     promises_.OnJob(tenant_, played->response.job());
                                   }
                                 });
}

void CallClient::GetJob(const Numbers& numbers) {
  const std::string id = Pick(jobs_, "job-", numbers[0]);
  CallNow(ActionKind::kGetJob, id, [&](Tenant& tenant, std::string* answer) {
    v1::Job job;
    const Status status = core_->job_reader().GetJob(tenant, id, &job);
    *answer = job.SerializeAsString();
    if (status.ok()) {
      promises_.OnJob(tenant_, job);
    }
    return status;
  });
}

void CallClient::ListJobs(const Numbers& numbers) {
  OpenList list;
  list.request = std::make_shared<v1::ListJobsRequest>();
  list.response = std::make_shared<v1::ListJobsResponse>();
  list.request->set_page_size(numbers[0] % 4 == 0 ? numbers[1] * 8u : numbers[0] % 4);
  for (const int bit : {0, 1, 2, 3}) {
    if (numbers[1] % 4 == 0 && (numbers[2] >> bit & 1) != 0) {
      list.request->add_states(static_cast<v1::JobState>(2 * bit + 1));
    }
  }
  if (numbers[1] % 8 == 1) {
    list.request->set_array_id(Pick(arrays_, "array-", numbers[2]));
  }
  if (numbers[1] % 8 == 2) {
    (*list.request->mutable_labels())["color"] = "red";
  }
  if (numbers[0] % 8 >= 5) {
    list.request->set_page_token(list_tokens_.empty() || numbers[2] > 240 ? std::string(numbers[2] % 60, '1')
                                                                          : list_tokens_.back());
  }
  list.call = Begin(ActionKind::kListJobs, list.request->SerializeAsString());
  if (const Outcome refused = Enter(list.request->ByteSizeLong(), &list.tenant); !refused.ok()) {
    promises_.Answer(*list.call, refused, "");
    return;
  }
  list.step = core_->job_reader().ListJobs(list.tenant, *list.request, list.response.get());
  lists_.push_back(std::move(list));
  if (numbers[1] % 3 != 0) {
    ListStep({static_cast<uint8_t>(lists_.size() - 1), 0, 0});
  }
}

void CallClient::ListStep(const Numbers& numbers) {
  if (lists_.empty()) {
    Nothing(ActionKind::kListJobsStep);
    return;
  }
  const size_t index = numbers[0] % lists_.size();
  OpenList& list = lists_[index];
  const StatusOr<bool> is_done = list.step();
  promises_.Count(ActionKind::kListJobsStep, is_done.ok());
  // Entries as each step found them; the next step is later.
  for (; list.seen < list.response->jobs_size(); ++list.seen) {
    promises_.OnJob(tenant_, list.response->jobs(list.seen));
  }
  if (is_done.ok() && !*is_done) {
    return;
  }
  const OpenList ended = std::move(list);
  lists_.erase(lists_.begin() + static_cast<ptrdiff_t>(index));
  promises_.Answer(*ended.call, is_done.status(), is_done.ok() ? ended.response->SerializeAsString() : "");
  if (is_done.ok() && !ended.response->next_page_token().empty()) {
    list_tokens_.push_back(ended.response->next_page_token());
  }
}

void CallClient::ListAbandon() {
  promises_.Count(ActionKind::kListJobsAbandon, !lists_.empty());
  if (!lists_.empty()) {
    promises_.Abandon(*lists_.back().call);
    lists_.pop_back();
  }
}

void CallClient::WatchJob(const Numbers& numbers) {
  const std::string id = Pick(jobs_, "job-", numbers[0]);
  CallNow(ActionKind::kWatchJob, id, [&](Tenant& tenant, std::string*) -> Outcome {
    HPVMD_ASSIGN_OR_RETURN(const uint64_t key, core_->job_reader().WatchJob(tenant, id, [] {}));
    watches_.push_back({tenant.shared_from_this(), id, key, 0});
    return {};
  });
}

void CallClient::CheckEvents(Watch& watch, const JobReader::EventBatch& batch) {
  for (const v1::JobEvent& event : batch.events) {
    promises_.Expect(event.sequence() > watch.after, "Events of " + watch.id + " came out of order.");
    watch.after = event.sequence();
    promises_.Expect(!event.has_job() || event.job().id() == watch.id,
                     "An event of " + watch.id + " tells of " + event.job().id() + ".");
  }
  if (batch.last && !batch.events.empty()) {
    const v1::JobEvent& last = batch.events.back();
    promises_.Expect(last.has_job() && IsTerminal(last.job().state()),
                     "The events of " + watch.id + " ended before the job did.");
    promises_.OnJob(tenant_, last.job());
  }
}

void CallClient::ReadEvents(const Numbers& numbers) {
  if (watches_.empty()) {
    Nothing(ActionKind::kReadEvents);
    return;
  }
  Watch& watch = watches_[numbers[0] % watches_.size()];
  const StatusOr<JobReader::EventBatch> batch =
      core_->job_reader().ReadEvents(*watch.tenant, watch.id, watch.after, numbers[1] % 8 == 0 ? 1 : 64);
  std::string answer;
  if (batch.ok()) {
    CheckEvents(watch, *batch);
    for (const v1::JobEvent& event : batch->events) {
      answer += event.SerializeAsString();
    }
  }
  promises_.AnswerNow(ActionKind::kReadEvents, tenant_, watch.id, batch.status(), answer);
}

void CallClient::Unwatch(const Numbers& numbers) {
  promises_.Count(ActionKind::kUnwatch, !watches_.empty());
  if (!watches_.empty()) {
    const auto at = watches_.begin() + static_cast<ptrdiff_t>(numbers[0] % watches_.size());
    core_->job_reader().Unwatch(*at->tenant, at->id, at->key);
    watches_.erase(at);
  }
}

void CallClient::FetchOutput(const Numbers& numbers) {
  const std::string id = Pick(jobs_, "job-", numbers[0]);
  CallNow(ActionKind::kFetchOutput, id, [&](Tenant& tenant, std::string*) -> Outcome {
    HPVMD_ASSIGN_OR_RETURN(JobReader::StoredBytes stored,
                           core_->job_reader().FindOutput(tenant, id, numbers[1] == 0 ? "nothing" : "y"));
    HPVMD_ASSIGN_OR_RETURN(const std::string bytes, ReadOutput(stored));
    promises_.Expect(bytes.size() == stored.header.size_bytes(), "An output of " + id + " lacks bytes.");
    promises_.ExpectOwnBytes(tenant_, bytes, "An output of " + id);
    return {};
  });
}

}  // namespace hpvm::server::testing
