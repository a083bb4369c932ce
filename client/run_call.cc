// SPDX-License-Identifier: Apache-2.0
#include "client/run_call.h"

#include <algorithm>
#include <utility>

namespace hpvm {
namespace {

// Runs with the same key have outputs of the same sizes, unless the sizes depend on data.
std::string RunKey(const std::string& handle, const std::map<std::string, Tensor>& inputs, const RunOptions& options) {
  std::string key = handle;
  for (const auto& [name, tensor] : inputs) {
    key += " " + name + ":" + Describe(tensor.type, tensor.shape);
  }
  for (const auto& [name, view] : options.input_buffers) {
    key += " " + name + ":" + (view.type.has_value() ? Describe(*view.type, view.shape) : view.buffer_id);
  }
  for (const auto& [name, value] : options.symbols) {
    key += " " + name + "=" + std::to_string(value);
  }
  return key;
}

Status StatusOf(const StatusOr<v1::RunResponse>& response) {
  return response.ok() ? FromProto(response->error()) : response.status();
}

}  // namespace

Client::RunCall::RunCall(Client& client, const std::string& handle, const std::map<std::string, Tensor>& inputs,
                         const RunOptions& options)
    : client_(client),
      handle_(handle),
      inputs_(inputs),
      options_(options),
      local_(client, RunKey(handle, inputs, options), options.call) {}

Client::RunCall::~RunCall() { client_.DeleteAll(buffers_, options_.call); }

StatusOr<v1::RunRequest> Client::RunCall::Bind() {
  v1::RunRequest request;
  used_ = client_.connection_->graphs.Current(handle_);
  request.set_handle(used_);
  options_.repetition.Put(&request);
  request.set_placements_max(options_.placements_max);
  request.set_log(options_.log != nullptr);
  request.mutable_symbols()->insert(options_.symbols.begin(), options_.symbols.end());
  HPVMD_RETURN_IF_ERROR(client_.BindInputs(inputs_, options_.call, request.mutable_inputs(), &buffers_, &local_));
  BindBuffers(options_.input_buffers, request.mutable_inputs());
  for (const auto& [name, id] : options_.output_buffers) {
    v1::OutputBinding& output = *request.add_outputs();
    output.set_name(name);
    if (id.empty()) {
      output.set_new_buffer(true);
    } else {
      output.set_buffer_id(id);
    }
  }
  local_.BindOutputs(options_.output_buffers, &request);
  return request;
}

StatusOr<v1::RunResponse> Client::RunCall::Send() {
  HPVMD_ASSIGN_OR_RETURN(v1::RunRequest request, Bind());
  return client_.SendRun(std::move(request), options_.call);
}

StatusOr<bool> Client::RunCall::IsWorthAnother(const Status& failure) {
  if (absl::IsNotFound(failure) && !prepared_again_) {
    HPVMD_ASSIGN_OR_RETURN(prepared_again_, While(client_.PrepareAgain(handle_, used_, options_.call),
                                                  "preparing the graph again for a server that was restarted"));
    if (prepared_again_) {
      local_.IsWorthAnother(failure);  // Drops the other server's memory in any case.
      return true;
    }
  }
  return local_.IsWorthAnother(failure);
}

bool Client::RunCall::IsComplete(const StatusOr<v1::RunResponse>& response) const {
  if (!buffers_.empty() || local_.HasTaken() || absl::IsNotFound(StatusOf(response)) ||
      absl::IsUnauthenticated(response.status())) {
    return false;
  }
  return !response.ok() || std::all_of(response->outputs().begin(), response->outputs().end(),
                                       [](const v1::OutputValue& value) { return value.has_tensor(); });
}

StatusOr<RunOutcome> Client::RunCall::Finish(StatusOr<v1::RunResponse> response) {
  HPVMD_ASSIGN_OR_RETURN(bool again, IsWorthAnother(StatusOf(response)));
  if (again) {
    response = Send();
    // Local memory may also be the obstacle, this time on the current server.
    HPVMD_ASSIGN_OR_RETURN(again, prepared_again_ ? IsWorthAnother(StatusOf(response)) : false);
    if (again) {
      response = Send();
    }
  }
  HPVMD_RETURN_IF_ERROR(response.status());
  if (options_.log != nullptr) {
    *options_.log = std::move(*response->mutable_log());
  }
  if (FromProto(response->error()).ok()) {
    local_.Learn(options_.output_buffers, *response);
  }
  StatusOr<RunOutcome> outcome = client_.TakeRun(*response, options_.call, options_.output_buffers, &buffers_, &local_);
  if (outcome.ok()) {
    outcome->prepared_again = prepared_again_;
  }
  return outcome;
}

}  // namespace hpvm
