// SPDX-License-Identifier: Apache-2.0
// A job from the moment at which it is on disk to its end: see execution.h for its phases.
#ifndef HPVMD_SERVER_CORE_JOBS_JOB_LIFECYCLE_H_
#define HPVMD_SERVER_CORE_JOBS_JOB_LIFECYCLE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/core/jobs/job_feed.h"
#include "server/core/jobs/job_table.h"
#include "server/core/rooms/arbiter.h"
#include "server/core/rooms/buffers.h"
#include "server/core/rooms/executors.h"
#include "server/core/rooms/graphs.h"
#include "server/core/rooms/quotas.h"
#include "server/core/rooms/runs.h"
#include "server/core/rooms/tenants.h"
#include "server/core/state/core_context.h"
#include "server/core/state/execution.h"
#include "server/core/state/stored_parts.h"
#include "server/jobs/job_store.h"

namespace hpvm::server {

class JobLifecycle : private CoreRoom {
 public:
  // After which a deadline that passed by a doubtful clock is looked at again.
  static constexpr Duration kLookAgain = std::chrono::seconds(60);
  using CancelDone = std::function<void(CoreScope&, const Status&)>;
  JobLifecycle(CoreContext& context, Quotas& quotas, Arbiter& arbiter, Tenants& tenants, Executors& executors,
               Graphs& graphs, Buffers& buffers, Runs& runs, JobTable& table, JobFeed& feed)
      : CoreRoom(context),
        quotas_(quotas),
        arbiter_(arbiter),
        tenants_(tenants),
        executors_(executors),
        graphs_(graphs),
        buffers_(buffers),
        runs_(runs),
        table_(table),
        feed_(feed) {}

  // --- For clients; these lock the mutex ---
  // Something of that job in the store is damaged (JobStore::SetOnDamage): unless it runs or has ended it ends.
  void OnDamage(const JobDamage& damage);
  // The store's disk has become full, or has room again (JobStore::SetOnRoom).
  void OnRoom(bool has_room);

  // --- For other rooms, with the mutex ---
  void Settle(CoreScope& scope, const ExecutionRef& job);
  // The fair share has a turn for the job of that key; others are ignored.
  void OnTurn(CoreScope& scope, scheduler::JobKey key);
  void FinishAttempt(CoreScope& scope, const ExecutionRef& job, RunOutcome outcome);
  void AskCancel(CoreScope& scope, const ExecutionRef& job, CancelDone then);
  void SetDeadline(CoreScope& scope, const ExecutionRef& job);
  void LeaveQueues(CoreScope& scope);
  // Whether work may be started has changed.
  void OnIntake(CoreScope& scope);
  void Suspend(CoreScope& scope, const TenantRef& tenant);
  // What waits for a disk that has no room any more would wait for ever.
  void RefuseCancels(CoreScope& scope);
  // By the clock on the wall, within what its deadline may be at all.
  Time RestoredDeadline(const Execution& job) const;
  void LookAtDeadlineAgain(CoreScope& scope, const ExecutionRef& job);

 private:
  void EnterQueues(CoreScope& scope);
  using JobStep = void (JobLifecycle::*)(CoreScope&, const ExecutionRef&);
  void WaitUntil(CoreScope& scope, const ExecutionRef& job, Time when);
  void Queue(CoreScope& scope, const ExecutionRef& job);
  void LeaveQueue(CoreScope& scope, const ExecutionRef& job);
  void Unqueue(CoreScope& scope, const ExecutionRef& job);
  void ReturnTurn(CoreScope& scope, const ExecutionRef& job);
  void OnStarted(CoreScope& scope, const ExecutionRef& job);
  BlobMemory MemoryOf(const TenantRef& tenant);
  void Dispatch(CoreScope& scope, const ExecutionRef& job, StoredParts* parts);
  Status Bind(CoreScope& scope, Execution& job, StoredParts& parts);
  void ChangeRow(CoreScope& scope, const ExecutionRef& job, StoredJob next, bool with_results, JobStep then);
  void OnChanged(const ExecutionRef& job, const StoredJob& next, bool with_results, JobStep then, const Status& status);
  bool TakeArrayTurn(const ExecutionRef& job);
  void LeaveArrayTurn(CoreScope& scope, const ExecutionRef& job);
  void LeaveArray(CoreScope& scope, const ExecutionRef& job, v1::JobState state);
  void OnAttemptDone(const ExecutionRef& job, RunOutcome outcome);
  void EndAttempt(CoreScope& scope, const ExecutionRef& job);
  void StoreOutputs(CoreScope& scope, const ExecutionRef& job);
  Status KeepOutputs(Tenant& tenant, JobAttempt& attempt);
  void DropOutputs(Tenant& tenant, JobAttempt& attempt);
  void KeepLog(Tenant& tenant, JobAttempt& attempt);
  void PutOutputs(const ExecutionRef& job);
  void OnOutputs(const ExecutionRef& job, const StatusOr<std::vector<PinnedBlob>>& blobs);
  void PutBack(CoreScope& scope, const ExecutionRef& job, bool counts);
  void OnPutBack(CoreScope& scope, const ExecutionRef& job);
  void EndJob(CoreScope& scope, const ExecutionRef& job, v1::JobState state, Outcome why);
  void OnEnded(CoreScope& scope, const ExecutionRef& job);
  void LeaveTurn(CoreScope& scope, const ExecutionRef& job);
  void Forget(CoreScope& scope, const ExecutionRef& job);
  void GiveUp(CoreScope& scope, const ExecutionRef& job, const Status& why);
  void TellUnit(CoreScope& scope, const TenantRef& tenant, const std::string& unit, const UnitState& state);
  void OnCancelRecorded(CoreScope& scope, const ExecutionRef& job);
  void AnswerCancels(CoreScope& scope, Execution& job, const Status& status);

  Quotas& quotas_;
  Arbiter& arbiter_;
  Tenants& tenants_;
  Executors& executors_;
  Graphs& graphs_;
  Buffers& buffers_;
  Runs& runs_;
  JobTable& table_;
  JobFeed& feed_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_LIFECYCLE_H_
