// SPDX-License-Identifier: Apache-2.0
// Run over gRPC: the executor's frame borrows the request's tensors; the response's are copied once, from the frame.
#include <utility>

#include "server/core/state/run_log.h"
#include "server/rpc/called_run.h"
#include "server/rpc/calls.h"

namespace hpvm::server {

namespace {

class RunCall final : public grpc::ServerUnaryReactor, public SelfOwned<RunCall>, public CalledRun {
 public:
  RunCall(Core& core, const v1::RunRequest& request, v1::RunResponse& response) : CalledRun(core, request, response) {}
  void Begin() {}

  void StartRun(Admission& admission, const TenantRef& tenant) { Start(admission, tenant, shared_from_this()); }
  void OnCancel() override { Cancel(); }
  void OnDone() override {
    ReleaseTicket();  // The core may keep this object a little longer.
    ReleaseSelf();
  }

 private:
  // Both reactions are short: gRPC need not hand each to a thread of its executor, which costs a wake-up per call.
  bool InternalInlineable() override { return true; }

  void Answer(const Outcome& outcome) override { Finish(ToGrpc(outcome, request().options(), &response())); }
};

}  // namespace

void FillOutputs(const RunOutcome& outcome, google::protobuf::RepeatedPtrField<v1::OutputValue>* outputs) {
  for (const RunOutput& from : outcome.outputs) {
    v1::OutputValue& to = *outputs->Add();
    to.set_name(from.name);
    if (from.buffer_id.empty()) {
      v1::Tensor& tensor = *to.mutable_tensor();
      tensor.set_type(static_cast<v1::ElementType>(from.type));
      tensor.mutable_shape()->Add(from.shape.begin(), from.shape.end());
      tensor.set_data(from.data.data(), from.data.size());
    } else {
      v1::BufferView& view = *to.mutable_buffer();
      view.set_buffer_id(from.buffer_id);
      view.set_generation(from.generation);
      view.set_type(static_cast<v1::ElementType>(from.type));
      view.mutable_shape()->Add(from.shape.begin(), from.shape.end());
    }
  }
}

bool FillRun(RunOutcome& outcome, bool wants_log, v1::RunResponse* response) {
  internal::RunDone& done = outcome.reply.done;
  if (outcome.outcome.ok()) {
    FillOutputs(outcome, response->mutable_outputs());
    *response->mutable_timing() = outcome.timing();
    response->set_nodes_run(done.nodes_run());
    *response->mutable_placements() = std::move(*done.mutable_nodes());
    response->set_repetitions(done.repetitions());
    response->set_converged(done.converged());
    *response->mutable_traffic() = done.traffic();
  }
  const bool has_log = wants_log && !IsEmpty(done.log());
  if (has_log) {
    *response->mutable_log() = std::move(*done.mutable_log());
  }
  return has_log;
}

grpc::ServerUnaryReactor* StartRunCall(Core& core, Admission& admission, StatusOr<TenantRef> tenant,
                                       const v1::RunRequest* request, v1::RunResponse* response) {
  RunCall* call = RunCall::Create(core, *request, *response);
  if (tenant.ok()) {
    call->StartRun(admission, *tenant);
  } else {
    call->Finish(ToGrpc(tenant.status()));
  }
  return call;
}

}  // namespace hpvm::server
