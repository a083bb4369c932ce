// SPDX-License-Identifier: Apache-2.0
#include "client/connection.h"

#include <algorithm>
#include <thread>

#include "client/retry.h"

namespace hpvm {

StatusOr<CallOptions> Remaining(const CallOptions& call, Time start) {
  if (call.timeout == kNever) {
    return call;
  }
  CallOptions rest = call;
  rest.timeout -= RealClock().Now() - start;
  if (rest.timeout <= Duration::zero()) {
    return DeadlineExceeded("The call's timeout passed.");
  }
  return rest;
}

CallOptions WithoutKey(CallOptions call) {
  call.request.clear_idempotency_key();
  return call;
}

v1::ElementType ToProto(ElementType type) { return static_cast<v1::ElementType>(type); }

StatusOr<Tensor> EmptyTensor(v1::ElementType type, const google::protobuf::RepeatedField<uint64_t>& shape) {
  if (type < v1::ELEMENT_TYPE_BOOL || type > v1::ELEMENT_TYPE_F64) {
    return Internal("The server sent an element type (" + std::to_string(type) + ") that is not known here.");
  }
  Tensor tensor;
  tensor.type = static_cast<ElementType>(type);
  tensor.shape.assign(shape.begin(), shape.end());
  HPVMD_ASSIGN_OR_RETURN(uint64_t bytes, TensorSizeBytes(tensor.type, tensor.shape));
  tensor.data.resize(bytes);
  return tensor;
}

void Client::Connection::Prepare(grpc::ClientContext& context, const CallOptions& call) const {
  if (!options.tenant.empty()) {
    context.AddMetadata("hpvm-tenant", options.tenant);
  }
  if (call.timeout != kNever) {
    context.set_deadline(std::chrono::system_clock::now() + call.timeout);
  }
}

Status Client::Connection::KeepTrying(const CallOptions& call,
                                      const std::function<Status(const CallOptions&)>& once) const {
  const Time start = RealClock().Now();
  Retries retries(options.patience, SystemRng());
  CallOptions now = call;
  for (;;) {
    Status status = once(now);
    if (!MayRetry(status)) {
      return status;
    }
    const std::optional<Duration> delay = retries.After(status, RealClock().Now());
    if (!delay.has_value()) {
      return status;
    }
    if (retries.IsFirst() && options.on_unanswered) {
      options.on_unanswered(status);
    }
    std::this_thread::sleep_for(std::min(*delay, now.timeout));
    StatusOr<CallOptions> rest = Remaining(call, start);
    if (!rest.ok()) {
      return status;  // Why there was no answer says more than that time is up.
    }
    now = *std::move(rest);
  }
}

}  // namespace hpvm
