// SPDX-License-Identifier: Apache-2.0
// Prepared graphs, runs and streams.
#include "server/core/state/request_options.h"
#include "server/testing/call_client.h"
#include "server/testing/call_client_bind.h"

namespace hpvm::server::testing {

// Documents with an odd number have a module.
void CallClient::BindModules(uint8_t number, google::protobuf::RepeatedPtrField<v1::ModuleBinding>* modules) const {
  if (number % 4 == 1 && !modules_.empty()) {
    v1::ModuleBinding& module = *modules->Add();
    module.set_name("k");
    module.set_sha256(modules_[number % modules_.size()]);
  }
  if (number % 32 == 3) {
    modules->Add()->set_sha256(std::string(64, 'f'));
  }
}

void CallClient::PrepareGraph(const Numbers& numbers) {
  using Call = Played<v1::PrepareGraphRequest, v1::PrepareGraphResponse>;
  auto played = std::make_shared<Call>();
  played->request.set_graph_sha256(documents_.empty() || numbers[0] >= 240
                                       ? std::string(numbers[0] % 2 == 0 ? 64 : 10, '0')
                                       : documents_[numbers[0] % documents_.size()]);
  BindModules(numbers[1], played->request.mutable_modules());
  played->request.set_check(numbers[2] % 16 == 0);
  played->call = Begin(ActionKind::kPrepareGraph, played->request.SerializeAsString());
  TenantRef tenant;
  if (const Outcome refused = Enter(played->request.ByteSizeLong(), &tenant); !refused.ok()) {
    promises_.Answer(*played->call, refused, "");
    return;
  }
  prepares_.push_back(
      core_->graphs().PrepareGraph(tenant, played->request, &played->response, [this, played](const Outcome& outcome) {
        promises_.Answer(*played->call, outcome, played->response.SerializeAsString());
        if (outcome.ok()) {
          handles_.push_back(played->response.handle());
        }
      }));
}

void CallClient::CancelPrepare(const Numbers& numbers) {
  promises_.Count(ActionKind::kCancelPrepare, !prepares_.empty());
  core_->graphs().CancelPrepare(prepares_.empty() ? numbers[0]
                                                  : prepares_[prepares_.size() - 1 - numbers[0] % prepares_.size()]);
}

void CallClient::ReleaseGraph(const Numbers& numbers) {
  const std::string handle = Pick(handles_, "graph-", numbers[0]);
  CallNow(ActionKind::kReleaseGraph, handle,
          [&](Tenant& tenant, std::string*) { return core_->graphs().ReleaseGraph(tenant, handle); });
}

void CallClient::ListGraphs(const Numbers& numbers) {
  v1::ListGraphsRequest request;
  request.set_page_size(numbers[0] % 4 == 0 ? numbers[1] * 8u : numbers[0] % 4);
  if (numbers[2] % 2 == 0) {
    request.set_page_token(Pick(handles_, "graph-", numbers[2]));
  }
  CallNow(ActionKind::kListGraphs, request.SerializeAsString(), [&](Tenant& tenant, std::string* answer) {
    v1::ListGraphsResponse response;
    const Status status = core_->graphs().ListGraphs(tenant, request, &response);
    *answer = response.SerializeAsString();
    for (const v1::PreparedGraph& graph : response.graphs()) {
      handles_.push_back(graph.handle());
    }
    return status;
  });
}

void CallClient::OnRunDone(CallPromises::Call& call, const RunOutcome& outcome) {
  std::string answer;
  for (const RunOutput& output : outcome.outputs) {
    answer += output.name + " " + output.buffer_id + " ";
    promises_.ExpectOwnBytes(tenant_, {reinterpret_cast<const char*>(output.data.data()), output.data.size()},
                             "An output");
    if (outcome.outcome.ok() && output.in_new_buffer) {
      buffers_.push_back(output.buffer_id);
    }
  }
  promises_.Answer(call, outcome.outcome, outcome.outcome.ok() ? answer : "");
}

void CallClient::Run(const Numbers& numbers) {
  auto played = std::make_shared<Played<v1::RunRequest, v1::RunResponse>>();
  v1::RunRequest& request = played->request;
  request.set_handle(Pick(handles_, "graph-", numbers[1]));
  BindPorts(LetterOf(tenant_), numbers[0], Pick(buffers_, "buf-", numbers[1]), request.mutable_inputs(),
            request.mutable_outputs());
  SetRunOptions(numbers[2], &request);
  request.set_log(numbers[2] % 4 == 1);
  request.set_placements_max(numbers[2]);
  played->call = Begin(ActionKind::kRun, request.SerializeAsString());
  TenantRef tenant;
  if (const Outcome refused = Enter(request.ByteSizeLong(), &tenant); !refused.ok()) {
    promises_.Answer(*played->call, refused, "");
    return;
  }
  runs_.push_back(
      core_->runs().Run(tenant, request, [this, played](RunOutcome outcome) { OnRunDone(*played->call, outcome); }));
}

void CallClient::CancelRun(const Numbers& numbers) {
  promises_.Count(ActionKind::kCancelRun, !runs_.empty());
  core_->runs().CancelRun(runs_.empty() ? numbers[0] : runs_[runs_.size() - 1 - numbers[0] % runs_.size()]);
}

void CallClient::OpenAStream(const Numbers& numbers) {
  const std::string handle = Pick(handles_, "graph-", numbers[0]);
  CallNow(ActionKind::kOpenStream, handle, [&](Tenant& tenant, std::string* answer) -> Outcome {
    HPVMD_ASSIGN_OR_RETURN(PreparationRef found, core_->graphs().FindHandle(tenant, handle));
    *answer = found->summary.SerializeAsString();
    auto open = std::make_shared<v1::StreamRequest::Open>();
    open->set_handle(handle);
    open->set_log(numbers[1] % 2 == 0);
    open->mutable_options()->set_deadline_ns(numbers[2] % 4 == 0 ? 1'000'000'000 : 0);
    streams_.push_back({tenant.shared_from_this(), std::move(found), std::move(open)});
    return {};
  });
}

// Access is checked only for the stream's call, when it began.
void CallClient::StreamItem(const Numbers& numbers) {
  if (streams_.empty()) {
    Nothing(ActionKind::kStreamItem);
    return;
  }
  const OpenStream& stream = streams_[numbers[0] % streams_.size()];
  auto item = std::make_shared<v1::StreamRequest::Item>();
  BindPorts(LetterOf(tenant_), numbers[1], Pick(buffers_, "buf-", numbers[2]), item->mutable_inputs(),
            item->mutable_outputs());
  const CallPromises::CallRef call = Begin(ActionKind::kStreamItem, item->SerializeAsString());
  runs_.push_back(
      core_->runs().RunItem(stream.tenant, stream.preparation, {item.get(), stream.open.get()},
                            [this, call, item, open = stream.open](RunOutcome outcome) { OnRunDone(*call, outcome); }));
}

void CallClient::CloseStream(const Numbers& numbers) {
  promises_.Count(ActionKind::kCloseStream, !streams_.empty());
  if (!streams_.empty()) {
    streams_.erase(streams_.begin() + static_cast<ptrdiff_t>(numbers[0] % streams_.size()));
  }
}

void CallClient::ListCosts(const Numbers& numbers) {
  auto played = std::make_shared<Played<v1::ListCostsRequest, v1::ListCostsResponse>>();
  if (numbers[1] % 2 == 0) {
    played->request.set_handle(Pick(handles_, "graph-", numbers[0]));
  }
  played->call = Begin(ActionKind::kListCosts, played->request.SerializeAsString());
  TenantRef tenant;
  if (const Outcome refused = Enter(played->request.ByteSizeLong(), &tenant); !refused.ok()) {
    promises_.Answer(*played->call, refused, "");
    return;
  }
  core_->graphs().ListCosts(tenant, played->request, &played->response, [this, played](const Outcome& outcome) {
    promises_.Answer(*played->call, outcome, played->response.SerializeAsString());
  });
}

}  // namespace hpvm::server::testing
