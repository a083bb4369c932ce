// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/call_scope.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "server/process/log.h"
#include "server/rpc/call_messages.h"

namespace hpvm::server {

using grpc::experimental::InterceptionHookPoints;

namespace {

Status ToStatus(const grpc::Status& status) {
  return MakeStatus(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// The context of every call of a server with scopes.
class CallContext final : public grpc::CallbackServerContext {
 public:
  CallScope* scope = nullptr;  // Owned by gRPC, which keeps it as long as the context; null when nothing is recorded.
};

}  // namespace

// gRPC calls it for one batch at a time, and owns it.
class CallScope final : public grpc::experimental::Interceptor {
 public:
  // `method` is gRPC's and is never freed.
  CallScope(const CallWitnesses& witnesses, std::string_view method, const CallMessages* messages)
      : audit_(witnesses.audit), is_read_(messages != nullptr), record_(witnesses, method, messages) {}

  void SetCaller(const Caller& caller) { record_.SetCaller(caller); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (is_read_) {
      Read(*methods);
    }
    if (!record_.has_ended() && methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      if (record_.End(status.ok() ? absl::OkStatus() : ToStatus(status))) {
        // The response about changed rights waits until the change is recorded; because the disk may be slow, this
        // thread does not wait.
        audit_.FlushThen([methods](const Status& kept) {
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
  void Read(grpc::experimental::InterceptorBatchMethods& methods) {
    if (methods.QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      if (void* message = methods.GetRecvMessage(); message != nullptr) {
        record_.OnRequest(message);
      }
    }
    if (methods.QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      if (const void* message = methods.GetSendMessage(); message != nullptr) {
        record_.OnResponse(message);
      }
    }
  }

  AuditLog& audit_;
  const bool is_read_;
  CallRecord record_;
};

namespace {

class CallScopeFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallScopeFactory(const CallScopes& scopes) : scopes_(scopes) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    const std::string_view method = info->method() != nullptr ? info->method() : "";
    const CallMessages* messages = MessagesOf(method);
    auto* scope = new CallScope(scopes_.witnesses, method, messages);  // Owned by gRPC.
    if (messages != nullptr) {  // Such methods are answered by callbacks, whose contexts are ours.
      static_cast<CallContext*>(info->server_context())->scope = scope;
    }
    return scope;
  }

 private:
  const CallScopes& scopes_;
};

// gRPC returns each context when its call is done.
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
