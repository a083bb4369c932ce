// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/service.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/resource_quota.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "base/thread_watch.h"
#include "server/core/state/request_options.h"
#include "server/front/front.h"
#include "server/front/tls_watch.h"
#include "server/identity/methods.h"
#include "server/rpc/admin_calls.h"
#include "server/rpc/call_scope.h"
#include "server/rpc/calls.h"
#include "server/rpc/connection_acceptor.h"
#include "server/rpc/gate.h"
#include "server/rpc/operations_calls.h"
#include "server/rpc/ring_calls.h"

namespace hpvm::server {
namespace {

constexpr size_t kTransportBytesMax = 256 * limits::kMiB;
constexpr uint64_t kAgeGraceMs = 30'000;
constexpr uint64_t kMsMax = INT_MAX - 1;  // Larger values mean for ever.

// A method of this service; does not compile for a name that is not in the table.
consteval const MethodFacts& Method(std::string_view name) { return MethodAt("/hpvm.v1.Hpvm/", name); }

Outcome AnswerOf(const Outcome& outcome) {
  const Status sent = HPVMD_FAILPOINT("service.answer");
  return sent.ok() ? outcome : Outcome(sent);
}

bool IsAdmin(const Principal& caller) { return caller.role >= Role::kAdmin; }

// A smaller request is not counted: the call itself costs as much.
constexpr uint64_t kSmallRequest = 16 * limits::kKiB;

// A call that the core answers later. It continues when the client cancels, unless it has a way to be cancelled: what
// it stores is kept for the next call.
class DeferredCall final : public grpc::ServerUnaryReactor, public SelfOwned<DeferredCall> {
 public:
  void Begin() {}
  std::function<void(const Outcome&)> Finisher() {
    return [self = shared_from_this()](const Outcome& outcome) { self->Finish(ToGrpc(AnswerOf(outcome))); };
  }
  // gRPC keeps request and response until OnDone.
  template <typename Response>
  std::function<void(const Outcome&)> Finisher(const v1::RequestOptions& options, Response* response) {
    return [self = shared_from_this(), &options, response](const Outcome& outcome) {
      self->Finish(ToGrpc(AnswerOf(outcome), options, response));
    };
  }
  // `id` is the core's, for `cancel`.
  void SetCancel(uint64_t id, std::function<void(uint64_t)> cancel) {
    cancel_ = std::move(cancel);
    id_.store(id);
    if (cancelled_.load()) {
      cancel_(id);
    }
  }
  void OnCancel() override {
    // SetCancel stores the id and then reads the flag; one of the two sees the other.
    cancelled_.store(true);
    if (const uint64_t id = id_.load(); id != 0) {
      cancel_(id);
    }
  }
  void OnDone() override { ReleaseSelf(); }

  Admission::Ticket ticket;  // For the request, while it is in memory.

 private:
  std::function<void(uint64_t)> cancel_;  // Set before the id.
  std::atomic<uint64_t> id_{0};
  std::atomic<bool> cancelled_{false};
};

class Service final : public v1::Hpvm::CallbackService {
 public:
  Service(Core& core, Admission& admission, Gate& gate, const RingParts& rings)
      : core_(core), admission_(admission), gate_(gate), rings_(rings), inbox_(rings.local.inbox) {}

  using Context = grpc::CallbackServerContext;

