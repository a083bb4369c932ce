// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/call_scope.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "server/process/log.h"
#include "server/rpc/call_messages.h"

namespace hpvm::server {

using grpc::experimental::InterceptionHookPoints;

namespace {

constexpr size_t kObjectBytesMax = 128;

Status ToStatus(const grpc::Status& status) {
  return MakeStatus(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// The context of every call of a server with scopes.
class CallContext final : public grpc::CallbackServerContext {
 public:
  CallScope* scope = nullptr;  // gRPC's, which it keeps as long as the context; null: nothing is written down.
};

}  // namespace

// gRPC calls it for one batch at a time, and owns it.
class CallScope final : public grpc::experimental::Interceptor {
 public:
  // `method` is gRPC's, for ever.
  CallScope(const CallScopes& scopes, std::string_view method, const CallMessages* messages)
      : scopes_(scopes), method_(method), messages_(messages), start_(scopes.clock.Now()) {}

  // A call that was given up has no status of ours.
  ~CallScope() override {
    if (!has_ended_) {
      End(Cancelled("The caller gave up."));
    }
  }

  // While the call is handled, before its status.
  void SetCaller(const Caller& caller) { caller_ = caller; }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (messages_ != nullptr) {
      Read(*methods);
    }
    if (!has_ended_ && methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      if (End(status.ok() ? notes_.error : ToStatus(status))) {
        // Nobody learns that somebody's rights have changed before that stands written; the disk may take long, and
        // this thread has others to serve.
        scopes_.audit.FlushThen([methods](const Status& kept) {
          if (!kept.ok()) {
            LogError("A change of rights is not in the audit yet", {{"error", Message(kept)}});
          }
          methods->Proceed();
        });
        return;
      }
    }
    methods->Proceed();
  }

 private:
  bool HasSpan() const { return messages_ != nullptr && messages_->options != nullptr; }

  void Read(grpc::experimental::InterceptorBatchMethods& methods) {
    if (!has_request_ && methods.QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      if (void* message = methods.GetRecvMessage(); message != nullptr) {
        has_request_ = true;
        if (HasSpan()) {
          scopes_.observer.On(events::CallBegan{this, messages_->options, message});
        }
        if (messages_->request != nullptr) {
          messages_->request(message, &notes_);
        }
      }
    }
    if (messages_->response != nullptr &&
        methods.QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      if (const void* message = methods.GetSendMessage(); message != nullptr) {
        messages_->response(message, &notes_);
        if (notes_.prepared != nullptr) {
          scopes_.observer.On(events::CallPrepared{this, *notes_.prepared});
        }
        notes_.prepared = nullptr;
      }
    }
  }

  // Whether rights have changed.
  bool End(const Status& status) {
    has_ended_ = true;
    scopes_.observer.On(events::CallEnded{method_, status, scopes_.clock.Now() - start_, HasSpan() ? this : nullptr,
                                          HasSpan() ? messages_->span : nullptr, notes_.attributes});
    return caller_.has_value() && notes_.changes && WriteDown(status);
  }

  bool WriteDown(const Status& status) {
    const bool changes_rights = status.ok() && method_.starts_with("/hpvm.v1.Admin/");
    const std::string why = Message(status), verdict = status.ok() ? "ok" : absl::StatusCodeToString(status.code());
    // Of a refused call nobody knows whom it would have concerned.
    scopes_.observer.On(
        events::Recorded{.who = caller_->principal.who,
                         .peer = caller_->principal.peer,
                         .tenant = status.ok() && !notes_.tenant.empty() ? notes_.tenant : caller_->tenant,
                         .method = method_,
                         .object = std::string_view(notes_.object).substr(0, kObjectBytesMax),
                         .verdict = verdict,
                         .detail = status.ok() ? notes_.detail : why,
                         .payer = changes_rights ? kAuditPayerDaemon : caller_->tenant});
    return changes_rights;
  }

  const CallScopes& scopes_;
  const std::string_view method_;
  const CallMessages* const messages_;
  const Time start_;
  std::optional<Caller> caller_;
  CallNotes notes_;
  bool has_request_ = false, has_ended_ = false;
};

namespace {

class CallScopeFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallScopeFactory(const CallScopes& scopes) : scopes_(scopes) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    const std::string_view method = info->method() != nullptr ? info->method() : "";
    const CallMessages* messages = MessagesOf(method);
    auto* scope = new CallScope(scopes_, method, messages);  // gRPC's.
    if (messages != nullptr) {  // Such methods are answered by callbacks, whose contexts are ours.
      static_cast<CallContext*>(info->server_context())->scope = scope;
    }
    return scope;
  }

 private:
  const CallScopes& scopes_;
};

// gRPC gives back each context when its call is done.
class CallContexts final : public grpc::ContextAllocator {
 public:
  grpc::CallbackServerContext* NewCallbackServerContext() override { return new CallContext(); }
  grpc::GenericCallbackServerContext* NewGenericCallbackServerContext() override {
    return new grpc::GenericCallbackServerContext();
  }
  void Release(grpc::CallbackServerContext* context) override { delete context; }
  void Release(grpc::GenericCallbackServerContext* context) override { delete context; }
};

}  // namespace

void CallScopes::AddTo(grpc::ServerBuilder& builder) const {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<CallScopeFactory>(*this));
  builder.experimental().SetInterceptorCreators(std::move(factories));
  builder.SetContextAllocator(std::make_unique<CallContexts>());
}

void SetCaller(const grpc::CallbackServerContext& context, const Caller& caller) {
  if (CallScope* scope = static_cast<const CallContext&>(context).scope; scope != nullptr) {
    scope->SetCaller(caller);
  }
}

}  // namespace hpvm::server
