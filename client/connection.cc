// SPDX-License-Identifier: Apache-2.0
#include "client/connection.h"

#include <sys/mman.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "client/status/retry.h"

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

Status CancelledByCaller() { return Cancelled("The caller cancelled the call."); }

bool SleepUnlessStopped(Duration length, const std::stop_token& stop) {
  if (!stop.stop_possible()) {
    std::this_thread::sleep_for(length);
    return true;
  }
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait_for(lock, stop, length, [] { return false; });
  return !stop.stop_requested();
}

CallOptions WithoutKey(CallOptions call) {
  call.request.clear_idempotency_key();
  return call;
}

v1::ElementType ToProto(ElementType type) { return static_cast<v1::ElementType>(type); }

void BindBuffers(const std::map<std::string, BufferView>& buffers,
                 google::protobuf::RepeatedPtrField<v1::InputBinding>* bindings) {
  for (const auto& [name, buffer] : buffers) {
    v1::InputBinding* binding = bindings->Add();
    binding->set_name(name);
    v1::BufferView& view = *binding->mutable_buffer();
    view.set_buffer_id(buffer.buffer_id);
    view.set_generation(buffer.generation);
    if (buffer.type.has_value()) {
      view.set_type(ToProto(*buffer.type));
      view.mutable_shape()->Add(buffer.shape.begin(), buffer.shape.end());
    }
  }
}

BufferView ViewOf(const v1::BufferView& view) {
  BufferView buffer{.buffer_id = view.buffer_id(),
                    .shape = {view.shape().begin(), view.shape().end()},
                    .generation = view.generation()};
  if (view.type() >= v1::ELEMENT_TYPE_BOOL && view.type() <= v1::ELEMENT_TYPE_F64) {
    buffer.type = static_cast<ElementType>(view.type());
  }
  return buffer;
}

StatusOr<Tensor> TensorWithoutData(v1::ElementType type, const google::protobuf::RepeatedField<uint64_t>& shape,
                                   uint64_t* bytes) {
  if (type < v1::ELEMENT_TYPE_BOOL || type > v1::ELEMENT_TYPE_F64) {
    return Internal("The server sent an element type (" + std::to_string(type) + ") that is not known here.");
  }
  Tensor tensor;
  tensor.type = static_cast<ElementType>(type);
  tensor.shape.assign(shape.begin(), shape.end());
  HPVMD_ASSIGN_OR_RETURN(*bytes, TensorSizeBytes(tensor.type, tensor.shape));
  return tensor;
}

void Reserve(uint64_t bytes, std::vector<uint8_t>* data) {
  constexpr uint64_t kHugePage = uint64_t{2} << 20;
  data->reserve(bytes);
  const uint64_t begin = (reinterpret_cast<uintptr_t>(data->data()) + kHugePage - 1) / kHugePage * kHugePage;
  const uint64_t end = (reinterpret_cast<uintptr_t>(data->data()) + bytes) / kHugePage * kHugePage;
  if (end > begin) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // Only a hint: small pages work as well.
  }
}

StatusOr<Tensor> EmptyTensor(v1::ElementType type, const google::protobuf::RepeatedField<uint64_t>& shape) {
  uint64_t bytes = 0;
  HPVMD_ASSIGN_OR_RETURN(Tensor tensor, TensorWithoutData(type, shape, &bytes));
  Reserve(bytes, &tensor.data);
  tensor.data.resize(bytes);
  return tensor;
}

namespace {

// Adds to the server's refusal which credentials the call carried and what to do.
Status Explain(const Status& refused, const Bearer& bearer, const Credentials& credentials) {
  if (refused.code() != absl::StatusCode::kUnauthenticated && refused.code() != absl::StatusCode::kPermissionDenied) {
    return refused;
  }
  std::string carried = bearer.Describe();
  if (credentials.HasCertificate()) {
    carried += (carried.empty() ? "" : " and ") + std::string("the certificate of the file \"") +
               credentials.certificate_file + "\"";
  }
  const std::string text = Message(refused) + "\n - The call carried " + (carried.empty() ? "no credential" : carried) +
                           (refused.code() == absl::StatusCode::kUnauthenticated
                                ? ". " + bearer.Advice()
                                : "; `hpvmctl whoami` shows the tenant and role that the server gives the caller.");
  Status explained = MakeStatus(refused.code(), text);
  refused.ForEachPayload([&](auto url, const absl::Cord& payload) { explained.SetPayload(url, payload); });
  return explained;
}

}  // namespace

Status Client::Connection::Sign(grpc::ClientContext& context, Duration within, std::string* secret) const {
  HPVMD_ASSIGN_OR_RETURN(*secret, bearer->Current(within));
  if (!secret->empty()) {
    context.AddMetadata("authorization", "Bearer " + *secret);
  }
  if (!options.tenant.empty()) {
    context.AddMetadata("hpvm-tenant", options.tenant);
  }
  return absl::OkStatus();
}

Status Client::Connection::Attempt(const CallOptions& call,
                                   const std::function<Status(grpc::ClientContext&)>& once) const {
  const Duration within = std::min(call.timeout, options.connect_timeout);
  const auto deadline = std::chrono::system_clock::now() + (call.timeout == kNever ? Duration::zero() : call.timeout);
  const std::stop_token stop = StopOf(call);
  for (bool is_first = true;; is_first = false) {
    if (stop.stop_requested()) {
      return CancelledByCaller();
    }
    grpc::ClientContext context;
    std::string secret;
    if (const Status is_signed = Sign(context, within, &secret); !is_signed.ok()) {
      return Explain(is_signed, *bearer, options.credentials);
    }
    if (call.timeout != kNever) {
      context.set_deadline(deadline);
    }
    const std::stop_callback on_stop(stop, [&context] { context.TryCancel(); });
    const Status status = once(context);
    if (absl::IsCancelled(status) && stop.stop_requested()) {
      return CancelledByCaller();
    }
    if (status.code() != absl::StatusCode::kUnauthenticated || !is_first || !bearer->Renew(secret, within)) {
      return Explain(status, *bearer, options.credentials);
    }
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
    if (!SleepUnlessStopped(std::min(*delay, now.timeout), StopOf(call))) {
      return CancelledByCaller();
    }
    StatusOr<CallOptions> rest = Remaining(call, start);
    if (!rest.ok()) {
      return status;  // The reason for the missing response says more than the deadline.
    }
    now = *std::move(rest);
  }
}

bool SleepBeforeRetry(const ClientOptions& options, const CallOptions& call, Time start, const Status& failure,
                      Retries* retries) {
  const Time now = RealClock().Now();
  std::optional<Duration> delay = retries->After(failure, now);
  if (!delay.has_value()) {
    return false;
  }
  if (retries->IsFirst() && options.on_unanswered) {
    options.on_unanswered(failure);
  }
  if (call.timeout != kNever) {
    delay = std::min(*delay, std::max(Duration::zero(), call.timeout - (now - start)));
  }
  SleepUnlessStopped(*delay, StopOf(call));
  return true;
}

}  // namespace hpvm
