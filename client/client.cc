// SPDX-License-Identifier: Apache-2.0
#include "hpvm/client.h"

#include <algorithm>
#include <utility>

#include "client/async_runs.h"
#include "client/channel.h"
#include "client/connection.h"
#include "client/run_call.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace hpvm {

Client::Client(std::unique_ptr<Connection> connection)
    : connection_(std::move(connection)), async_(std::make_unique<AsyncRuns>(*this)) {}

// The pool's memory counts towards the tenant's quota for as long as it is registered.
Client::~Client() {
  async_ = nullptr;
  CallOptions call;
  call.timeout = std::chrono::seconds(1);
  const Time until = RealClock().Now() + call.timeout;
  for (const std::string& id : connection_->local.Clear()) {
    if (RealClock().Now() < until) {
      DeleteBuffer(id, call).IgnoreError();
    }
  }
}

StatusOr<std::unique_ptr<Client>> Client::Connect(const ClientOptions& options) {
  auto connection = std::make_unique<Connection>();
  connection->options = options;
  HPVMD_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(options.endpoint, options.credentials));
  HPVMD_ASSIGN_OR_RETURN(connection->bearer, MakeBearer(options.credentials, endpoint));
  HPVMD_ASSIGN_OR_RETURN(connection->channel, OpenChannel(endpoint, options.credentials, options.connect_timeout));
  connection->stub = v1::Hpvm::NewStub(connection->channel);
  if (endpoint.unix_path.empty()) {
    connection->local.Refuse("The server is not reached through a Unix socket.");
  } else {
    connection->memory_path = endpoint.unix_path + ".memory";
  }
  if (!options.local_memory) {
    connection->local.Refuse("ClientOptions.local_memory is false.");
  }
  connection->ring = std::make_unique<LocalRing>(*connection->stub, connection->memory_path,
                                                 [raw = connection.get()](grpc::ClientContext& context) {
                                                   std::string secret;
                                                   return raw->Sign(context, raw->options.connect_timeout, &secret);
                                                 });
  if (endpoint.unix_path.empty()) {
    connection->ring->Refuse("The server is not reached through a Unix socket.");
  } else if (!options.local_ring) {
    connection->ring->Refuse("ClientOptions.local_ring is false.");
  }
  return std::unique_ptr<Client>(new Client(std::move(connection)));
}

StatusOr<v1::ServerInfoResponse> Client::ServerInfo(const CallOptions& call) {
  return connection_->Call(&v1::Hpvm::Stub::ServerInfo, v1::ServerInfoRequest(), call);
}

StatusOr<v1::ListDevicesResponse> Client::ListDevicesAndSandbox(const CallOptions& call) {
  return connection_->Call(&v1::Hpvm::Stub::ListDevices, v1::ListDevicesRequest(), call);
}

StatusOr<std::vector<v1::Device>> Client::ListDevices(const CallOptions& call) {
  HPVMD_ASSIGN_OR_RETURN(const v1::ListDevicesResponse response, ListDevicesAndSandbox(call));
  return std::vector<v1::Device>(response.devices().begin(), response.devices().end());
}

StatusOr<v1::ListCostsResponse> Client::ListCosts(const std::string& handle, const CallOptions& call) {
  v1::ListCostsRequest request;
  request.set_handle(connection_->graphs.Current(handle));
  return connection_->Call(&v1::Hpvm::Stub::ListCosts, request, call);
}

StatusOr<std::string> Client::PutModule(std::span<const uint8_t> bytes, v1::ModuleKind kind, const std::string& name,
                                        const CallOptions& call) {
  v1::PutModuleRequest first;
  first.mutable_header()->set_kind(kind);
  first.mutable_header()->set_name(name);
  return connection_->Put<v1::PutModuleRequest, v1::PutModuleResponse>(&v1::Hpvm::Stub::PutModule, first, bytes, call);
}

StatusOr<std::string> Client::PutGraph(std::string_view document, const CallOptions& call) {
  return connection_->Put<v1::PutGraphRequest, v1::PutGraphResponse>(&v1::Hpvm::Stub::PutGraph, v1::PutGraphRequest(),
                                                                     BytesOf(document), call);
}