  grpc::ServerUnaryReactor* ServerInfo(Context* context, const v1::ServerInfoRequest* request,
                                       v1::ServerInfoResponse* response) override {
    return Answer(context, Method("ServerInfo"), *request, [&](const TenantRef& tenant, const Principal& caller) {
      core_.ServerInfo(*tenant, response);
      response->set_role(std::string(NameOf(caller.role)));
      response->set_caller(caller.who);
      return absl::OkStatus();
    });
  }
  grpc::ServerUnaryReactor* ListDevices(Context* context, const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override {
    return AnswerLater(context, Method("ListDevices"), *request, Key::kRefused, Begins::kAtOnce,
                       [this, response](const TenantRef& tenant, const Principal&, DeferredCall& call) {
                         core_.devices().ListDevices(tenant, response, call.Finisher());
                       });
  }
  grpc::ServerUnaryReactor* ListCosts(Context* context, const v1::ListCostsRequest* request,
                                      v1::ListCostsResponse* response) override {
    return AnswerLater(context, Method("ListCosts"), *request, Key::kRefused, Begins::kAtOnce,
                       [this, request, response](const TenantRef& tenant, const Principal&, DeferredCall& call) {
                         core_.graphs().ListCosts(tenant, *request, response, call.Finisher());
                       });
  }
  grpc::ServerReadReactor<v1::PutModuleRequest>* PutModule(Context* context, v1::PutModuleResponse* response) override {
    const Entered entered(gate_, *context, Method("PutModule"), 0);
    return StartPutModule(core_, entered.tenant, response);
  }
  grpc::ServerReadReactor<v1::PutGraphRequest>* PutGraph(Context* context, v1::PutGraphResponse* response) override {
    const Entered entered(gate_, *context, Method("PutGraph"), 0);
    return StartPutGraph(core_, entered.tenant, response);
  }
  grpc::ServerUnaryReactor* PrepareGraph(Context* context, const v1::PrepareGraphRequest* request,
                                         v1::PrepareGraphResponse* response) override {
    return AnswerLater(context, Method("PrepareGraph"), *request, Key::kRefused, Begins::kAtOnce,
                       [this, request, response](const TenantRef& tenant, const Principal&, DeferredCall& call) {
                         const uint64_t id = core_.graphs().PrepareGraph(tenant, *request, response,
                                                                         call.Finisher(request->options(), response));
                         // A graph that the client no longer waits for is not compiled to the end.
                         call.SetCancel(id, [this](uint64_t prepare) { core_.graphs().CancelPrepare(prepare); });
                       });
  }
  grpc::ServerUnaryReactor* ReleaseGraph(Context* context, const v1::ReleaseGraphRequest* request,
                                         v1::ReleaseGraphResponse* response) override {
    return Answer(context, Method("ReleaseGraph"), *request, [&](const TenantRef& tenant, const Principal&) {
      return core_.graphs().ReleaseGraph(*tenant, request->handle());
    });
  }
  grpc::ServerUnaryReactor* ListModules(Context* context, const v1::ListModulesRequest* request,
                                        v1::ListModulesResponse* response) override {
    return Answer(context, Method("ListModules"), *request, [&](const TenantRef& tenant, const Principal&) {
      return core_.graphs().ListModules(*tenant, *request, response);
    });
  }
  grpc::ServerUnaryReactor* DeleteModule(Context* context, const v1::DeleteModuleRequest* request,
                                         v1::DeleteModuleResponse* response) override {
    return Answer(context, Method("DeleteModule"), *request, [&](const TenantRef& tenant, const Principal&) -> Status {
      HPVMD_ASSIGN_OR_RETURN(const uint64_t freed, core_.graphs().DeleteModule(*tenant, request->sha256()));
      response->set_freed_bytes(freed);
      return absl::OkStatus();
    });
  }
  grpc::ServerUnaryReactor* ListGraphs(Context* context, const v1::ListGraphsRequest* request,
                                       v1::ListGraphsResponse* response) override {
    return Answer(context, Method("ListGraphs"), *request, [&](const TenantRef& tenant, const Principal&) {
      return core_.graphs().ListGraphs(*tenant, *request, response);
    });
  }
  grpc::ServerUnaryReactor* Run(Context* context, const v1::RunRequest* request, v1::RunResponse* response) override {
    const Entered entered(gate_, *context, Method("Run"), request->ByteSizeLong());
    return StartRunCall(core_, admission_, entered.tenant, request, response);
  }
  grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamResponse>* Stream(Context* context) override {
    const Entered entered(gate_, *context, Method("Stream"), 0);
    return StartStream(core_, admission_, entered.tenant);
  }
  grpc::ServerUnaryReactor* Submit(Context* context, const v1::SubmitRequest* request,
                                   v1::SubmitResponse* response) override {
    // A key is looked up on disk.
    const Begins begins = request->options().idempotency_key().empty() ? Begins::kAtOnce : Begins::kInTurn;
    return AnswerLater(context, Method("Submit"), *request, Key::kHonoured, begins,
                       [this, request, response](const TenantRef& tenant, const Principal& caller, DeferredCall& call) {
                         core_.job_submitter().Submit(tenant, *request, response,
                                                      call.Finisher(request->options(), response), caller.who);
                       });
  }
  grpc::ServerUnaryReactor* GetJob(Context* context, const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override {
    return AnswerInTurn(context, Method("GetJob"), *request,
                        [this, request, response](const TenantRef& tenant, const Principal& caller) {
                          return core_.job_reader().GetJob(*tenant, request->job_id(), response->mutable_job(),
                                                           IsAdmin(caller));
                        });
  }
  grpc::ServerWriteReactor<v1::JobEvent>* WatchJob(Context* context, const v1::WatchJobRequest* request) override {
    const Entered entered(gate_, *context, Method("WatchJob"), request->ByteSizeLong());
    return StartWatch(core_, entered.tenant, request);
  }
  grpc::ServerUnaryReactor* ListJobs(Context* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override {
    return AnswerInSteps(
        context, Method("ListJobs"), *request,
        [this, request, response](const TenantRef& tenant, const Principal& caller) -> JobReader::Steps {
          if (request->all_tenants() && !IsAdmin(caller)) {
            return [role = caller.role]() -> StatusOr<bool> {
              return MakeStatus(absl::StatusCode::kPermissionDenied,
                                "Lists of all tenants' jobs are for administrators; the caller's "
                                "role is \"" +
                                    std::string(NameOf(role)) + "\".");
            };
          }
          return core_.job_reader().ListJobs(tenant, *request, response, IsAdmin(caller));
        });
  }
  grpc::ServerUnaryReactor* CancelJob(Context* context, const v1::CancelJobRequest* request,
                                      v1::CancelJobResponse* response) override {
    return AnswerLater(context, Method("CancelJob"), *request, Key::kRefused, Begins::kAtOnce,
                       [this, request, response](const TenantRef& tenant, const Principal&, DeferredCall& call) {
                         core_.job_wishes().CancelJob(tenant, request->job_id(), response, call.Finisher());
                       });
  }
  grpc::ServerUnaryReactor* SetJobHold(Context* context, const v1::SetJobHoldRequest* request,
                                       v1::SetJobHoldResponse* response) override {
    return AnswerLater(
        context, Method("SetJobHold"), *request, Key::kRefused, Begins::kAtOnce,
        [this, request, response](const TenantRef& tenant, const Principal& caller, DeferredCall& call) {
          core_.job_wishes().SetJobHold(tenant, *request, {caller.who, IsAdmin(caller)}, response, call.Finisher());
        });
  }
  grpc::ServerUnaryReactor* RetryJob(Context* context, const v1::RetryJobRequest* request,
                                     v1::SubmitResponse* response) override {
    return AnswerLater(context, Method("RetryJob"), *request, Key::kHonoured, Begins::kInTurn,
                       [this, request, response](const TenantRef& tenant, const Principal&, DeferredCall& call) {
                         core_.job_submitter().RetryJob(tenant, *request, response,
                                                        call.Finisher(request->options(), response));
                       });
  }
  grpc::ServerWriteReactor<v1::FetchOutputResponse>* FetchOutput(Context* context,
                                                                 const v1::FetchOutputRequest* request) override {
    const Entered entered(gate_, *context, Method("FetchOutput"), request->ByteSizeLong());
    return StartFetchOutput(core_, entered.tenant, request);
  }
  grpc::ServerWriteReactor<v1::ExportJobResponse>* ExportJob(Context* context,
                                                             const v1::ExportJobRequest* request) override {
    const Entered entered(gate_, *context, Method("ExportJob"), request->ByteSizeLong());
    return StartExportJob(core_, entered.tenant, request);
  }
  grpc::ServerUnaryReactor* CreateBuffer(Context* context, const v1::CreateBufferRequest* request,
                                         v1::CreateBufferResponse* response) override {
    return AnswerInTurn(context, Method("CreateBuffer"), *request,
                        [this, request, response](const TenantRef& tenant, const Principal&) -> Status {
                          HPVMD_ASSIGN_OR_RETURN(*response->mutable_buffer(),
                                                 core_.buffers().CreateBuffer(*tenant, *request));
                          return absl::OkStatus();
                        });
  }
  grpc::ServerReadReactor<v1::WriteBufferRequest>* WriteBuffer(Context* context,
                                                               v1::WriteBufferResponse* response) override {
    const Entered entered(gate_, *context, Method("WriteBuffer"), 0);
    return StartWriteBuffer(core_, entered.tenant, response);
  }
  grpc::ServerWriteReactor<v1::ReadBufferResponse>* ReadBuffer(Context* context,
                                                               const v1::ReadBufferRequest* request) override {
    const Entered entered(gate_, *context, Method("ReadBuffer"), request->ByteSizeLong());
    return StartReadBuffer(core_, entered.tenant, request);
  }
  grpc::ServerUnaryReactor* DeleteBuffer(Context* context, const v1::DeleteBufferRequest* request,
                                         v1::DeleteBufferResponse* response) override {
    return Answer(context, Method("DeleteBuffer"), *request, [&](const TenantRef& tenant, const Principal&) {
      return core_.buffers().DeleteBuffer(*tenant, request->buffer_id());
    });
  }
  grpc::ServerUnaryReactor* ListBuffers(Context* context, const v1::ListBuffersRequest* request,
                                        v1::ListBuffersResponse* response) override {
    return Answer(context, Method("ListBuffers"), *request, [&](const TenantRef& tenant, const Principal&) {
      return core_.buffers().ListBuffers(*tenant, *request, response);
    });
  }
  grpc::ServerUnaryReactor* RegisterBuffer(Context* context, const v1::RegisterBufferRequest* request,
                                           v1::RegisterBufferResponse* response) override {
    return Answer(context, Method("RegisterBuffer"), *request,
                  [&](const TenantRef& tenant, const Principal&) -> Status {
                    if (inbox_ == nullptr) {
                      return MakeStatus(absl::StatusCode::kUnimplemented,
                                        "The server listens on no Unix socket, which registering memory needs.");
                    }
                    HPVMD_ASSIGN_OR_RETURN(std::vector<UniqueFd> fds, inbox_->Take(request->ticket(), 1));
                    StatusOr<v1::Buffer> buffer = core_.buffers().RegisterBuffer(*tenant, fds[0], *request);
                    inbox_->Drop(std::move(fds));
                    HPVMD_ASSIGN_OR_RETURN(*response->mutable_buffer(), std::move(buffer));
                    return absl::OkStatus();
                  });
  }
  grpc::ServerUnaryReactor* PublishBuffer(Context* context, const v1::PublishBufferRequest* request,
                                          v1::PublishBufferResponse* response) override {
    return Answer(context, Method("PublishBuffer"), *request, [&](const TenantRef& tenant, const Principal&) -> Status {
      HPVMD_ASSIGN_OR_RETURN(*response->mutable_buffer(), core_.buffers().PublishBuffer(*tenant, request->buffer_id()));
      return absl::OkStatus();
    });
  }
  grpc::ServerWriteReactor<v1::RunManyResponse>* RunMany(Context* context, const v1::RunManyRequest* request) override {
    const Entered entered(gate_, *context, Method("RunMany"), request->ByteSizeLong());
    return StartRunMany(core_, admission_, entered.tenant, request);
  }
  grpc::ServerUnaryReactor* SubmitMany(Context* context, const v1::SubmitManyRequest* request,
                                       v1::SubmitManyResponse* response) override {
    return AnswerLater(context, Method("SubmitMany"), *request, Key::kRefused, Begins::kAtOnce,
                       [this, request, response](const TenantRef& tenant, const Principal& caller, DeferredCall& call) {
                         core_.job_submitter().SubmitMany(tenant, *request, response, call.Finisher(), caller.who);
                       });
  }
  grpc::ServerWriteReactor<v1::WatchJobsResponse>* WatchJobs(Context* context,
                                                             const v1::WatchJobsRequest* request) override {
    const Entered entered(gate_, *context, Method("WatchJobs"), request->ByteSizeLong());
    return StartWatchJobs(core_, entered.tenant, request);
  }
  grpc::ServerWriteReactor<v1::WatchDevicesResponse>* WatchDevices(Context* context,
                                                                   const v1::WatchDevicesRequest* request) override {
    const Entered entered(gate_, *context, Method("WatchDevices"), request->ByteSizeLong());
    return StartWatchDevices(core_, entered.tenant, request);
  }
  grpc::ServerWriteReactor<v1::OpenRingResponse>* OpenRing(Context* context,
                                                           const v1::OpenRingRequest* request) override {
    const Entered entered(gate_, *context, Method("OpenRing"), request->ByteSizeLong());
    return StartOpenRing(rings_, *context, entered.tenant, *request);
  }

 private:
  // An incoming call: its caller, and its time on the shared thread.
  struct Entered {
    Entered(Gate& gate, const Context& context, const MethodFacts& method, uint64_t request_bytes)
        : item("grpc", method.path.data()) {
      StatusOr<Gate::Entry> entry = gate.Enter(context, method, request_bytes);
      if (!entry.ok()) {
        tenant = entry.status();
        return;
      }
      tenant = std::move(entry->tenant);
      principal = std::move(entry->principal);
      item.SetTenant((*tenant)->name);
    }
    WatchedItem item;
    StatusOr<TenantRef> tenant = Unavailable("Nobody has asked.");
    Principal principal;
  };

  // Answers a call at once, on the thread that read it.
  template <typename Request, typename Action>
  grpc::ServerUnaryReactor* Answer(Context* context, const MethodFacts& method, const Request& request, Action action) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const Entered entered(gate_, *context, method, request.ByteSizeLong());
    Status status =
        entered.tenant.ok() ? CheckRequestOptions(request.options(), /*key_honoured=*/false) : entered.tenant.status();
    if (status.ok()) {
      status = action(*entered.tenant, entered.principal);
    }
    reactor->Finish(ToGrpc(status));
    return reactor;
  }

  // Says whether the method honours an idempotency key; if so, the core reads the request's options.
  enum class Key : uint8_t { kRefused, kHonoured };

  // The place where a call that is answered later begins: on the thread that read it, or, because it reads the store,
  // in its tenant's turn on a thread for that.
  enum class Begins : uint8_t { kAtOnce, kInTurn };

  // For a call that the core answers later; `begin` receives the call.
  template <typename Request, typename Begin>
  grpc::ServerUnaryReactor* AnswerLater(Context* context, const MethodFacts& method, const Request& request, Key key,
                                        Begins begins, const Begin& begin) {
    DeferredCall* call = DeferredCall::Create();
    const Entered entered(gate_, *context, method, request.ByteSizeLong());
    Outcome refused = Hold(entered, request, &call->ticket);
    if (refused.ok() && key == Key::kRefused) {
      refused = CheckRequestOptions(request.options(), /*key_honoured=*/false);
    }
    if (!refused.ok()) {
      call->Finish(ToGrpc(refused));
    } else if (begins == Begins::kAtOnce) {
      begin(*entered.tenant, entered.principal, *call);
    } else {
      core_.PostRead((*entered.tenant)->name, [tenant = *entered.tenant, caller = entered.principal, call, begin] {
        HPVMD_FAILPOINT("service.call.begin").IgnoreError();
        begin(tenant, caller, *call);
        return FairQueue::Step::kDone;
      });
    }
    return call;
  }

  // Answers a call that reads the store, or frees and clears memory, in its tenant's turn on a thread for that.
  template <typename Request, typename Action>
  grpc::ServerUnaryReactor* AnswerInTurn(Context* context, const MethodFacts& method, const Request& request,
                                         Action action) {
    return AnswerInSteps(context, method, request,
                         [action = std::move(action)](const TenantRef& tenant, const Principal& caller) {
                           return [tenant, caller, action]() -> StatusOr<bool> {
                             HPVMD_RETURN_IF_ERROR(action(tenant, caller));
                             return true;
                           };
                         });
  }

  // The same in several turns: `begin` returns the function that is called in each, until it fails or reports
  // completion.
  template <typename Request, typename Begin>
  grpc::ServerUnaryReactor* AnswerInSteps(Context* context, const MethodFacts& method, const Request& request,
                                          const Begin& begin) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const Entered entered(gate_, *context, method, request.ByteSizeLong());
    const auto ticket = std::make_shared<Admission::Ticket>();
    Outcome refused = Hold(entered, request, ticket.get());
    if (refused.ok()) {
      refused = CheckRequestOptions(request.options(), /*key_honoured=*/false);
    }
    if (!refused.ok()) {
      reactor->Finish(ToGrpc(refused));
      return reactor;
    }
    core_.PostRead((*entered.tenant)->name, [reactor, ticket, step = begin(*entered.tenant, entered.principal)] {
      const StatusOr<bool> is_done = step();
      if (is_done.ok() && !*is_done) {
        return FairQueue::Step::kAgain;
      }
      reactor->Finish(ToGrpc(is_done.status()));
      return FairQueue::Step::kDone;
    });
    return reactor;
  }

  // Returns the refusal of the caller, or of one more request in memory, which counts until the ticket is released.
  template <typename Request>
  Outcome Hold(const Entered& entered, const Request& request, Admission::Ticket* ticket) {
    if (!entered.tenant.ok()) {
      return entered.tenant.status();
    }
    const uint64_t bytes = request.ByteSizeLong();
    return bytes < kSmallRequest ? Outcome() : admission_.Hold((*entered.tenant)->name, bytes, ticket);
  }

  Core& core_;
  Admission& admission_;
  Gate& gate_;
  const RingParts& rings_;
  DescriptorInbox* const inbox_;
};

void SetLimits(const Config& config, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(config.limits_message_bytes_max));
  builder.SetMaxSendMessageSize(static_cast<int>(config.limits_message_bytes_max + 64 * limits::kKiB));
  // A process of the same user must not be able to share the port.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(config.limits_metadata_bytes_max));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(config.limits_streams_per_connection_max));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, static_cast<int>(config.limits_connection_idle_ms));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                             static_cast<int>(std::min(config.limits_connection_age_ms, kMsMax)));
  // A call that waits for a run may take as long as the longest run; longer streams are cut there.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                             static_cast<int>(std::min(config.jobs_deadline_max_ms + kAgeGraceMs, kMsMax)));
  // Limits gRPC's own memory for messages: beyond it, gRPC stops reading from its connections.
  grpc::ResourceQuota quota("hpvmd");
  quota.Resize(kTransportBytesMax);
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
}

}  // namespace

grpc::Status ToGrpc(const Outcome& outcome) {
  if (outcome.ok()) {
    return grpc::Status::OK;
  }
  const auto code = static_cast<grpc::StatusCode>(outcome.status.code());
  if (const std::optional<v1::Status> shortened = ShortenedForMetadata(outcome); shortened.has_value()) {
    return grpc::Status(code, shortened->message(), shortened->SerializeAsString());
  }
  std::string text = Message(outcome.status);
  if (const Duration wait = RetryAfterOf(outcome.status); wait > Duration{0} && !outcome.detail.has_value()) {
    return grpc::Status(code, std::move(text), ToMessage(Later(outcome.status, wait)).SerializeAsString());
  }
  return outcome.detail.has_value() ? grpc::Status(code, std::move(text), ToMessage(outcome).SerializeAsString())
                                    : grpc::Status(code, std::move(text));
}

// gRPC's reflection library enables itself where it is linked.
class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) { return plugin->name() == "proto_server_reflection"; });
  }
};

