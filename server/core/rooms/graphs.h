// SPDX-License-Identifier: Apache-2.0
// Modules and documents, graphs that are prepared in the tenant's executor, and the handles that clients have of them.
#ifndef HPVMD_SERVER_CORE_ROOMS_GRAPHS_H_
#define HPVMD_SERVER_CORE_ROOMS_GRAPHS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "hpvm/v1/service.pb.h"
#include "server/core/rooms/devices.h"
#include "server/core/rooms/executors.h"
#include "server/core/rooms/quotas.h"
#include "server/core/state/core_context.h"
#include "server/core/state/execution.h"
#include "server/core/state/outcome.h"

namespace hpvm::server {

class Graphs : private CoreRoom {
 public:
  enum class BlobKind : uint8_t { kModule, kGraph };
  using NamedBlobs = std::map<std::string, BlobRef>;  // By name, so that a request's order does not matter.
  using Waiter = Preparation::Waiter;
  using Done = std::function<void(const Outcome&)>;
  Graphs(CoreContext& context, Quotas& quotas, Devices& devices, Executors& executors)
      : CoreRoom(context), quotas_(quotas), devices_(devices), executors_(executors) {}

  // --- For clients; these lock the mutex ---
  bool HasBlob(Tenant& tenant, BlobKind kind, const Sha256& hash);
  // Counts uploads in progress; each OK is answered by one EndUpload.
  Status BeginUpload(Tenant& tenant);
  void EndUpload(Tenant& tenant);
  // Likewise streams of buffers and outputs to clients, which hold messages for as long as nobody reads them.
  Status BeginDownload(Tenant& tenant);
  void EndDownload(Tenant& tenant);
  // Answers with the blob that is kept: whoever goes on using it uses that one.
  StatusOr<BlobRef> InsertBlob(Tenant& tenant, BlobKind kind, BlobRef blob);
  // Ends it with kCancelled at once; unknown ids are ignored.
  void CancelPrepare(uint64_t id);
  // `done` may come before PrepareGraph returns; the response is filled then. The id is for CancelPrepare.
  uint64_t PrepareGraph(const TenantRef& tenant, const v1::PrepareGraphRequest& request,
                        v1::PrepareGraphResponse* response, std::function<void(const Outcome&)> done);
  Status ReleaseGraph(Tenant& tenant, std::string_view handle);
  // For Stream: the prepared graph of a handle, held as long as the reference is, and the handle with it.
  StatusOr<PreparationRef> FindHandle(Tenant& tenant, std::string_view handle);
  // The tenant's graphs, for clients that have lost them.
  Status ListGraphs(Tenant& tenant, const v1::ListGraphsRequest& request, v1::ListGraphsResponse* response);
  // The costs of kernels and transfers that the tenant's executor knows. With a handle the graph is
  // prepared first if it has to be; without one, and without an executor, nothing is known. Request and response are
  // borrowed until `done`.
  void ListCosts(const TenantRef& tenant, const v1::ListCostsRequest& request, v1::ListCostsResponse* response,
                 std::function<void(const Outcome&)> done);
  // Host memory for a blob of that size, before its bytes come.
  StatusOr<scheduler::Lease> HoldHostBytes(Tenant& tenant, uint64_t bytes);

  // --- For other rooms, with the mutex ---
  StatusOr<PreparationRef> FindPreparation(CoreScope& scope, Tenant& tenant, const std::string& graph_sha256,
                                           bool check,
                                           const google::protobuf::RepeatedPtrField<v1::ModuleBinding>& modules);
  // `is_limited`: not for jobs that were accepted, which come back when they may.
  StatusOr<PreparationRef> MakePreparation(CoreScope& scope, Tenant& tenant, bool check, BlobRef document,
                                           NamedBlobs modules, bool is_limited);
  void WithPrepared(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation, Waiter then,
                    std::function<bool()> is_wanted = nullptr);
  // After a wait for it has become unwanted: ends the preparation if no other is wanted.
  void StopUnwanted(CoreScope& scope, Preparation& preparation);
  // The graph of a handle that is used now: whoever holds the reference uses the handle as well. kNotFound.
  StatusOr<PreparationRef> UseHandle(Tenant& tenant, std::string_view handle);
  // Drops what nobody uses, so that so much host memory more may be held; not always enough.
  void MakeRoom(CoreScope& scope, Tenant& tenant, uint64_t host_bytes);
  void ScheduleExpiry(CoreScope& scope, const TenantRef& tenant);

 private:
  struct CostsCall {
    v1::ListCostsResponse* response = nullptr;  // Borrowed until `done`.
    std::string handle;                         // As asked for.
    Done done;
  };
  void DropIdlePreparations(CoreScope& scope, Tenant& tenant, size_t keep);
  // The least recently used one that nobody uses; false: all are in use.
  bool DropOnePreparation(CoreScope& scope, Tenant& tenant);
  void DropPreparation(CoreScope& scope, Tenant& tenant, Preparation& preparation);
  void SendPrepare(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation);
  void OnPrepared(const TenantRef& tenant, const PreparationRef& preparation, StatusOr<internal::Prepared> reply);
  void FinishPrepare(CoreScope& scope, Execution& call, const Outcome& outcome);
  std::string AddHandle(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation);
  // What nobody has used for long gives way: the oldest such handle, and buffers as far as one of that size needs it.
  void YieldHandle(CoreScope& scope, Tenant& tenant);
  void AskCosts(CoreScope& scope, const TenantRef& tenant, uint64_t link_handle, CostsCall call);
  void OnCosts(Tenant& tenant, uint64_t link_handle, const CostsCall& call, StatusOr<internal::Envelope> answer);
  void Expire(CoreScope& scope, const TenantRef& tenant);

  Quotas& quotas_;
  Devices& devices_;
  Executors& executors_;
  std::map<uint64_t, ExecutionRef> preparing_;  // For clients, by key.
  uint64_t next_prepare_ = 1;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_GRAPHS_H_