Status Client::PutAll(std::string_view document, const Modules& modules, const CallOptions& call, std::string* graph,
                      google::protobuf::RepeatedPtrField<v1::ModuleBinding>* bindings) {
  bindings->Clear();
  const auto bind = [&](const std::string& name, const std::string& hash) {
    v1::ModuleBinding* binding = bindings->Add();
    binding->set_name(name);
    binding->set_sha256(hash);
  };
  for (const auto& [name, bytes] : modules.bytes) {
    HPVMD_ASSIGN_OR_RETURN(const std::string hash, While(PutModule(bytes, v1::MODULE_KIND_UNSPECIFIED, name, call),
                                                         "uploading module \"" + name + "\""));
    bind(name, hash);
  }
  for (const auto& [name, hash] : modules.hashes) {
    bind(name, hash);
  }
  HPVMD_ASSIGN_OR_RETURN(*graph, PutGraph(document, call));
  return absl::OkStatus();
}

StatusOr<Prepared> Client::Prepare(std::string_view document, const Modules& modules, const CallOptions& call,
                                   const PrepareOptions& options) {
  // Read before the graph is prepared, so that a server that restarts meanwhile counts as another one.
  int64_t started_ns = 0;
  if (connection_->options.prepare_again) {
    const StatusOr<v1::ServerInfoResponse> info = ServerInfo(call);
    started_ns = info.ok() ? info->started_unix_ns() : 0;
  }
  HPVMD_ASSIGN_OR_RETURN(Prepared prepared, PrepareOnce(document, modules, call, options));
  if (started_ns != 0) {
    connection_->graphs.Add(prepared.handle, {std::string(document), modules, options, started_ns});
  }
  return prepared;
}

StatusOr<Prepared> Client::Prepare(const Graph& graph, const CallOptions& call, const PrepareOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(const std::string document, graph.document());
  HPVMD_ASSIGN_OR_RETURN(const Modules modules, graph.modules());
  return Prepare(document, modules, call, options);
}

StatusOr<bool> Client::PrepareAgain(const std::string& handle, const std::string& used, const CallOptions& call) {
  const CallOptions preparing = WithoutKey(call);
  HPVMD_ASSIGN_OR_RETURN(const bool is_other,
                         connection_->graphs.PrepareAgain(
                             handle, used,
                             [&]() -> StatusOr<int64_t> {
                               HPVMD_ASSIGN_OR_RETURN(const v1::ServerInfoResponse info, ServerInfo(preparing));
                               return info.started_unix_ns();
                             },
                             [&](const PreparedGraphs::Source& source) -> StatusOr<std::string> {
                               HPVMD_ASSIGN_OR_RETURN(Prepared prepared, PrepareOnce(source.document, source.modules,
                                                                                     preparing, source.options));
                               if (connection_->options.on_prepared_again) {
                                 connection_->options.on_prepared_again(handle);
                               }
                               return std::move(prepared.handle);
                             }));
  return is_other;
}

StatusOr<Prepared> Client::PrepareOnce(std::string_view document, const Modules& modules, const CallOptions& call,
                                       const PrepareOptions& options) {
  v1::PrepareGraphRequest request;
  request.set_check(options.check);
  StatusOr<v1::PrepareGraphResponse> response = NotFound("Nothing was sent.");
  // A server that restarted after the upload no longer has it: everything is sent once more.
  for (int upload = 0; upload < 2 && response.status().code() == absl::StatusCode::kNotFound; ++upload) {
    HPVMD_RETURN_IF_ERROR(PutAll(document, modules, call, request.mutable_graph_sha256(), request.mutable_modules()));
    response = connection_->Once(&v1::Hpvm::Stub::PrepareGraph, request, call);
  }
  HPVMD_RETURN_IF_ERROR(response.status());
  return Prepared{response->handle(), std::move(*response->mutable_summary()),
                  std::move(*response->mutable_diagnostics())};
}

Status Client::Release(const std::string& handle, const CallOptions& call) {
  v1::ReleaseGraphRequest request;
  request.set_handle(connection_->graphs.Remove(handle));
  return connection_->Once(&v1::Hpvm::Stub::ReleaseGraph, request, call).status();
}

StatusOr<std::vector<v1::PreparedGraph>> Client::ListGraphs(const CallOptions& call) {
  return connection_->List<v1::PreparedGraph>(*connection_->stub, &v1::Hpvm::Stub::ListGraphs,
                                              &v1::ListGraphsResponse::mutable_graphs, call);
}

StatusOr<std::vector<v1::StoredModule>> Client::ListModules(const CallOptions& call) {
  return connection_->List<v1::StoredModule>(*connection_->stub, &v1::Hpvm::Stub::ListModules,
                                             &v1::ListModulesResponse::mutable_modules, call);
}

