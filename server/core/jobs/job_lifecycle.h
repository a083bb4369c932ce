// SPDX-License-Identifier: Apache-2.0
// JobLifecycle takes a job from the moment at which it is on disk to its end: see execution.h for its phases.
#ifndef HPVMD_SERVER_CORE_JOBS_JOB_LIFECYCLE_H_
#define HPVMD_SERVER_CORE_JOBS_JOB_LIFECYCLE_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/jobs/job_feed.h"
#include "server/core/jobs/job_table.h"
#include "server/core/rooms/arbiter.h"
#include "server/core/rooms/buffers.h"
#include "server/core/rooms/devices.h"
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

// Describes the size of a job's limit and its origin: "(60 s, set by who submitted it)."
std::string LimitText(uint64_t limit_ns, uint64_t asked_ns, std::string_view quota);

class JobLifecycle : private CoreRoom {
 public:
  // Time after which a deadline that has passed by a doubtful clock is checked again.
  static constexpr Duration kLookAgain = std::chrono::seconds(60);
  using CommandDone = std::function<void(CoreScope&, const Status&)>;
  JobLifecycle(CoreContext& context, Quotas& quotas, Devices& devices, Arbiter& arbiter, Tenants& tenants,
               Executors& executors, Graphs& graphs, Buffers& buffers, Runs& runs, JobTable& table, JobFeed& feed)
      : CoreRoom(context),
        quotas_(quotas),
        devices_(devices),
        arbiter_(arbiter),
        tenants_(tenants),
        executors_(executors),
        graphs_(graphs),
        buffers_(buffers),
        runs_(runs),
        table_(table),
        feed_(feed) {}

  // --- For clients; these lock the mutex ---
  // The job's data in the store is damaged (JobStore::SetOnDamage): ends the job unless it runs or has ended.
  void OnDamage(const JobDamage& damage);
  // The store's disk has become full, or has room again (JobStore::SetOnRoom).
  void OnRoom(bool has_room);

  // --- For other rooms; the caller holds the mutex ---
  void Settle(CoreScope& scope, const ExecutionRef& job);
  // Starts the job with that key, which has its turn in the fair share; ignores other keys.
  void OnTurn(CoreScope& scope, scheduler::JobKey key);
  void FinishAttempt(CoreScope& scope, const ExecutionRef& job, RunOutcome outcome);
  void AskCancel(CoreScope& scope, const ExecutionRef& job, CommandDone then);
  // Fails with kFailedPrecondition when the job has started, or is being started or ended; with kPermissionDenied when
  // an administrator holds it.
  void AskHold(CoreScope& scope, const ExecutionRef& job, HoldCommand command);
  void SetDeadline(CoreScope& scope, const ExecutionRef& job);
  // The job's deadline has passed.
  void Expire(CoreScope& scope, const ExecutionRef& job);
  // For jobs of a shared store: gives the job back to it, without having spent the attempt.
  void GiveBack(CoreScope& scope, const ExecutionRef& job);
  // The job is another host's: ends its run, and forgets it. Does nothing while its end is being written.
  void Abandon(CoreScope& scope, const ExecutionRef& job, const Status& why);
  void LeaveQueues(CoreScope& scope);
  // The intake may have been opened or closed.
  void OnIntake(CoreScope& scope);
  // Devices were closed or opened.
  void OnDevices(CoreScope& scope);
  void Suspend(CoreScope& scope, const TenantRef& tenant);
  // Refuses requests to cancel or hold that wait for a full disk, where they would wait forever.
  void RefuseCommands(CoreScope& scope);
  // Returns the deadline by the wall clock, at most as far away as it was when the job was created.
  Time RestoredDeadline(const Execution& job) const;
  void LookAtDeadlineAgain(CoreScope& scope, const ExecutionRef& job);
  // Returns the limits that apply to a job of the tenant that asks for `asked`.
  static v1::JobLimits LimitsFor(const Tenant& tenant, const v1::JobLimits& asked);

 private:
  void EnterQueues(CoreScope& scope);
  using JobStep = void (JobLifecycle::*)(CoreScope&, const ExecutionRef&);
  void WaitUntil(CoreScope& scope, const ExecutionRef& job, Time when);
  void WatchWait(CoreScope& scope, const ExecutionRef& job);
  void WatchRun(CoreScope& scope, const ExecutionRef& job);
  void LeaveRun(Execution& job);
  void Queue(CoreScope& scope, const ExecutionRef& job);
  void LeaveQueue(CoreScope& scope, const ExecutionRef& job);
  bool AwaitsDevices(const Execution& job) const;
  void Unqueue(CoreScope& scope, const ExecutionRef& job);
  void ReturnTurn(CoreScope& scope, const ExecutionRef& job);
  void OnStarted(CoreScope& scope, const ExecutionRef& job);
  BlobMemory MemoryOf(const TenantRef& tenant);
  void Dispatch(CoreScope& scope, const ExecutionRef& job, StoredParts* parts);
  Status Bind(CoreScope& scope, Execution& job, StoredParts& parts);
  void OnLog(const ExecutionRef& job, uint32_t attempt, v1::RunLog log);
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
  void RecordHolds(CoreScope& scope, const ExecutionRef& job);
  void AnswerHold(CoreScope& scope, Execution& job, const Status& status);
  void OnHoldRecorded(CoreScope& scope, const ExecutionRef& job);
  void AnswerHolds(CoreScope& scope, Execution& job, const Status& status);

  Quotas& quotas_;
  Devices& devices_;
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
