// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/call_scope.h"

#include <optional>
#include <string_view>
#include <utility>

#include "server/process/log.h"
#include "server/rpc/call_messages.h"

namespace hpvm::server {

using grpc::experimental::InterceptionHookPoints;

namespace {

constexpr size_t kObjectBytesMax = 128;

Status ToStatus(const grpc::Status& status) {
  return MakeStatus(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace

// gRPC calls it for one batch at a time, and owns it.
class CallScope final : public grpc::experimental::Interceptor {
 public:
  // `method` is gRPC's, for ever. `context` is a name only: the call may be gone at the end.
  CallScope(CallScopes& scopes, std::string_view method, const CallMessages* messages,
            const grpc::ServerContextBase* context)
      : scopes_(scopes),
        method_(method),
        messages_(messages),
        context_(messages != nullptr ? context : nullptr),
        start_(scopes.clock_.Now()) {
    if (context_ != nullptr) {
      std::lock_guard lock(scopes_.mutex_);
      scopes_.scopes_[context_] = this;
    }
  }

  // A call that was given up has no status of ours.
  ~CallScope() override {
    if (!has_ended_) {
      End(Cancelled("The caller gave up."));
    }
  }

  // With the table's mutex.
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
        scopes_.audit_.FlushThen([methods](const Status& kept) {
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
          scopes_.observer_.On(events::CallBegan{this, messages_->options, message});
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
          scopes_.observer_.On(events::CallPrepared{this, *notes_.prepared});
        }
        notes_.prepared = nullptr;
      }
    }
  }

  // Whether rights have changed.
  bool End(const Status& status) {
    has_ended_ = true;
    scopes_.observer_.On(events::CallEnded{method_, status, scopes_.clock_.Now() - start_, HasSpan() ? this : nullptr,
                                           HasSpan() ? messages_->span : nullptr, notes_.attributes});
    if (context_ == nullptr) {
      return false;
    }
    {
      std::lock_guard lock(scopes_.mutex_);
      // gRPC may have given the name to a newer call.
      if (const auto own = scopes_.scopes_.find(context_); own != scopes_.scopes_.end() && own->second == this) {
        scopes_.scopes_.erase(own);
      }
    }
    return caller_.has_value() && notes_.changes && WriteDown(status);
  }

  bool WriteDown(const Status& status) {
    const bool changes_rights = status.ok() && method_.starts_with("/hpvm.v1.Admin/");
    const std::string why = Message(status), verdict = status.ok() ? "ok" : absl::StatusCodeToString(status.code());
    // Of a refused call nobody knows whom it would have concerned.
    scopes_.observer_.On(
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

  CallScopes& scopes_;
  const std::string_view method_;
  const CallMessages* const messages_;
  const grpc::ServerContextBase* const context_;
  const Time start_;
  std::optional<Caller> caller_;
  CallNotes notes_;
  bool has_request_ = false, has_ended_ = false;
};

namespace {

class CallScopeFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallScopeFactory(CallScopes& scopes) : scopes_(scopes) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    const std::string_view method = info->method() != nullptr ? info->method() : "";
    return new CallScope(scopes_, method, MessagesOf(method), info->server_context());
  }

 private:
  CallScopes& scopes_;
};

}  // namespace

void CallScopes::SetCaller(const grpc::ServerContextBase* context, const Caller& caller) {
  std::lock_guard lock(mutex_);
  if (const auto found = scopes_.find(context); found != scopes_.end()) {
    found->second->SetCaller(caller);
  }
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CallScopes::CreateFactory() {
  return std::make_unique<CallScopeFactory>(*this);
}

}  // namespace hpvm::server
