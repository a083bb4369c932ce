// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/connection.h"

#include <grpcpp/grpcpp.h>

#include <chrono>

#include "client/status/status.h"

#include "base/hash.h"
#include "hpvm/v1/service.grpc.pb.h"

namespace hpvm::chaos {
namespace {

constexpr auto kCallWithin = std::chrono::seconds(10);
constexpr int kReconnectMsMax = 100;

std::string HashText(std::string_view bytes) { return ToHex(HashOf(bytes)); }

}  // namespace

struct Connection::Impl {
  std::unique_ptr<v1::Hpvm::Stub> stub;

  static void Begin(grpc::ClientContext& context, const std::string& tenant, std::chrono::nanoseconds within) {
    context.AddMetadata("hpvm-tenant", tenant);
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + within);
  }
  template <typename Request, typename Response>
  Status Call(grpc::Status (v1::Hpvm::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
              const std::string& tenant, const Request& request, Response* response) {
    grpc::ClientContext context;
    Begin(context, tenant, kCallWithin);
    return FromGrpc((stub.get()->*method)(&context, request, response));
  }
  template <typename Request, typename Response>
  Status Put(std::unique_ptr<grpc::ClientWriter<Request>> (v1::Hpvm::Stub::*method)(grpc::ClientContext*, Response*),
             const std::string& tenant, const std::string& bytes) {
    grpc::ClientContext context;
    Begin(context, tenant, kCallWithin);
    Request request;
    Response response;
    request.mutable_header()->set_sha256(HashText(bytes));
    request.mutable_header()->set_size_bytes(bytes.size());
    request.set_data(bytes);
    auto writer = (stub.get()->*method)(&context, &response);
    writer->Write(request);
    writer->WritesDone();
    return FromGrpc(writer->Finish());
  }
};

Connection::Connection(const std::string& endpoint, std::string tenant, std::string module, Journal& journal)
    : tenant_(std::move(tenant)),
      module_(std::move(module)),
      module_sha256_(HashText(module_)),
      journal_(journal),
      impl_(std::make_unique<Impl>()) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMsMax);
  impl_->stub = v1::Hpvm::NewStub(grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments));
}

Connection::~Connection() = default;

void Connection::Failed(const char* method, int64_t start_ns, const Status& status, const std::string& about) {
  if (!status.ok()) {
    journal_.Write("fail", "t0=" + std::to_string(start_ns) + "\tt1=" + std::to_string(NowNs()) + "\tmethod=" + method +
                               "\tcode=" + std::to_string(static_cast<int>(status.code())) + "\tabout=" + about +
                               "\ttext=" + Clean(Message(status)));
  }
}

Status Connection::Upload(Kind kind, uint32_t amount) {
  const int64_t start = NowNs();
  Status status = impl_->Put<v1::PutModuleRequest, v1::PutModuleResponse>(&v1::Hpvm::Stub::PutModule, tenant_, module_);
  if (status.ok()) {
    status = impl_->Put<v1::PutGraphRequest, v1::PutGraphResponse>(&v1::Hpvm::Stub::PutGraph, tenant_,
                                                                   DocumentOf(kind, amount));
  }
  Failed("Put", start, status, Name(kind));
  return status;
}

Status Connection::Submit(const Work& work, v1::SubmitResponse* response) {
  const int64_t start = NowNs();
  Status status;
  if (!work.retry_of.empty()) {
    v1::RetryJobRequest request;
    request.mutable_options()->set_idempotency_key(work.key);
    request.set_job_id(work.retry_of);
    status = impl_->Call(&v1::Hpvm::Stub::RetryJob, tenant_, request, response);
  } else {
    const v1::SubmitRequest request = RequestOf(work, HashText(DocumentOf(work.kind, work.amount)), module_sha256_);
    status = impl_->Call(&v1::Hpvm::Stub::Submit, tenant_, request, response);
    // Uploads are lost with the daemon.
    if (status.code() == absl::StatusCode::kNotFound && Upload(work.kind, work.amount).ok()) {
      status = impl_->Call(&v1::Hpvm::Stub::Submit, tenant_, request, response);
    }
  }
  Failed("Submit", start, status, work.key);
  return status;
}

Status Connection::GetJob(const std::string& id, v1::Job* job) {
  const int64_t start = NowNs();
  v1::GetJobRequest request;
  request.set_job_id(id);
  v1::GetJobResponse response;
  const Status status = impl_->Call(&v1::Hpvm::Stub::GetJob, tenant_, request, &response);
  *job = std::move(*response.mutable_job());
  Failed("GetJob", start, status, id);
  return status;
}

