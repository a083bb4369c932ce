// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/audit_interceptor.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "hpvm/v1/admin.pb.h"
#include "hpvm/v1/service.pb.h"
#include "server/identity/methods.h"
#include "server/process/log.h"
#include "server/rpc/gate.h"

namespace hpvm {
namespace {

using grpc::experimental::InterceptionHookPoints;

constexpr size_t kObjectBytesMax = 128;

// What a record says of a call's first message or of its answer: ids and settings, never contents or secrets.
struct Told {
  std::string object, detail;
  std::string tenant;   // That it concerns; empty: the caller's.
  bool changes = true;  // Of Change::kBuffers: whether it is to be recorded.
  Status error;         // That the response carries instead of the call's status.
};
// gRPC hands messages over without their type; the method says which it is.
template <typename Message>
const Message& As(const void* message) {
  return *static_cast<const Message*>(message);
}

template <typename Response>
void ReadError(const void* message, Told* told) {
  const v1::Status& error = As<Response>(message).error();
  told->error = MakeStatus(static_cast<absl::StatusCode>(error.code()), error.message());
}

void ReadRun(const void* message, Told* told) {
  told->object = As<v1::RunRequest>(message).handle();
  told->changes = false;
}
void ReadRan(const void* message, Told* told) {
  for (const v1::OutputValue& output : As<v1::RunResponse>(message).outputs()) {
    told->detail += (output.has_buffer() ? " " : "") + output.buffer().buffer_id();
  }
  ReadError<v1::RunResponse>(message, told);
  told->changes = !told->detail.empty();
  told->detail = "Into" + told->detail + ".";
}
void ReadStream(const void* message, Told* told) { told->object = As<v1::StreamRequest>(message).open().handle(); }
void ReadUpdate(const void* message, Told* told) {
  v1::UpdateTenantRequest request = As<v1::UpdateTenantRequest>(message);
  told->object = told->tenant = request.name();
  request.clear_options();
  request.clear_name();
  told->detail = request.ShortDebugString();
}
void ReadTenant(const void* message, Told* told) {
  v1::Tenant tenant = As<v1::CreateTenantRequest>(message).tenant();
  told->object = told->tenant = tenant.name();
  tenant.clear_name();
  told->detail = tenant.ShortDebugString();
}
void ReadToken(const void* message, Told* told) {
  const v1::Token& token = As<v1::CreateTokenResponse>(message).token();
  told->object = token.id();
  told->tenant = token.tenant();
  told->detail = "For tenant " + token.tenant() + ", role " + v1::Role_Name(token.role()) + ".";
}
void ReadSubmitted(const void* message, Told* told) {
  const auto& response = As<v1::SubmitResponse>(message);
  told->object = response.job().id();
  told->detail = response.existed() ? "The job existed." : "";
  ReadError<v1::SubmitResponse>(message, told);
}

using Read = void (*)(const void* message, Told* told);
struct Source {
  std::string_view path;
  Read request = nullptr, response = nullptr;
};
constexpr Source kSources[] = {
    {"/hpvm.v1.Hpvm/PutModule",
     [](const void* m, Told* t) { t->object = As<v1::PutModuleRequest>(m).header().sha256(); }},
    {"/hpvm.v1.Hpvm/PutGraph",
     [](const void* m, Told* t) { t->object = As<v1::PutGraphRequest>(m).header().sha256(); }},
    {"/hpvm.v1.Hpvm/PrepareGraph",
     [](const void* m, Told* t) { t->object = As<v1::PrepareGraphRequest>(m).graph_sha256(); },
     [](const void* m, Told* t) {
       t->detail = "Handle " + As<v1::PrepareGraphResponse>(m).handle() + ".";
       ReadError<v1::PrepareGraphResponse>(m, t);
     }},
    {"/hpvm.v1.Hpvm/ReleaseGraph", [](const void* m, Told* t) { t->object = As<v1::ReleaseGraphRequest>(m).handle(); }},
    {"/hpvm.v1.Hpvm/Run", ReadRun, ReadRan},
    {"/hpvm.v1.Hpvm/Stream", ReadStream},
    {"/hpvm.v1.Hpvm/Submit", nullptr, ReadSubmitted},
    {"/hpvm.v1.Hpvm/CancelJob", [](const void* m, Told* t) { t->object = As<v1::CancelJobRequest>(m).job_id(); }},
    {"/hpvm.v1.Hpvm/RetryJob", [](const void* m, Told* t) { t->object = As<v1::RetryJobRequest>(m).job_id(); },
     [](const void* m, Told* t) {
       t->detail = "As " + As<v1::SubmitResponse>(m).job().id() + ".";
       ReadError<v1::SubmitResponse>(m, t);
     }},
    {"/hpvm.v1.Hpvm/CreateBuffer", nullptr,
     [](const void* m, Told* t) { t->object = As<v1::CreateBufferResponse>(m).buffer().id(); }},
    {"/hpvm.v1.Hpvm/WriteBuffer",
     [](const void* m, Told* t) { t->object = As<v1::WriteBufferRequest>(m).header().buffer_id(); }},
    {"/hpvm.v1.Hpvm/DeleteBuffer",
     [](const void* m, Told* t) { t->object = As<v1::DeleteBufferRequest>(m).buffer_id(); }},
    {"/hpvm.v1.Admin/CreateTenant", ReadTenant},
    {"/hpvm.v1.Admin/UpdateTenant", ReadUpdate},
    {"/hpvm.v1.Admin/CreateToken", nullptr, ReadToken},
    {"/hpvm.v1.Admin/RevokeToken", [](const void* m, Told* t) { t->object = As<v1::RevokeTokenRequest>(m).id(); },
     [](const void* m, Told* t) { t->tenant = As<v1::RevokeTokenResponse>(m).tenant(); }},
};

// Every method whose calls are recorded says what about.
constexpr bool AllHaveSources() {
  for (const MethodFacts& method : kMethods) {
    bool has_source = method.change == Change::kNone;
    for (const Source& source : kSources) {
      has_source |= source.path == method.path;
    }
    if (!has_source) {
      return false;
    }
  }
  return true;
}
static_assert(AllHaveSources());

// One call's. gRPC calls it for one batch at a time.
class AuditInterceptor final : public grpc::experimental::Interceptor {
 public:
  AuditInterceptor(Gate& gate, const Source& source, grpc::ServerContextBase* context)
      : gate_(gate), source_(source), context_(context) {}

