// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/call_interceptor.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "hpvm/v1/service.pb.h"
#include "server/events/events.h"
#include "server/observe/tracer.h"

namespace hpvm {
namespace {

using grpc::experimental::InterceptionHookPoints;

// What a call's first message is, for those that have spans. gRPC hands messages over without their type.
v1::RequestOptions* OptionsOfRun(void* message) { return static_cast<v1::RunRequest*>(message)->mutable_options(); }
v1::RequestOptions* OptionsOfSubmit(void* message) {
  return static_cast<v1::SubmitRequest*>(message)->mutable_options();
}
v1::RequestOptions* OptionsOfRetry(void* message) {
  return static_cast<v1::RetryJobRequest*>(message)->mutable_options();
}
v1::RequestOptions* OptionsOfPrepare(void* message) {
  return static_cast<v1::PrepareGraphRequest*>(message)->mutable_options();
}
v1::RequestOptions* OptionsOfStream(void* message) {
  auto* request = static_cast<v1::StreamRequest*>(message);
  return request->has_open() ? request->mutable_open()->mutable_options() : nullptr;
}

void ReadPrepared(Tracer& tracer, Tracer::Call& call, const void* message) {
  tracer.AddPrepare(call, static_cast<const v1::PrepareGraphResponse*>(message)->summary().timing());
}
void ReadSubmitted(Tracer&, Tracer::Call& call, const void* message) {
  const auto* response = static_cast<const v1::SubmitResponse*>(message);
  call.attributes.emplace_back("hpvm.job_id", response->job().id());
  call.attributes.emplace_back("hpvm.existed", response->existed());
  if (response->array_job_ids_size() > 0) {
    call.attributes.emplace_back("hpvm.array_jobs", int64_t{response->array_job_ids_size()});
  }
}

struct TracedMethod {
  std::string_view path;
  const char* span;
  v1::RequestOptions* (*options)(void* message);
  void (*read)(Tracer& tracer, Tracer::Call& call, const void* response);
  // Of a response: the failure that it carries instead of the call's status.
  const v1::Status& (*error)(const void* response);
};

template <typename Response>
const v1::Status& ErrorIn(const void* response) {
  return static_cast<const Response*>(response)->error();
}

constexpr TracedMethod kTraced[] = {
    {"/hpvm.v1.Hpvm/Run", "Run", OptionsOfRun, nullptr, ErrorIn<v1::RunResponse>},
    {"/hpvm.v1.Hpvm/Stream", "Stream", OptionsOfStream, nullptr, nullptr},
    {"/hpvm.v1.Hpvm/Submit", "Submit", OptionsOfSubmit, ReadSubmitted, ErrorIn<v1::SubmitResponse>},
    {"/hpvm.v1.Hpvm/RetryJob", "RetryJob", OptionsOfRetry, ReadSubmitted, ErrorIn<v1::SubmitResponse>},
    {"/hpvm.v1.Hpvm/PrepareGraph", "PrepareGraph", OptionsOfPrepare, ReadPrepared, ErrorIn<v1::PrepareGraphResponse>},
};

const TracedMethod* FindTraced(std::string_view path) {
  const auto found = std::find_if(std::begin(kTraced), std::end(kTraced),
                                  [&](const TracedMethod& method) { return method.path == path; });
  return found == std::end(kTraced) ? nullptr : found;
}

// One call's. gRPC calls it for one batch at a time.
class CallInterceptor final : public grpc::experimental::Interceptor {
 public:
  CallInterceptor(const CallHooks& hooks, const Clock& clock, const char* method)
      : observer_(*hooks.observer),
        tracer_(hooks.tracer),
        clock_(clock),
        method_(method != nullptr ? method : ""),
        facts_(FindTraced(method_)),
        traced_(tracer_ != nullptr ? facts_ : nullptr),
        start_(clock.Now()) {}

  // A call that was given up has no status of ours.
  ~CallInterceptor() override {
    if (!ended_) {
      End(Cancelled("The caller gave up."));
    }
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (traced_ != nullptr && !call_.has_value() &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      if (void* message = methods->GetRecvMessage(); message != nullptr) {
        if (v1::RequestOptions* options = traced_->options(message); options != nullptr) {
          call_ = tracer_->BeginCall(*options);
        }
      }
    }
    if (call_.has_value() && traced_->read != nullptr && call_->self.sampled &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      if (const void* message = methods->GetSendMessage(); message != nullptr) {
        traced_->read(*tracer_, *call_, message);
      }
    }
    if (facts_ != nullptr && facts_->error != nullptr &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      if (const void* message = methods->GetSendMessage(); message != nullptr) {
        const v1::Status& error = facts_->error(message);
        error_ = MakeStatus(static_cast<absl::StatusCode>(error.code()), error.message());
      }
    }
    if (!ended_ && methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      End(status.ok() ? error_
                      : MakeStatus(static_cast<absl::StatusCode>(status.error_code()), status.error_message()));
    }
    methods->Proceed();
  }

 private:
  void End(const Status& status) {
    ended_ = true;
    observer_.On(events::CallEnded{method_, status, clock_.Now() - start_});
    if (call_.has_value()) {
      tracer_->EndCall(*std::move(call_), traced_->span, status);
      call_.reset();
    }
  }

  Observer& observer_;
  Tracer* const tracer_;
  const Clock& clock_;
  const std::string_view method_;  // gRPC's, for ever.
  const TracedMethod* const facts_;
  const TracedMethod* const traced_;  // The same; null without a tracer.
  const Time start_;
  std::optional<Tracer::Call> call_;
  bool ended_ = false;
  Status error_;  // In the response.
};

class CallInterceptorFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  CallInterceptorFactory(const CallHooks& hooks, const Clock& clock) : hooks_(hooks), clock_(clock) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    return new CallInterceptor(hooks_, clock_, info->method());  // gRPC's from here on.
  }

 private:
  const CallHooks hooks_;
  const Clock& clock_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CreateCallInterceptor(const CallHooks& hooks,
                                                                                             const Clock& clock) {
  return std::make_unique<CallInterceptorFactory>(hooks, clock);
}

}  // namespace hpvm