using ConnectionTaker = grpc::experimental::ExternalConnectionAcceptor;

FrontOptions OptionsOf(const Config& config) {
  FrontOptions options;
  options.frames.control_frames_per_second = config.limits_control_frames_per_second_max;
  options.frames.resets_per_second = config.limits_resets_per_second_max;
  options.frames.header_bytes_per_second = config.limits_header_bytes_per_second_max;
  // gRPC reports metadata that is a little too large to the client; the front ends connections with much larger
  // metadata.
  options.frames.header_block_bytes = std::max(options.frames.header_block_bytes, 2 * config.limits_metadata_bytes_max);
  options.frames.calls = config.limits_streams_per_connection_max;
  options.calls_per_peer = config.limits_calls_per_peer_max;
  options.frames.stall_max = std::chrono::milliseconds(config.limits_write_stall_ms);
  options.handshake_max = std::chrono::milliseconds(config.limits_handshake_ms);
  options.client_certificates = config.tls_client_certificates;
  return options;
}

// A ring's call is cut with its connection, which was not too old when the ring was opened. Until then its runs can
// end.
Duration AgeOf(const Config& config) {
  return std::chrono::milliseconds(
      static_cast<int64_t>(std::min(config.limits_connection_age_ms, config.jobs_deadline_max_ms)));
}

