// SPDX-License-Identifier: Apache-2.0
// Graphs manages modules and documents, graphs that are prepared in the tenant's executor, and clients' handles for
// them.
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
  using NamedBlobs = std::map<std::string, BlobRef>;  // Sorted by name, so that a request's order does not matter.
  using Waiter = Preparation::Waiter;
  using Done = std::function<void(const Outcome&)>;
  Graphs(CoreContext& context, Quotas& quotas, Devices& devices, Executors& executors)
      : CoreRoom(context), quotas_(quotas), devices_(devices), executors_(executors) {}

  // --- For clients; these lock the mutex ---
  bool HasBlob(Tenant& tenant, BlobKind kind, const Sha256& hash);
  // Counts uploads in progress; each OK must be followed by one EndUpload.
  Status BeginUpload(Tenant& tenant);
  void EndUpload(Tenant& tenant);
  // The same for streams of buffers and outputs to clients, which hold messages until the client reads them.
  Status BeginDownload(Tenant& tenant);
  void EndDownload(Tenant& tenant);
  // Lists the modules and documents that the tenant has uploaded.
  Status ListModules(Tenant& tenant, const v1::ListModulesRequest& request, v1::ListModulesResponse* response);
  // Returns the number of bytes freed; kNotFound, or kFailedPrecondition while the module is in use.
  StatusOr<uint64_t> DeleteModule(Tenant& tenant, std::string_view sha256);
  // Returns the blob that is kept, which the caller uses instead of `blob` from then on.
  StatusOr<BlobRef> InsertBlob(Tenant& tenant, BlobKind kind, BlobRef blob);
  // Ends the call with kCancelled at once; ignores unknown ids.
  void CancelPrepare(uint64_t id);
  // `done` may be called before PrepareGraph returns; the response is filled then. Returns the id for CancelPrepare.
  uint64_t PrepareGraph(const TenantRef& tenant, const v1::PrepareGraphRequest& request,
                        v1::PrepareGraphResponse* response, std::function<void(const Outcome&)> done);
  Status ReleaseGraph(Tenant& tenant, std::string_view handle);
  // For Stream: returns the prepared graph of a handle. Graph and handle are held for as long as the reference is.
  StatusOr<PreparationRef> FindHandle(Tenant& tenant, std::string_view handle);
  // Lists the tenant's graphs, for clients that have lost them.
  Status ListGraphs(Tenant& tenant, const v1::ListGraphsRequest& request, v1::ListGraphsResponse* response);
  // Returns the costs of kernels and transfers that the tenant's executor knows. With a handle the graph is first
  // prepared if necessary; without a handle and without an executor the list is empty. Request and response are
  // borrowed until `done`.
  void ListCosts(const TenantRef& tenant, const v1::ListCostsRequest& request, v1::ListCostsResponse* response,
                 std::function<void(const Outcome&)> done);
  // Reserves host memory for a blob of that size, before its bytes arrive.
  StatusOr<scheduler::Lease> HoldHostBytes(Tenant& tenant, uint64_t bytes);

  // --- For other rooms; the caller holds the mutex ---
  StatusOr<PreparationRef> FindPreparation(CoreScope& scope, Tenant& tenant, const std::string& graph_sha256,
                                           bool check,
                                           const google::protobuf::RepeatedPtrField<v1::ModuleBinding>& modules);
  // `is_limited` applies the limit on prepared graphs; it is false for accepted jobs, which must be able to continue.
  StatusOr<PreparationRef> MakePreparation(CoreScope& scope, Tenant& tenant, bool check, BlobRef document,
                                           NamedBlobs modules, bool is_limited);
  void WithPrepared(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation, Waiter then,
                    std::function<bool()> is_wanted = nullptr);
  // Called when a caller does not want the preparation any more; ends the preparation if no other caller wants it.
  void StopUnwanted(CoreScope& scope, Preparation& preparation);
  // Returns the graph of a handle and marks the handle as used; the reference keeps both in use. kNotFound.
  StatusOr<PreparationRef> UseHandle(Tenant& tenant, std::string_view handle);
  // Drops unused objects, to make room for that much more host memory; there may not be enough of them.
  void MakeRoom(CoreScope& scope, Tenant& tenant, uint64_t host_bytes);
  void ScheduleExpiry(CoreScope& scope, const TenantRef& tenant);
  // For a tenant that is being deleted: releases some of the unused objects. Returns true when nothing is left.
  bool GiveUp(CoreScope& scope, Tenant& tenant);

 private:
  struct CostsCall {
    v1::ListCostsResponse* response = nullptr;  // Borrowed until `done`.
    std::string handle;                         // As requested.
    Done done;
  };
  void DropIdlePreparations(CoreScope& scope, Tenant& tenant, size_t keep);
  // Drops the least recently used preparation that is not in use; returns false when all are in use.
  bool DropOnePreparation(CoreScope& scope, Tenant& tenant);
  void DropPreparation(CoreScope& scope, Tenant& tenant, Preparation& preparation);
  void SendPrepare(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation);
  void OnPrepared(const TenantRef& tenant, const PreparationRef& preparation, StatusOr<internal::Prepared> reply);
  void FinishPrepare(CoreScope& scope, Execution& call, const Outcome& outcome);
  std::string AddHandle(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation);
  // At a limit, drops objects that have long been unused: the oldest such handle, and as many buffers as a new one of
  // that size needs.
  void YieldHandle(CoreScope& scope, Tenant& tenant);
  void AskCosts(CoreScope& scope, const TenantRef& tenant, uint64_t link_handle, CostsCall call);
  void OnCosts(Tenant& tenant, uint64_t link_handle, const CostsCall& call, StatusOr<internal::Envelope> answer);
  void Expire(CoreScope& scope, const TenantRef& tenant);

  Quotas& quotas_;
  Devices& devices_;
  Executors& executors_;
  std::map<uint64_t, ExecutionRef> preparing_;  // Calls of clients, by key.
  uint64_t next_prepare_ = 1;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_GRAPHS_H_
