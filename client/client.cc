// SPDX-License-Identifier: Apache-2.0
#include "client/client.h"

#include <algorithm>
#include <utility>

#include "client/status.h"
#include "grpcpp/grpcpp.h"

#include "base/hash.h"
#include "base/limits.h"
#include "hpvm/v1/service.grpc.pb.h"

namespace hpvm {
namespace {

// What one message's inline tensors may take together, below the server's limit for a message.
constexpr uint64_t kInlineTotalBytesMax = 3 * limits::kMiB;

v1::ElementType ToProto(ElementType type) { return static_cast<v1::ElementType>(type); }

StatusOr<ElementType> FromProto(v1::ElementType type) {
  if (type < v1::ELEMENT_TYPE_BOOL || type > v1::ELEMENT_TYPE_F64) {
    return Internal("The server sent an element type (" + std::to_string(type) + ") that is not known here.");
  }
  return static_cast<ElementType>(type);
}

template <typename Repeated>
StatusOr<Tensor> EmptyTensor(v1::ElementType type, const Repeated& shape) {
  Tensor tensor;
  HPVMD_ASSIGN_OR_RETURN(tensor.type, FromProto(type));
  tensor.shape.assign(shape.begin(), shape.end());
  HPVMD_ASSIGN_OR_RETURN(uint64_t bytes, TensorSizeBytes(tensor.type, tensor.shape));
  tensor.data.resize(bytes);
  return tensor;
}

}  // namespace

struct Client::Impl {
  std::string endpoint, tenant;
  std::unique_ptr<v1::Hpvm::Stub> stub;
  std::shared_ptr<grpc::Channel> channel;  // Shared because gRPC's interface says so.

  void Prepare(grpc::ClientContext& context, const CallOptions& call) const {
    if (!tenant.empty()) {
      context.AddMetadata("hpvm-tenant", tenant);
    }
    if (call.timeout != kNever) {
      context.set_deadline(std::chrono::system_clock::now() + call.timeout);
    }
  }