Status Client::DeleteModule(const std::string& sha256, const CallOptions& call) {
  v1::DeleteModuleRequest request;
  request.set_sha256(sha256);
  return connection_->Once(&v1::Hpvm::Stub::DeleteModule, request, call).status();
}

Status Client::BindInputs(const std::map<std::string, Tensor>& inputs, const CallOptions& call,
                          google::protobuf::RepeatedPtrField<v1::InputBinding>* bindings,
                          std::vector<std::string>* created, LocalRun* local) {
  uint64_t inline_bytes = 0;
  for (const auto& [name, tensor] : inputs) {
    v1::InputBinding* binding = bindings->Add();
    binding->set_name(name);
    if (tensor.data.size() <= limits::kInlineTensorBytesMax &&
        inline_bytes + tensor.data.size() <= kInlineTotalBytesMax) {
      inline_bytes += tensor.data.size();
      binding->mutable_tensor()->set_type(ToProto(tensor.type));
      binding->mutable_tensor()->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
      binding->mutable_tensor()->set_data(tensor.data.data(), tensor.data.size());
      continue;
    }
    if (local != nullptr && local->Tries() && local->BindInput(tensor, binding)) {
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(const v1::Buffer buffer, While(CreateBuffer(tensor.type, tensor.shape, call),
                                                          "making room for input \"" + name + "\""));
    created->push_back(buffer.id());
    binding->mutable_buffer()->set_buffer_id(buffer.id());
    HPVMD_RETURN_IF_ERROR(While(WriteBuffer(buffer.id(), tensor.data, 0, call), "sending input \"" + name + "\""));
  }
  return absl::OkStatus();
}

StatusOr<Tensor> Client::TakeOutput(v1::OutputValue& value, const LocalMemory* local, const CallOptions& call) {
  if (value.has_tensor()) {
    uint64_t bytes = 0;
    HPVMD_ASSIGN_OR_RETURN(Tensor tensor, TensorWithoutData(value.tensor().type(), value.tensor().shape(), &bytes));
    if (value.tensor().data().size() != bytes) {
      return Internal("The server sent " + std::to_string(value.tensor().data().size()) + " bytes for " +
                      Describe(tensor.type, tensor.shape) + ".");
    }
    const std::span<const uint8_t> data = BytesOf(value.tensor().data());
    tensor.data.assign(data.begin(), data.end());
    return tensor;
  }
  uint64_t bytes = 0;
  HPVMD_ASSIGN_OR_RETURN(Tensor tensor, TensorWithoutData(value.buffer().type(), value.buffer().shape(), &bytes));
  if (local != nullptr) {
    if (bytes > local->memory.size()) {
      return Internal("The server says that " + Describe(tensor.type, tensor.shape) + " is in a buffer of " +
                      std::to_string(local->memory.size()) + " bytes.");
    }
    Reserve(bytes, &tensor.data);
    tensor.data.assign(local->memory.data(), local->memory.data() + bytes);
  } else if (bytes > 0) {
    Reserve(bytes, &tensor.data);
    tensor.data.resize(bytes);
    HPVMD_RETURN_IF_ERROR(ReadBuffer(value.buffer().buffer_id(), tensor.data, 0, call));
  }
  return tensor;
}

void Client::DeleteAll(const std::vector<std::string>& buffers, const CallOptions& call) {
  for (const std::string& id : buffers) {
    DeleteBuffer(id, call).IgnoreError();  // On failure they count towards the tenant's quota.
  }
}

StatusOr<v1::RunResponse> Client::Run(const v1::RunRequest& request, const CallOptions& call) {
  return SendRun(request, call);
}

StatusOr<v1::RunResponse> Client::SendRun(v1::RunRequest request, const CallOptions& call) {
  *request.mutable_options() = call.request;
  HPVMD_ASSIGN_OR_RETURN(std::optional<v1::RunResponse> by_ring, connection_->ring->Run(request, call));
  if (!by_ring.has_value()) {
    HPVMD_ASSIGN_OR_RETURN(by_ring,
                           connection_->OnceOn(*connection_->stub, &v1::Hpvm::Stub::Run, std::move(request), call));
  }
  v1::RunResponse& response = *by_ring;
  if (!response.has_log()) {
    HPVMD_RETURN_IF_ERROR(FromProto(response.error()));
  }
  return std::move(response);
}

std::string Client::CallPath() const { return connection_->ring->Path(); }

StatusOr<RunOutcome> Client::Run(const std::string& handle, const std::map<std::string, Tensor>& inputs,
                                 const RunOptions& options) {
  RunCall run(*this, handle, inputs, options);
  HPVMD_ASSIGN_OR_RETURN(v1::RunRequest request, run.Bind());
  return run.Finish(SendRun(std::move(request), options.call));
}

StatusOr<RunOutcome> Client::TakeRun(v1::RunResponse& response, const CallOptions& call,
                                     const std::map<std::string, std::string>& bound, std::vector<std::string>* buffers,
                                     const LocalRun* local) {
  RunOutcome outcome;
  Status taken = FromProto(response.error());
  for (v1::OutputValue& value : *response.mutable_outputs()) {
    if (bound.contains(value.name())) {
      outcome.buffers[value.name()] = ViewOf(value.buffer());
      continue;
    }
    const std::string& id = value.buffer().buffer_id();
    const LocalMemory* const at = local != nullptr && value.has_buffer() ? local->Find(id) : nullptr;
    if (value.has_buffer() && at == nullptr) {
      buffers->push_back(id);
    }
    if (!taken.ok()) {
      continue;
    }
    StatusOr<Tensor> tensor = TakeOutput(value, at, call);
    if (tensor.ok()) {
      outcome.outputs[value.name()] = *std::move(tensor);
    } else {
      taken = While(tensor.status(), "fetching output \"" + value.name() + "\"");
    }
  }
  HPVMD_RETURN_IF_ERROR(taken);
  outcome.timing = response.timing();
  outcome.placements.assign(response.placements().begin(), response.placements().end());
  outcome.nodes_run = response.nodes_run();
  outcome.repetitions = response.repetitions();
  outcome.converged = response.converged();
  outcome.traffic = response.traffic();
  return outcome;
}

StatusOr<v1::Buffer> Client::CreateBuffer(ElementType type, std::span<const uint64_t> shape, const CallOptions& call) {
  v1::CreateBufferRequest request;
  request.set_type(ToProto(type));
  request.mutable_shape()->Add(shape.begin(), shape.end());
  HPVMD_ASSIGN_OR_RETURN(v1::CreateBufferResponse response,
                         connection_->Once(&v1::Hpvm::Stub::CreateBuffer, request, call));
  return std::move(*response.mutable_buffer());
}

Status Client::WriteBuffer(const std::string& id, std::span<const uint8_t> bytes, uint64_t offset,
                           const CallOptions& call) {
  v1::WriteBufferRequest first;
  first.mutable_header()->set_buffer_id(id);
  first.mutable_header()->set_offset(offset);
  *first.mutable_header()->mutable_options() = call.request;
  return connection_
      ->Upload<v1::WriteBufferRequest, v1::WriteBufferResponse>(&v1::Hpvm::Stub::WriteBuffer, first, bytes, call)
      .status();
}

Status Client::ReadBuffer(const std::string& id, std::span<uint8_t> into, uint64_t offset, const CallOptions& call) {
  v1::ReadBufferRequest request;
  request.set_buffer_id(id);
  request.set_offset(offset);
  request.set_size_bytes(into.size());
  *request.mutable_options() = call.request;
  uint64_t filled = 0;
  HPVMD_RETURN_IF_ERROR(connection_->Attempt(call, [&](grpc::ClientContext& context) {
    std::unique_ptr<grpc::ClientReader<v1::ReadBufferResponse>> reader =
        connection_->stub->ReadBuffer(&context, request);
    v1::ReadBufferResponse part;
    filled = 0;
    while (reader->Read(&part)) {
      if (part.data().size() > into.size() - filled) {
        context.TryCancel();
        break;
      }
      std::copy(part.data().begin(), part.data().end(), into.begin() + static_cast<ptrdiff_t>(filled));
      filled += part.data().size();
    }
    return FromGrpc(reader->Finish());
  }));
  return filled == into.size()
             ? absl::OkStatus()
             : DataLoss("The server sent " + std::to_string(filled) + " of " + std::to_string(into.size()) + " bytes.");
}

Status Client::DeleteBuffer(const std::string& id, const CallOptions& call) {
  v1::DeleteBufferRequest request;
  request.set_buffer_id(id);
  return connection_->Once(&v1::Hpvm::Stub::DeleteBuffer, request, call).status();
}

StatusOr<std::vector<v1::Buffer>> Client::ListBuffers(const CallOptions& call) {
  return connection_->List<v1::Buffer>(*connection_->stub, &v1::Hpvm::Stub::ListBuffers,
                                       &v1::ListBuffersResponse::mutable_buffers, call);
}

}  // namespace hpvm
