// SPDX-License-Identifier: Apache-2.0
// Runs: from a request's bindings to the executor and back.
#ifndef HPVMD_SERVER_CORE_ROOMS_RUNS_H_
#define HPVMD_SERVER_CORE_ROOMS_RUNS_H_

#include <functional>
#include <map>
#include <memory>
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
#include "server/core/state/run_op.h"
#include "supervisor/stop_patience.h"

namespace hpvm {

class Runs : private CoreRoom {
 public:
  using RunDone = std::function<void(RunOutcome)>;
  // One item of a stream: as Run, of a graph that is held already.
  struct StreamItem {
    const v1::StreamRequest::Item* item = nullptr;
    const v1::StreamRequest::Open* open = nullptr;
  };
  Runs(CoreContext& context, Quotas& quotas, Devices& devices, Arbiter& arbiter, Tenants& tenants, Executors& executors,
       Graphs& graphs, Buffers& buffers)
      : CoreRoom(context),
        quotas_(quotas),
        devices_(devices),
        arbiter_(arbiter),
        tenants_(tenants),
        executors_(executors),
        graphs_(graphs),
        buffers_(buffers) {}

  // --- For clients; these lock the mutex ---
  // Tensors of `request` are borrowed until `done`, which comes once, perhaps before Run returns. The id is for
  // CancelRun.
  uint64_t Run(const TenantRef& tenant, const v1::RunRequest& request, RunDone done);
  uint64_t RunItem(const TenantRef& tenant, PreparationRef preparation, const StreamItem& item, RunDone done);
  // Ends it soon with kCancelled; unknown ids are ignored.
  void CancelRun(uint64_t id);

  // --- For other rooms, with the mutex ---
  // By key, those of jobs too.
  const std::map<scheduler::JobKey, std::shared_ptr<RunOp>>& all() const { return ops_; }
  // A job's attempt, whose turn it is.
  void StartAttempt(CoreScope& scope, const std::shared_ptr<RunOp>& op);
  // The turn of a run; false: the key is not a run's.
  bool OnTurn(CoreScope& scope, scheduler::JobKey key);
  // The same as references: stopping one takes it out of all().
  std::vector<std::shared_ptr<RunOp>> List() const;
  Status SetOptions(RunOp& op, const v1::RequestOptions& options, uint32_t repeat);
  void SendRun(CoreScope& scope, const std::shared_ptr<RunOp>& op);
  void StopRun(CoreScope& scope, const std::shared_ptr<RunOp>& op, Status why);
  Status ResolveBindings(Tenant& tenant, RunOp& op, const google::protobuf::RepeatedPtrField<v1::InputBinding>& inputs,
                         const google::protobuf::RepeatedPtrField<v1::OutputBinding>& outputs);
  // The fair share has no room for the run.
  void OnRefused(CoreScope& scope, scheduler::JobKey key, scheduler::RefuseJob::Limit limit);
  void StopRuns(CoreScope& scope, const TenantRef& tenant, const Status& why);

 private:
  void RefuseRequest(CoreScope& scope, const std::shared_ptr<RunOp>& op, Outcome why);
  void Start(CoreScope& scope, const std::shared_ptr<RunOp>& op);
  void Transmit(const std::shared_ptr<RunOp>& op);
  void OnRunReply(const std::shared_ptr<RunOp>& op, StatusOr<RunReply> reply);
  void TakeOutcome(const std::shared_ptr<RunOp>& op, RunOutcome outcome, bool has_died);
  void TakeLosses(CoreScope& scope, RunOp& op, bool has_died, const std::vector<std::string>& lost, Outcome& outcome);
  void TakeLeft(CoreScope& scope, RunOp& op, const std::vector<std::string>& left);
  void Finish(CoreScope& scope, const std::shared_ptr<RunOp>& op, RunOutcome outcome);
  void ArmStop(CoreScope& scope, const std::shared_ptr<RunOp>& op, const StopPatience& patience, Time when);
  // A driver refused a run memory: other tenants give back what they do not use, then the run is sent again. False when
  // nobody has any.
  bool RunAgainWithMemory(const std::shared_ptr<RunOp>& op, const RunReply& reply);
  // What a Run takes before it waits for its turn.
  Outcome PayForRun(CoreScope& scope, RunOp& op);

  Quotas& quotas_;
  Devices& devices_;
  Arbiter& arbiter_;
  Tenants& tenants_;
  Executors& executors_;
  Graphs& graphs_;
  Buffers& buffers_;
  std::map<scheduler::JobKey, std::shared_ptr<RunOp>> ops_;
};

}  // namespace hpvm

#endif  // HPVMD_SERVER_CORE_ROOMS_RUNS_H_
