// SPDX-License-Identifier: Apache-2.0
// Runs carries out runs: from a request's bindings to the executor and back.
#ifndef HPVMD_SERVER_CORE_ROOMS_RUNS_H_
#define HPVMD_SERVER_CORE_ROOMS_RUNS_H_

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hpvm/v1/service.pb.h"
#include "server/core/rooms/arbiter.h"
#include "server/core/rooms/buffers.h"
#include "server/core/rooms/devices.h"
#include "server/core/rooms/executors.h"
#include "server/core/rooms/graphs.h"
#include "server/core/rooms/quotas.h"
#include "server/core/rooms/tenants.h"
#include "server/core/state/core_context.h"
#include "server/core/state/execution.h"
#include "supervisor/kill_grace.h"

namespace hpvm::server {

// RunBatch is the part that the items of one RunMany share, from its receipt on.
struct RunBatch {
  // Owned by the caller; must live until every item that was begun has ended.
  const v1::RunManyRequest* request = nullptr;
  PreparationRef preparation;
  internal::RunOptions options;
  Time received{0}, deadline = kNever;
};

class Runs : private CoreRoom {
 public:
  using RunDone = std::function<void(RunOutcome)>;
  // One item of a stream, which is run as by Run, with a graph that is already held.
  struct StreamItem {
    const v1::StreamRequest::Item* item = nullptr;
    const v1::StreamRequest::Open* open = nullptr;
  };
  Runs(CoreContext& context, Quotas& quotas, Devices& devices, Arbiter& arbiter, Executors& executors, Graphs& graphs,
       Buffers& buffers)
      : CoreRoom(context),
        quotas_(quotas),
        devices_(devices),
        arbiter_(arbiter),
        executors_(executors),
        graphs_(graphs),
        buffers_(buffers) {}

  // --- For clients; these lock the mutex ---
  // Borrows the tensors of `request` until `done`, which is called once, perhaps before Run returns. Returns the id
  // for CancelRun.
  uint64_t Run(const TenantRef& tenant, const v1::RunRequest& request, RunDone done);
  uint64_t RunItem(const TenantRef& tenant, PreparationRef preparation, const StreamItem& item, RunDone done);
  // Returns the error that all items have in common, before any of them begins.
  StatusOr<RunBatch> BeginBatch(Tenant& tenant, const v1::RunManyRequest& request);
  // Begins the given items of the batch, at most as many as CountAtOnce allows (batch_limits.h), under one hold of the
  // mutex. `done` is called once for each, perhaps before this returns. Returns their ids; 0 for an item that was
  // refused.
  std::vector<uint64_t> RunItems(const TenantRef& tenant, const RunBatch& batch, std::span<const int> items,
                                 const std::function<void(int, RunOutcome)>& done);
  // Ends the run soon with kCancelled; ignores unknown ids.
  void CancelRun(uint64_t id);

  // Maximum number of placements in an answer.
  static constexpr uint32_t kPlacementsMax = 1'000;

  // --- For other rooms; the caller holds the mutex ---
  // All runs by key, including those of jobs.
  const std::map<scheduler::JobKey, ExecutionRef>& all() const { return runs_; }
  // Starts a job's attempt, which has its turn.
  void StartAttempt(CoreScope& scope, const ExecutionRef& run, RunDone done);
  // Starts the run that has its turn; returns false when the key is not a run's.
  bool OnTurn(CoreScope& scope, scheduler::JobKey key);
  Status SetOptions(Execution& run, const v1::RequestOptions& options, uint32_t repeat);
  void StopRun(CoreScope& scope, const ExecutionRef& run, Status why);
  Status ResolveBindings(Tenant& tenant, Sending& sending,
                         const google::protobuf::RepeatedPtrField<v1::InputBinding>& inputs,
                         const google::protobuf::RepeatedPtrField<v1::OutputBinding>& outputs);
  // Refuses a run for which the fair share has no room.
  void OnRefused(CoreScope& scope, scheduler::JobKey key, scheduler::RefuseJob::Limit limit);
  void StopRuns(CoreScope& scope, const TenantRef& tenant, const Status& why);

 private:
  // Returns the run's key; 0 when it is refused because it could not be prepared.
  uint64_t Start(CoreScope& scope, const ExecutionRef& run, Outcome prepared);
  static ExecutionRef NewRun(const TenantRef& tenant, RunDone done);
  Outcome PrepareItem(CoreScope& scope, const RunBatch& batch, const v1::RunManyRequest::Item& item,
                      const Status& shape, Execution& run);
  void SendRun(CoreScope& scope, const ExecutionRef& run);
  void Transmit(const ExecutionRef& run);
  void OnRunReply(const ExecutionRef& run, StatusOr<supervisor::RunReply> reply);
  void TakeOutcome(const ExecutionRef& run, RunOutcome outcome, bool has_died);
  void TakeLosses(CoreScope& scope, Execution& run, bool has_died, const std::vector<std::string>& lost,
                  Outcome& outcome);
  void TakeLeft(CoreScope& scope, Execution& run, const std::vector<std::string>& left);
  void Finish(CoreScope& scope, const ExecutionRef& run, RunOutcome outcome);
  void ArmStop(CoreScope& scope, const ExecutionRef& run, const supervisor::KillGrace& patience, Time when);
  // Handles a driver's refusal of memory to a run: asks other tenants to give back memory that they do not use, and
  // then sends the run again. Returns false when no tenant has any.
  bool RunAgainWithMemory(const ExecutionRef& run, const supervisor::RunReply& reply);
  // Charges a Run with what it needs before it waits for its turn.
  Outcome PayForRun(CoreScope& scope, Execution& run);

  Quotas& quotas_;
  Devices& devices_;
  Arbiter& arbiter_;
  Executors& executors_;
  Graphs& graphs_;
  Buffers& buffers_;
  std::map<scheduler::JobKey, ExecutionRef> runs_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_RUNS_H_
