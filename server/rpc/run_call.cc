// SPDX-License-Identifier: Apache-2.0
// Run: the fast path. The request's tensors are borrowed by the executor's frame, the answer's are copied once, from
// the frame.
#include <utility>

#include "base/failpoint.h"
#include "server/core/state/run_log.h"
#include "server/rpc/calls.h"

namespace hpvm::server {
namespace {

class RunCall final : public grpc::ServerUnaryReactor, public SelfOwned<RunCall> {
 public:
  RunCall(Core& core, v1::RunResponse* response) : core_(core), response_(response) {}
  void Begin() {}

  void Start(Admission& admission, const TenantRef& tenant, const v1::RunRequest& request) {
    if (Outcome admitted = admission.Admit(tenant->name, request.ByteSizeLong(), &ticket_); !admitted.ok()) {
      core_.observer().On(events::Rejected{tenant->name, "run", admitted.status});
      Finish(ToGrpc(admitted));
      return;
    }
    wants_log_ = request.log();
    options_ = &request.options();
    const uint64_t id = core_.runs().Run(
        tenant, request, [self = shared_from_this()](RunOutcome outcome) { self->OnOutcome(std::move(outcome)); });
    id_.store(id);
    if (cancelled_.load()) {
      core_.runs().CancelRun(id);
    }
  }

  void OnCancel() override {
    // Start stores the id and then looks at the flag; one of the two sees the other.
    cancelled_.store(true);
    if (const uint64_t id = id_.load(); id != 0) {
      core_.runs().CancelRun(id);
    }
  }

  void OnDone() override {
    ticket_.Release();  // The core may hold this a little longer.
    ReleaseSelf();
  }

 private:
  // Both reactions are short: gRPC need not hand each to a thread of its executor, which costs a wake a call.
  bool InternalInlineable() override { return true; }

  void OnOutcome(RunOutcome outcome) {
    // Not when gRPC gets to OnDone: others may keep its threads busy, and this tenant's next call is no overload.
    ticket_.EndCall();
    if (const Status sent = HPVMD_FAILPOINT("service.run.answer"); !sent.ok()) {
      outcome.outcome = sent;
    }
    // A call that fails carries no message, so the failure travels beside the log.
    const bool has_log = FillRun(outcome, wants_log_, response_);
    if (has_log && !outcome.outcome.ok()) {
      *response_->mutable_error() = ToMessage(outcome.outcome);
    }
    Finish(has_log ? grpc::Status::OK : ToGrpc(outcome.outcome, *options_, response_));
  }

  Core& core_;
  v1::RunResponse* response_;  // gRPC's, until OnDone.
  Admission::Ticket ticket_;
  bool wants_log_ = false;
  const v1::RequestOptions* options_ = nullptr;  // gRPC's, until OnDone.
  std::atomic<uint64_t> id_{0};
  std::atomic<bool> cancelled_{false};
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
  RunCall* call = RunCall::Create(core, response);
  if (tenant.ok()) {
    call->Start(admission, *tenant, *request);
  } else {
    call->Finish(ToGrpc(tenant.status()));
  }
  return call;
}

}  // namespace hpvm::server