struct GrpcServer::Parts {
  Parts(Core& core, const Access& access, const LocalCallers& local)
      : admission(AdmissionLimits(), core.clock()),
        scopes{{core.observer(), core.clock(), *access.audit}},
        gate(core, *access.authenticator, *access.directory, *access.audit),
        rings{core,
              admission,
              gate,
              scopes.witnesses,
              local,
              std::make_shared<RingQuota>(),
              AgeOf(*core.config()),
              std::chrono::milliseconds(core.config()->limits_write_stall_ms)},
        service(core, admission, gate, rings),
        admin(CreateAdminService(core, gate, *access.directory)),
        access(access),
        operations(CreateOperationsService(core, gate, this->access)) {}
  Admission admission;
  CallScopes scopes;
  Gate gate;
  RingParts rings;
  Service service;
  std::unique_ptr<grpc::Service> admin;
  const Access access;
  std::unique_ptr<grpc::Service> operations;
  std::unique_ptr<grpc::Server> server;
  // A connection's way to the server; each member is called by the thread of the next.
  std::unique_ptr<ConnectionTaker> taker;
  std::unique_ptr<Front> front;
  std::unique_ptr<ConnectionAcceptor> acceptor;
};

GrpcServer::GrpcServer() = default;

StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(Core& core, const std::vector<ListenAddress>& addresses,
                                                        const Access& access, const LocalCallers& local) {
  const std::shared_ptr<const Config> held = core.config();
  const Config& config = *held;
  std::unique_ptr<GrpcServer> server(new GrpcServer());
  server->parts_ = std::make_unique<Parts>(core, access, local);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  // Reflection does not authenticate callers.
  if (config.server_reflection && access.directory->is_open()) {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  } else {
    builder.SetOption(std::make_unique<WithoutReflection>());
  }
  SetLimits(config, builder);
  HPVMD_RETURN_IF_ERROR(server->Listen(config, addresses, core.observer(), builder));
  builder.RegisterService(&server->parts_->service);
  builder.RegisterService(server->parts_->admin.get());
  builder.RegisterService(server->parts_->operations.get());
  server->parts_->scopes.AddTo(builder);
  server->parts_->server = builder.BuildAndStart();
  if (server->parts_->server == nullptr) {
    return Internal("gRPC's server did not start.");
  }
  HPVMD_RETURN_IF_ERROR(server->parts_->front->Start());
  HPVMD_RETURN_IF_ERROR(server->parts_->acceptor->Start());
  server->SetHealth(/*live=*/true, /*ready=*/false);
  return server;
}