  // One unary call with the options that every request carries.
  template <typename Request, typename Response>
  StatusOr<Response> Call(grpc::Status (v1::Hpvm::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                          Request request, const CallOptions& call) const {
    grpc::ClientContext context;
    Prepare(context, call);
    *request.mutable_options() = call.request;
    Response response;
    HPVMD_RETURN_IF_ERROR(FromGrpc((stub.get()->*method)(&context, request, &response)));
    return response;
  }

  // Uploads in chunks; `header` is the first message, complete but for its data.
  template <typename Request, typename Response>
  StatusOr<Response> Upload(std::unique_ptr<grpc::ClientWriter<Request>> (v1::Hpvm::Stub::*method)(grpc::ClientContext*,
                                                                                                   Response*),
                            Request first, std::span<const uint8_t> bytes, const CallOptions& call) const {
    grpc::ClientContext context;
    Prepare(context, call);
    Response response;
    std::unique_ptr<grpc::ClientWriter<Request>> writer = (stub.get()->*method)(&context, &response);
    Request request = std::move(first);
    do {
      size_t size = std::min<size_t>(bytes.size(), limits::kChunkBytes);
      request.set_data(bytes.data(), size);
      bytes = bytes.subspan(size);
      if (!writer->Write(request)) {
        break;  // Finish says why.
      }
      request.clear_header();
    } while (!bytes.empty());
    writer->WritesDone();
    HPVMD_RETURN_IF_ERROR(FromGrpc(writer->Finish()));
    return response;
  }

  // Asks whether the server has these bytes with the header alone, then uploads. Both put calls answer alike.
  template <typename Request, typename Response>
  StatusOr<std::string> Put(std::unique_ptr<grpc::ClientWriter<Request>> (v1::Hpvm::Stub::*method)(grpc::ClientContext*,
                                                                                                   Response*),
                            Request first, std::span<const uint8_t> bytes, const CallOptions& call) const {
    std::string hash = ToHex(HashOf(bytes));
    first.mutable_header()->set_sha256(hash);
    first.mutable_header()->set_size_bytes(bytes.size());
    *first.mutable_header()->mutable_options() = call.request;
    if (bytes.size() > limits::kChunkBytes) {
      StatusOr<Response> known = Upload<Request, Response>(method, first, {}, call);
      if (known.ok() || known.status().code() != absl::StatusCode::kNotFound) {
        return known.ok() ? StatusOr<std::string>(hash) : known.status();
      }
    }
    HPVMD_ASSIGN_OR_RETURN([[maybe_unused]] Response response,
                           (Upload<Request, Response>(method, std::move(first), bytes, call)));
    return hash;
  }
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

StatusOr<std::unique_ptr<Client>> Client::Connect(const ClientOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->endpoint = options.endpoint;
  impl->tenant = options.tenant;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(limits::kMessageBytesMax));
  arguments.SetMaxSendMessageSize(static_cast<int>(limits::kMessageBytesMax));
  impl->channel = grpc::CreateCustomChannel(options.endpoint, grpc::InsecureChannelCredentials(), arguments);
  if (!impl->channel->WaitForConnected(std::chrono::system_clock::now() + options.connect_timeout)) {
    return Unavailable(
        "No hpvmd answers at \"" + options.endpoint + "\" within " +
        std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(options.connect_timeout).count()) +
        " ms.");
  }
  impl->stub = v1::Hpvm::NewStub(impl->channel);
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

StatusOr<v1::ServerInfoResponse> Client::ServerInfo(const CallOptions& call) {
  return impl_->Call(&v1::Hpvm::Stub::ServerInfo, v1::ServerInfoRequest(), call);
}

StatusOr<std::vector<v1::Device>> Client::ListDevices(const CallOptions& call) {
  HPVMD_ASSIGN_OR_RETURN(v1::ListDevicesResponse response,
                         impl_->Call(&v1::Hpvm::Stub::ListDevices, v1::ListDevicesRequest(), call));
  return std::vector<v1::Device>(response.devices().begin(), response.devices().end());
}

StatusOr<std::string> Client::PutModule(std::span<const uint8_t> bytes, v1::ModuleKind kind, const std::string& name,
                                        const CallOptions& call) {
  v1::PutModuleRequest first;
  first.mutable_header()->set_kind(kind);
  first.mutable_header()->set_name(name);
  return impl_->Put<v1::PutModuleRequest, v1::PutModuleResponse>(&v1::Hpvm::Stub::PutModule, first, bytes, call);
}

StatusOr<std::string> Client::PutGraph(std::string_view document, const CallOptions& call) {
  return impl_->Put<v1::PutGraphRequest, v1::PutGraphResponse>(
      &v1::Hpvm::Stub::PutGraph, v1::PutGraphRequest(),
      {reinterpret_cast<const uint8_t*>(document.data()), document.size()}, call);
}

namespace {

// The options of calls that prepare another one: the idempotency key is that one's alone.
CallOptions WithoutKey(CallOptions call) {
  call.request.clear_idempotency_key();
  return call;
}

// Uploads everything; fills what PrepareGraph and Submit need to name it.
Status PutAll(Client& client, std::string_view document, const Modules& modules, const CallOptions& call,
              std::string* graph, google::protobuf::RepeatedPtrField<v1::ModuleBinding>* bindings) {
  const auto bind = [&](const std::string& name, const std::string& hash) {
    v1::ModuleBinding* binding = bindings->Add();
    binding->set_name(name);
    binding->set_sha256(hash);
  };
  for (const auto& [name, bytes] : modules.bytes) {
    StatusOr<std::string> hash = client.PutModule(bytes, v1::MODULE_KIND_UNSPECIFIED, name, call);
    if (!hash.ok()) {
      return While(hash.status(), "uploading module \"" + name + "\"");
    }
    bind(name, *hash);
  }
  for (const auto& [name, hash] : modules.hashes) {
    bind(name, hash);
  }
  HPVMD_ASSIGN_OR_RETURN(*graph, client.PutGraph(document, call));
  return absl::OkStatus();
}

}  // namespace

StatusOr<Prepared> Client::Prepare(std::string_view document, const Modules& modules, const CallOptions& call,
                                   const PrepareOptions& options) {
  v1::PrepareGraphRequest request;
  request.set_check(options.check);
  HPVMD_RETURN_IF_ERROR(
      PutAll(*this, document, modules, call, request.mutable_graph_sha256(), request.mutable_modules()));
  HPVMD_ASSIGN_OR_RETURN(v1::PrepareGraphResponse response, impl_->Call(&v1::Hpvm::Stub::PrepareGraph, request, call));
  return Prepared{response.handle(), std::move(*response.mutable_summary()),
                  std::move(*response.mutable_diagnostics())};
}

Status Client::Release(const std::string& handle, const CallOptions& call) {
  v1::ReleaseGraphRequest request;
  request.set_handle(handle);
  return impl_->Call(&v1::Hpvm::Stub::ReleaseGraph, request, call).status();
}

Status Client::BindInputs(const std::map<std::string, Tensor>& inputs, const CallOptions& call,
                          google::protobuf::RepeatedPtrField<v1::InputBinding>* bindings,
                          std::vector<std::string>* created) {
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
    StatusOr<v1::Buffer> buffer = CreateBuffer(tensor.type, tensor.shape, call);
    if (!buffer.ok()) {
      return While(buffer.status(), "making room for input \"" + name + "\"");
    }
    created->push_back(buffer->id());
    binding->mutable_buffer()->set_buffer_id(buffer->id());
    HPVMD_RETURN_IF_ERROR(While(WriteBuffer(buffer->id(), tensor.data, 0, call), "sending input \"" + name + "\""));
  }
  return absl::OkStatus();
}

StatusOr<Tensor> Client::TakeOutput(v1::OutputValue& value, const CallOptions& call) {
  if (value.has_tensor()) {
    HPVMD_ASSIGN_OR_RETURN(Tensor tensor, EmptyTensor(value.tensor().type(), value.tensor().shape()));
    if (value.tensor().data().size() != tensor.data.size()) {
      return Internal("The server sent " + std::to_string(value.tensor().data().size()) + " bytes for " +
                      Describe(tensor.type, tensor.shape) + ".");
    }
    std::copy(value.tensor().data().begin(), value.tensor().data().end(), tensor.data.begin());
    return tensor;
  }
  HPVMD_ASSIGN_OR_RETURN(Tensor tensor, EmptyTensor(value.buffer().type(), value.buffer().shape()));
  if (!tensor.data.empty()) {
    HPVMD_RETURN_IF_ERROR(ReadBuffer(value.buffer().buffer_id(), tensor.data, 0, call));
  }
  return tensor;
}

void Client::DeleteAll(const std::vector<std::string>& buffers, const CallOptions& call) {
  for (const std::string& id : buffers) {
    DeleteBuffer(id, call).IgnoreError();  // The server ends them with the tenant's quota in any case.
  }
}

StatusOr<v1::RunResponse> Client::Run(const v1::RunRequest& request, const CallOptions& call) {
  return impl_->Call(&v1::Hpvm::Stub::Run, request, call);
}

StatusOr<RunOutcome> Client::Run(const std::string& handle, const std::map<std::string, Tensor>& inputs,
                                 const RunOptions& options) {
  v1::RunRequest request;
  request.set_handle(handle);
  request.set_repeat(options.repeat);
  request.set_placements_max(options.placements_max);
  request.set_log(options.log != nullptr);
  request.mutable_symbols()->insert(options.symbols.begin(), options.symbols.end());
  std::vector<std::string> buffers;
  Status bound = BindInputs(inputs, options.call, request.mutable_inputs(), &buffers);
  StatusOr<v1::RunResponse> response = bound.ok() ? Run(request, options.call) : StatusOr<v1::RunResponse>(bound);
  if (!response.ok()) {
    DeleteAll(buffers, options.call);
    return response.status();
  }
  if (options.log != nullptr) {
    *options.log = std::move(*response->mutable_log());
  }
  RunOutcome outcome;
  Status taken = FromProto(response->error());
  for (v1::OutputValue& value : *response->mutable_outputs()) {
    if (value.has_buffer()) {
      buffers.push_back(value.buffer().buffer_id());
    }
    StatusOr<Tensor> tensor = TakeOutput(value, options.call);
    if (!tensor.ok()) {
      taken = While(tensor.status(), "fetching output \"" + value.name() + "\"");
      break;
    }
    outcome.outputs[value.name()] = *std::move(tensor);
  }
  DeleteAll(buffers, options.call);
  HPVMD_RETURN_IF_ERROR(taken);
  outcome.timing = response->timing();
  outcome.placements.assign(response->placements().begin(), response->placements().end());
  outcome.nodes_run = response->nodes_run();
  return outcome;
}

StatusOr<v1::SubmitResponse> Client::Submit(std::string_view document, const Modules& modules,
                                            const std::map<std::string, Tensor>& inputs, const RunOptions& options,
                                            const std::string& name) {
  v1::SubmitRequest request;
  request.set_name(name);
  request.set_repeat(options.repeat);
  request.mutable_symbols()->insert(options.symbols.begin(), options.symbols.end());
  v1::GraphReference* reference = request.mutable_document();
  const CallOptions before = WithoutKey(options.call);
  HPVMD_RETURN_IF_ERROR(
      PutAll(*this, document, modules, before, reference->mutable_graph_sha256(), reference->mutable_modules()));
  std::vector<std::string> buffers;
  Status bound = BindInputs(inputs, before, request.mutable_inputs(), &buffers);
  StatusOr<v1::SubmitResponse> response =
      bound.ok() ? impl_->Call(&v1::Hpvm::Stub::Submit, request, options.call) : StatusOr<v1::SubmitResponse>(bound);
  DeleteAll(buffers, before);  // An accepted job keeps the bytes it uses.
  return response;
}

StatusOr<v1::Job> Client::GetJob(const std::string& id, const CallOptions& call) {
  v1::GetJobRequest request;
  request.set_job_id(id);
  HPVMD_ASSIGN_OR_RETURN(v1::GetJobResponse response, impl_->Call(&v1::Hpvm::Stub::GetJob, request, call));
  return std::move(*response.mutable_job());
}

StatusOr<v1::Job> Client::WatchJob(const std::string& id, const std::function<bool(const v1::JobEvent&)>& on_event,
                                   const CallOptions& call) {
  grpc::ClientContext context;
  impl_->Prepare(context, call);
  v1::WatchJobRequest request;
  request.set_job_id(id);
  *request.mutable_options() = call.request;
  std::unique_ptr<grpc::ClientReader<v1::JobEvent>> reader = impl_->stub->WatchJob(&context, request);
  v1::JobEvent event;
  v1::Job job;
  bool stopped = false;
  while (!stopped && reader->Read(&event)) {
    if (event.has_job()) {
      job = event.job();
    }
    stopped = !on_event(event);
  }
  if (stopped) {
    context.TryCancel();
  }
  Status ended = FromGrpc(reader->Finish());
  if (!ended.ok() && !stopped) {
    return ended;
  }
  return job;
}

StatusOr<v1::ListJobsResponse> Client::ListJobs(const v1::ListJobsRequest& request, const CallOptions& call) {
  return impl_->Call(&v1::Hpvm::Stub::ListJobs, request, call);
}

StatusOr<v1::Job> Client::CancelJob(const std::string& id, const CallOptions& call) {
  v1::CancelJobRequest request;
  request.set_job_id(id);
  HPVMD_ASSIGN_OR_RETURN(v1::CancelJobResponse response, impl_->Call(&v1::Hpvm::Stub::CancelJob, request, call));
  return std::move(*response.mutable_job());
}

StatusOr<Tensor> Client::FetchOutput(const std::string& job_id, const std::string& name, const CallOptions& call) {
  grpc::ClientContext context;
  impl_->Prepare(context, call);
  v1::FetchOutputRequest request;
  request.set_job_id(job_id);
  request.set_name(name);
  *request.mutable_options() = call.request;
  std::unique_ptr<grpc::ClientReader<v1::FetchOutputResponse>> reader = impl_->stub->FetchOutput(&context, request);
  v1::FetchOutputResponse part;
  StatusOr<Tensor> tensor = Internal("The server ended the stream without a header.");
  uint64_t filled = 0;
  while (reader->Read(&part)) {
    if (part.has_header()) {
      tensor = EmptyTensor(part.header().type(), part.header().shape());
    }
    if (!tensor.ok() || part.data().size() > tensor->data.size() - filled) {
      context.TryCancel();
      break;
    }
    std::copy(part.data().begin(), part.data().end(), tensor->data.begin() + static_cast<ptrdiff_t>(filled));
    filled += part.data().size();
  }
  HPVMD_RETURN_IF_ERROR(FromGrpc(reader->Finish()));
  if (tensor.ok() && filled != tensor->data.size()) {
    return DataLoss("The server sent " + std::to_string(filled) + " of " + std::to_string(tensor->data.size()) +
                    " bytes of output \"" + name + "\".");
  }
  return tensor;
}

StatusOr<v1::Buffer> Client::CreateBuffer(ElementType type, std::span<const uint64_t> shape, const CallOptions& call) {
  v1::CreateBufferRequest request;
  request.set_type(ToProto(type));
  request.mutable_shape()->Add(shape.begin(), shape.end());
  HPVMD_ASSIGN_OR_RETURN(v1::CreateBufferResponse response, impl_->Call(&v1::Hpvm::Stub::CreateBuffer, request, call));
  return std::move(*response.mutable_buffer());
}

Status Client::WriteBuffer(const std::string& id, std::span<const uint8_t> bytes, uint64_t offset,
                           const CallOptions& call) {
  v1::WriteBufferRequest first;
  first.mutable_header()->set_buffer_id(id);
  first.mutable_header()->set_offset(offset);
  *first.mutable_header()->mutable_options() = call.request;
  return impl_
      ->Upload<v1::WriteBufferRequest, v1::WriteBufferResponse>(&v1::Hpvm::Stub::WriteBuffer, first, bytes, call)
      .status();
}

Status Client::ReadBuffer(const std::string& id, std::span<uint8_t> into, uint64_t offset, const CallOptions& call) {
  grpc::ClientContext context;
  impl_->Prepare(context, call);
  v1::ReadBufferRequest request;
  request.set_buffer_id(id);
  request.set_offset(offset);
  request.set_size_bytes(into.size());
  *request.mutable_options() = call.request;
  std::unique_ptr<grpc::ClientReader<v1::ReadBufferResponse>> reader = impl_->stub->ReadBuffer(&context, request);
  v1::ReadBufferResponse part;
  uint64_t filled = 0;
  while (reader->Read(&part)) {
    if (part.data().size() > into.size() - filled) {
      context.TryCancel();
      break;
    }
    std::copy(part.data().begin(), part.data().end(), into.begin() + static_cast<ptrdiff_t>(filled));
    filled += part.data().size();
  }
  HPVMD_RETURN_IF_ERROR(FromGrpc(reader->Finish()));
  return filled == into.size()
             ? absl::OkStatus()
             : DataLoss("The server sent " + std::to_string(filled) + " of " + std::to_string(into.size()) + " bytes.");
}

Status Client::DeleteBuffer(const std::string& id, const CallOptions& call) {
  v1::DeleteBufferRequest request;
  request.set_buffer_id(id);
  return impl_->Call(&v1::Hpvm::Stub::DeleteBuffer, request, call).status();
}

}  // namespace hpvm
