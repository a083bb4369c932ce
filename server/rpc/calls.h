// SPDX-License-Identifier: Apache-2.0
// gRPC calls: reactors between gRPC and the core. Only .cc files of server/ that need gRPC include this header.
//
// A reactor owns itself until OnDone. Callbacks that the core calls later hold a shared reference, so they may
// outlive the call.
#ifndef HPVMD_SERVER_RPC_CALLS_H_
#define HPVMD_SERVER_RPC_CALLS_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "base/thread_watch.h"
#include "hpvm/v1/service.grpc.pb.h"
#include "server/core/core.h"
#include "server/rpc/admission.h"

namespace hpvm::server {

// Converts to gRPC's status; details go into the trailing metadata as a google.rpc.Status, as far as they fit.
grpc::Status ToGrpc(const Outcome& outcome);

// Ends a call whose response has a field for an error that does not fit there, if the caller asks for it.
template <typename Response>
grpc::Status ToGrpc(const Outcome& outcome, const v1::RequestOptions& options, Response* response) {
  if (outcome.ok() || !options.errors_in_body() || !ShortenedForMetadata(outcome).has_value()) {
    return ToGrpc(outcome);
  }
  response->Clear();
  *response->mutable_error() = ToMessage(outcome);
  return grpc::Status::OK;
}

// Callback times a callback of a long-lived call on one of gRPC's shared threads. `path` must never be freed, like
// gRPC's method names.
class Callback {
 public:
  // Without a tenant the time is attributed to none.
  Callback(const char* path, const TenantRef& tenant) : item_("grpc", path, NameOf(tenant)) {}
  Callback(const char* path, const StatusOr<TenantRef>& tenant)
      : item_("grpc", path, tenant.ok() ? NameOf(*tenant) : std::string_view()) {}

 private:
  static std::string_view NameOf(const TenantRef& tenant) {
    return tenant != nullptr ? std::string_view(tenant->name) : std::string_view();
  }
  const WatchedItem item_;
};

// SelfOwned keeps a reactor alive from its creation to OnDone, and longer while the core refers to it.
template <typename Call>
class SelfOwned : public std::enable_shared_from_this<Call> {
 public:
  template <typename... Args>
  static Call* Create(Args&&... args) {
    auto call = std::make_shared<Call>(std::forward<Args>(args)...);
    call->self_ = call;
    call->Begin();
    return call.get();
  }

 protected:
  void ReleaseSelf() { self_.reset(); }

 private:
  std::shared_ptr<Call> self_;
};

grpc::ServerUnaryReactor* StartRunCall(Core& core, Admission& admission, StatusOr<TenantRef> tenant,
                                       const v1::RunRequest* request, v1::RunResponse* response);
grpc::ServerReadReactor<v1::PutModuleRequest>* StartPutModule(Core& core, StatusOr<TenantRef> tenant,
                                                              v1::PutModuleResponse* response);
grpc::ServerReadReactor<v1::PutGraphRequest>* StartPutGraph(Core& core, StatusOr<TenantRef> tenant,
                                                            v1::PutGraphResponse* response);
grpc::ServerReadReactor<v1::WriteBufferRequest>* StartWriteBuffer(Core& core, StatusOr<TenantRef> tenant,
                                                                  v1::WriteBufferResponse* response);
grpc::ServerWriteReactor<v1::ReadBufferResponse>* StartReadBuffer(Core& core, StatusOr<TenantRef> tenant,
                                                                  const v1::ReadBufferRequest* request);
grpc::ServerWriteReactor<v1::FetchOutputResponse>* StartFetchOutput(Core& core, StatusOr<TenantRef> tenant,
                                                                    const v1::FetchOutputRequest* request);
grpc::ServerWriteReactor<v1::ExportJobResponse>* StartExportJob(Core& core, StatusOr<TenantRef> tenant,
                                                                const v1::ExportJobRequest* request);
grpc::ServerWriteReactor<v1::JobEvent>* StartWatch(Core& core, StatusOr<TenantRef> tenant,
                                                   const v1::WatchJobRequest* request);
grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamResponse>* StartStream(Core& core, Admission& admission,
                                                                            StatusOr<TenantRef> tenant);
grpc::ServerWriteReactor<v1::WatchJobsResponse>* StartWatchJobs(Core& core, StatusOr<TenantRef> tenant,
                                                                const v1::WatchJobsRequest* request);
grpc::ServerWriteReactor<v1::WatchDevicesResponse>* StartWatchDevices(Core& core, StatusOr<TenantRef> tenant,
                                                                      const v1::WatchDevicesRequest* request);

grpc::ServerWriteReactor<v1::RunManyResponse>* StartRunMany(Core& core, Admission& admission,
                                                            const StatusOr<TenantRef>& tenant,
                                                            const v1::RunManyRequest* request);

// Fills the outputs of Run and Stream from a finished run.
void FillOutputs(const RunOutcome& outcome, google::protobuf::RepeatedPtrField<v1::OutputValue>* outputs);
// Fills Run's response, except for the error, from a successful run; adds its log, if there is one and it is wanted,
// for any run. Returns true when there is a log.
bool FillRun(RunOutcome& outcome, bool wants_log, v1::RunResponse* response);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_CALLS_H_