Status Connection::Cancel(const std::string& id, v1::CancelJobResponse* response) {
  const int64_t start = NowNs();
  v1::CancelJobRequest request;
  request.set_job_id(id);
  const Status status = impl_->Call(&v1::Hpvm::Stub::CancelJob, tenant_, request, response);
  Failed("CancelJob", start, status, id);
  return status;
}

Status Connection::List(const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
  const int64_t start = NowNs();
  const Status status = impl_->Call(&v1::Hpvm::Stub::ListJobs, tenant_, request, response);
  Failed("ListJobs", start, status, "");
  return status;
}

Status Connection::Fetch(const std::string& id, const std::string& name, std::string* bytes) {
  const int64_t start = NowNs();
  grpc::ClientContext context;
  Impl::Begin(context, tenant_, kCallWithin);
  v1::FetchOutputRequest request;
  request.set_job_id(id);
  request.set_name(name);
  const auto reader = impl_->stub->FetchOutput(&context, request);
  v1::FetchOutputResponse part;
  bytes->clear();
  while (reader->Read(&part)) {
    bytes->append(part.data());
  }
  const Status status = FromGrpc(reader->Finish());
  Failed("FetchOutput", start, status, id);
  return status;
}

Status Connection::Watch(const std::string& id, Duration within, const std::function<void(const v1::Job&)>& on_job) {
  const int64_t start = NowNs();
  grpc::ClientContext context;
  Impl::Begin(context, tenant_, within);
  v1::WatchJobRequest request;
  request.set_job_id(id);
  const auto reader = impl_->stub->WatchJob(&context, request);
  v1::JobEvent event;
  while (reader->Read(&event)) {
    if (event.has_job()) {
      on_job(event.job());
    }
  }
  const Status status = FromGrpc(reader->Finish());
  if (status.code() != absl::StatusCode::kDeadlineExceeded) {  // The wait ended as requested.
    Failed("WatchJob", start, status, id);
  }
  return status;
}

StatusOr<std::string> Connection::Prepare(const Work& work) {
  const std::pair<Kind, uint32_t> graph{work.kind, work.amount};
  {
    std::lock_guard lock(mutex_);
    if (const auto found = handles_.find(graph); found != handles_.end()) {
      return found->second;
    }
  }
  HPVMD_RETURN_IF_ERROR(Upload(work.kind, work.amount));
  const v1::SubmitRequest same = RequestOf(work, HashText(DocumentOf(work.kind, work.amount)), module_sha256_);
  v1::PrepareGraphRequest request;
  request.set_graph_sha256(same.document().graph_sha256());
  *request.mutable_modules() = same.document().modules();
  v1::PrepareGraphResponse response;
  const int64_t start = NowNs();
  const Status status = impl_->Call(&v1::Hpvm::Stub::PrepareGraph, tenant_, request, &response);
  Failed("PrepareGraph", start, status, Name(work.kind));
  HPVMD_RETURN_IF_ERROR(status);
  std::lock_guard lock(mutex_);
  return handles_[graph] = response.handle();
}

Status Connection::Run(const Work& work, std::string* bytes) {
  HPVMD_ASSIGN_OR_RETURN(const std::string handle, Prepare(work));
  const int64_t start = NowNs();
  v1::RunRequest request;
  request.set_handle(handle);
  *request.mutable_inputs() = RequestOf(work, "", "").inputs();
  v1::RunResponse response;
  const Status status = impl_->Call(&v1::Hpvm::Stub::Run, tenant_, request, &response);
  if (status.code() == absl::StatusCode::kNotFound) {  // Handles are lost with the daemon.
    std::lock_guard lock(mutex_);
    handles_.clear();
  }
  if (status.ok() && response.outputs_size() == 1) {
    *bytes = response.outputs(0).tensor().data();
  }
  Failed("Run", start, status, Name(work.kind));
  return status;
}

Status Connection::Info(v1::ServerInfoResponse* response) {
  const int64_t start = NowNs();
  const Status status = impl_->Call(&v1::Hpvm::Stub::ServerInfo, tenant_, v1::ServerInfoRequest(), response);
  Failed("ServerInfo", start, status, "");
  return status;
}

}  // namespace hpvm::chaos
