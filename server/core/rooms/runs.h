// SPDX-License-Identifier: Apache-2.0
// Runs: from a request's bindings to the executor and back.
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
#include "supervisor/stop_patience.h"

namespace hpvm::server {

// What the items of one RunMany have in common, from its receipt on.
struct RunBatch {
  const v1::RunManyRequest* request = nullptr;  // The caller's, until every item that was begun has ended.
  PreparationRef preparation;
  internal::RunOptions options;
  Time received{0}, deadline = kNever;
};

class Runs : private CoreRoom {
 public:
  using RunDone = std::function<void(RunOutcome)>;
  // One item of a stream: as Run, of a graph that is held already.
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
  // Tensors of `request` are borrowed until `done`, which comes once, perhaps before Run returns. The id is for
  // CancelRun.
  uint64_t Run(const TenantRef& tenant, const v1::RunRequest& request, RunDone done);
  uint64_t RunItem(const TenantRef& tenant, PreparationRef preparation, const StreamItem& item, RunDone done);
  // What is wrong with all items alike, before any of them begins.
  StatusOr<RunBatch> BeginBatch(Tenant& tenant, const v1::RunManyRequest& request);
  // Begins these items of the batch under one hold of the mutex: no more than CountAtOnce says (batch_limits.h). `done`
  // comes once for each, perhaps before this returns. Answers their ids; 0: that one was refused.
  std::vector<uint64_t> RunItems(const TenantRef& tenant, const RunBatch& batch, std::span<const int> items,
                                 const std::function<void(int, RunOutcome)>& done);
  // Ends it soon with kCancelled; unknown ids are ignored.
  void CancelRun(uint64_t id);

  // The most placements that an answer has.
  static constexpr uint32_t kPlacementsMax = 1'000;

  // --- For other rooms, with the mutex ---
  // By key, those of jobs too.
  const std::map<scheduler::JobKey, ExecutionRef>& all() const { return runs_; }
  // A job's attempt, whose turn it is.
  void StartAttempt(CoreScope& scope, const ExecutionRef& run, RunDone done);
  // The turn of a run; false: the key is not a run's.
  bool OnTurn(CoreScope& scope, scheduler::JobKey key);
  Status SetOptions(Execution& run, const v1::RequestOptions& options, uint32_t repeat);
  void StopRun(CoreScope& scope, const ExecutionRef& run, Status why);
  Status ResolveBindings(Tenant& tenant, Sending& sending,
                         const google::protobuf::RepeatedPtrField<v1::InputBinding>& inputs,
                         const google::protobuf::RepeatedPtrField<v1::OutputBinding>& outputs);
  // The fair share has no room for the run.
  void OnRefused(CoreScope& scope, scheduler::JobKey key, scheduler::RefuseJob::Limit limit);
  void StopRuns(CoreScope& scope, const TenantRef& tenant, const Status& why);

 private:
  // The run's key; 0: it is refused, as it could not be prepared.
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
  void ArmStop(CoreScope& scope, const ExecutionRef& run, const supervisor::StopPatience& patience, Time when);
  // A driver refused a run memory: other tenants give back what they do not use, then the run is sent again. False when
  // nobody has any.
  bool RunAgainWithMemory(const ExecutionRef& run, const supervisor::RunReply& reply);
  // What a Run takes before it waits for its turn.
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