Status GrpcServer::Listen(const Config& config, const std::vector<ListenAddress>& addresses, Observer& observer,
                          grpc::ServerBuilder& builder) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<TlsWatch> tls, WatchTls(config, observer));
  constexpr auto kFromFd = grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD;
  Parts& parts = *parts_;
  // Plain text, because the front has decrypted what gRPC reads.
  parts.taker = builder.experimental().AddExternalConnectionAcceptor(kFromFd, grpc::InsecureServerCredentials());
  const auto give = [&taker = *parts.taker](UniqueFd connection) {
    ConnectionTaker::NewConnectionParameters parameters;
    parameters.fd = connection.release();
    taker.HandleNewConnection(&parameters);
  };
  parts.front = std::make_unique<Front>(OptionsOf(config), std::move(tls), give, observer);
  const auto take = [&front = *parts.front](AcceptedConnection connection) { front.Take(std::move(connection)); };
  parts.acceptor =
      std::make_unique<ConnectionAcceptor>(ConnectionLimits{.connections_max = config.limits_connections_max,
                                                            .per_peer_max = config.limits_connections_per_peer_max,
                                                            .per_user_max = config.limits_connections_per_user_max});
  for (const ListenAddress& address : addresses) {
    const std::string shown = (address.is_unix ? "unix:" : "") + address.target;
    if (address.is_unix) {
      HPVMD_RETURN_IF_ERROR(
          parts.acceptor->ListenUnix(address.target, static_cast<mode_t>(config.server_socket_mode), take));
      socket_paths_.push_back(address.target);
      addresses_.push_back(shown);
      continue;
    }
    const HostPort where = SplitHostPort(address);
    const StatusOr<int> port = parts.acceptor->ListenTcp(where.host, where.port, take);
    if (!port.ok()) {
      return Unavailable("Listening on \"" + shown + "\" failed: " + Message(port.status()));
    }
    addresses_.push_back(shown.substr(0, shown.rfind(':') + 1) + std::to_string(*port));
  }
  return absl::OkStatus();
}

GrpcServer::~GrpcServer() {
  if (parts_->server != nullptr) {
    Shutdown(Duration{0});
  }
  parts_->acceptor.reset();  // Its thread calls the front, whose thread calls the taker.
  parts_->front.reset();
  for (const std::string& path : socket_paths_) {
    unlink(path.c_str());
  }
}

void GrpcServer::SetHealth(bool live, bool ready) {
  if (grpc::HealthCheckServiceInterface* health = parts_->server->GetHealthCheckService()) {
    health->SetServingStatus("", live);
    for (const char* name : {"hpvm.Ready", "hpvm.v1.Hpvm"}) {
      health->SetServingStatus(name, ready && !ends_.load());
    }
  }
}

void GrpcServer::AnnounceEnd() {
  ends_.store(true);
  SetHealth(/*live=*/true, /*ready=*/false);
}

void GrpcServer::Shutdown(Duration grace) { parts_->server->Shutdown(std::chrono::system_clock::now() + grace); }

}  // namespace hpvm::server