  // A call that was given up has no status of ours.
  ~AuditInterceptor() override {
    if (!ended_) {
      End(Cancelled("The caller gave up."));
    }
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (!has_read_ && methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      if (const void* message = methods->GetRecvMessage(); message != nullptr) {
        has_read_ = true;
        if (source_.request != nullptr) {
          source_.request(message, &told_);
        }
      }
    }
    if (source_.response != nullptr && methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      if (const void* message = methods->GetSendMessage(); message != nullptr) {
        source_.response(message, &told_);
      }
    }
    if (!ended_ && methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      const bool changes_rights =
          End(status.ok() ? told_.error
                          : MakeStatus(static_cast<absl::StatusCode>(status.error_code()), status.error_message()));
      if (changes_rights) {
        // Nobody learns that somebody's rights have changed before that stands written; the disk may take long, and
        // this thread has others to serve.
        gate_.audit().FlushThen([methods](const Status& kept) {
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
  // Whether rights have changed.
  bool End(const Status& status) {
    ended_ = true;
    std::optional<Gate::Caller> caller = gate_.TakeCaller(context_);
    if (!caller.has_value() || !told_.changes) {
      return false;
    }
    const bool changes_rights = status.ok() && source_.path.starts_with("/hpvm.v1.Admin/");
    AuditRecord record;
    record.payer = changes_rights ? std::string(kAuditPayerDaemon) : caller->tenant;
    record.who = std::move(caller->principal.who);
    record.peer = std::move(caller->principal.peer);
    // Of a refused call nobody knows whom it would have concerned.
    record.tenant = status.ok() && !told_.tenant.empty() ? std::move(told_.tenant) : std::move(caller->tenant);
    record.method = std::string(source_.path);
    record.object = told_.object.substr(0, kObjectBytesMax);
    record.verdict = status.ok() ? "ok" : std::string(absl::StatusCodeToString(status.code()));
    record.detail = status.ok() ? std::move(told_.detail) : Message(status);
    gate_.audit().Append(std::move(record));
    return changes_rights;
  }

  Gate& gate_;
  const Source& source_;
  grpc::ServerContextBase* const context_;  // A name only: the call may be gone at the end.
  Told told_;
  bool has_read_ = false, ended_ = false;
};

class AuditInterceptorFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit AuditInterceptorFactory(Gate& gate) : gate_(gate) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    const std::string_view path = info->method() != nullptr ? info->method() : "";
    const auto* source =
        std::find_if(std::begin(kSources), std::end(kSources), [&](const Source& s) { return s.path == path; });
    return source == std::end(kSources) ? nullptr : new AuditInterceptor(gate_, *source, info->server_context());
  }

 private:
  Gate& gate_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CreateAuditInterceptor(Gate& gate) {
  return std::make_unique<AuditInterceptorFactory>(gate);
}

}  // namespace hpvm
