// SPDX-License-Identifier: Apache-2.0
// The daemon's state behind one mutex: tenants and what they own, executors, queues, jobs.
//
// Every public method locks, decides, unlocks, and then carries out what it decided (sending to executors, spawning,
// calling back), so callbacks come without the mutex held and may call the core again. The same holds for what
// executors answer, on the link's thread: a Run goes from gRPC's thread to the socket and from the link's thread back
// to gRPC, with no further thread. The job store's answers come on its threads, likewise.
//
// The core has no threads and no clock of its own and does not wait (but for Stop): with a played clock, store and
// executors it runs in a simulation, the same way each time.
#ifndef HPVMD_SERVER_CORE_CORE_H_
#define HPVMD_SERVER_CORE_CORE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/grant.h"
#include "hpvm/v1/admin.pb.h"
#include "hpvm/v1/service.pb.h"
#include "scheduler/share/fair_share.h"
#include "scheduler/share/ledger.h"
#include "server/config/config.h"
#include "server/config/tenant_policy.h"
#include "server/core/core_snapshot.h"
#include "server/core/live_job.h"
#include "server/core/page_token.h"
#include "server/core/request_meter.h"
#include "server/core/run_op.h"
#include "server/core/stored_parts.h"
#include "server/core/tenant.h"
#include "server/events/observer.h"
#include "server/executors/device_table.h"
#include "server/jobs/clock_watch.h"
#include "server/jobs/job_store.h"
#include "server/jobs/stored_request.h"
#include "server/jobs/unit_reader.h"
#include "server/process/spent_file.h"
#include "supervisor/stop_patience.h"

namespace hpvm {

struct RetentionLimits;

scheduler::FairShareLimits ShareLimits(const Config& config);

struct CoreOptions {
  Config config;
  const Clock* clock = nullptr;        // Borrowed; lives longer.
  Rng* rng = nullptr;                  // Borrowed; lives longer. Used under the mutex.
  ExecutorSpawner* spawner = nullptr;  // Borrowed; lives longer.
  // Borrowed. Destroyed after Stop and before the core, which its last callbacks still enter.
  JobStore* jobs = nullptr;
  Observer* observer = &NoObserver();                // Borrowed; lives longer.
  const TenantPolicies* policies = &OpenPolicies();  // Borrowed; lives longer.
  uint32_t cpu_threads = 1;                          // What grants give.
  uint64_t host_bytes_max = 0;                       // Where limits.host_bytes_max is 0; 0: none.
  uint64_t disk_bytes_max = 0;                       // Where jobs.disk_bytes_max is 0; 0: none.
  Sha256 page_key;                                   // Seals tokens of pages; the same after a restart.
  SpentByTenant spent;                               // Before this process.
  uint64_t request_row_bytes_max = kRequestRowBytesMax;
  // Executors wait for DevicesKnown, so that the first ones have every device.
  bool awaits_devices = false;
};

// More than any array has.
inline constexpr size_t kArrayElementsMax = 1'000'000;

// Why calls of a tenant with that policy are refused; null: there is no such tenant.
Status RefusalOf(std::string_view name, const TenantPolicy* policy);

// How long a client should wait that met a full queue.
inline constexpr Duration kQueueFullPause = std::chrono::milliseconds(250);

// Whether new work is taken, and why not, in sentences.
struct CoreHealth {
  bool is_ready = true;
  std::vector<std::string> reasons;
};

class Core {
 public:
  explicit Core(CoreOptions options);
  ~Core();  // After Stop.
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Any thread. What it holds does not change; SetConfig replaces it.
  std::shared_ptr<const Config> config() const;
  // From now on; what runs keeps the limits that it started with.
  void SetConfig(Config config);
  const Clock& clock() const { return *options_.clock; }
  Observer& observer() { return *options_.observer; }

  // The tenant of that name, made on first use when the policies know it. kNotFound, kPermissionDenied when it is
  // disabled and the call is not for `also_disabled`, kResourceExhausted at tenants.max.
  StatusOr<TenantRef> FindTenant(std::string_view name, bool also_disabled = false);

  // --- Policies and quotas (core_quota.cc) ---
  // The policies say something else of that tenant from now on.
  void OnPolicyChanged(std::string_view name);
  // What the tenants of this process have spent, with what they had before it.
  SpentByTenant Spent();
  // kNotFound: neither the policies nor the core know it.
  Status Usage(std::string_view tenant, v1::GetUsageResponse* response);
  RequestMeter& meter() { return meter_; }
  const scheduler::Ledger& ledger() const { return ledger_; }
  // Whether every balance is what the objects there are add up to; a sentence otherwise. `at_rest`: nothing is on its
  // way. Linear in everything: for tests and simulation.
  Status CheckAccounts(bool at_rest);

  void ServerInfo(const Tenant& tenant, v1::ServerInfoResponse* response);
  void ListDevices(Tenant& tenant, v1::ListDevicesResponse* response);

  // --- Devices (core_device.cc) ---
  // What discovery found of one family, at start and again later; a status when its probe failed.
  void SetFound(const std::string& family, const StatusOr<ProbedDevices>& found);
  // What executors' sandboxes reach, before a tenant asks for one. Blocks (ProbeSandbox): for the thread that probes.
  void LookAtSandbox();
  // Every family has answered.
  void DevicesKnown();
  // Devices with drivers whose defects are to be looked for, and what was found of one (DeviceTable).
  std::vector<std::pair<std::string, std::string>> DriverDevices();
  void SetDefects(const std::string& id, const std::vector<DriverDefect>& defects);
  // For the thread that probes: a device that is to be tried out, or until when there is none.
  std::optional<std::string> DueProbe(Time* next);
  void OnProbed(const std::string& id, const Status& outcome);
  // Called, from any thread, when DueProbe has something earlier than it last said. Set before anything else.
  void SetProbeWake(std::function<void()> wake);

  // --- Modules and graphs (core_graph.cc) ---
  enum class BlobKind : uint8_t { kModule, kGraph };
  bool HasBlob(Tenant& tenant, BlobKind kind, const Sha256& hash);
  // Counts uploads in progress; each OK is answered by one EndUpload.
  Status BeginUpload(Tenant& tenant);
  void EndUpload(Tenant& tenant);
  // Likewise streams of buffers and outputs to clients, which hold messages for as long as nobody reads them.
  Status BeginDownload(Tenant& tenant);
  void EndDownload(Tenant& tenant);
  // Host memory for a blob of that size, before its bytes come.
  StatusOr<scheduler::Lease> HoldHostBytes(Tenant& tenant, uint64_t bytes);
  Status InsertBlob(Tenant& tenant, BlobKind kind, BlobRef blob);
  // `done` may come before PrepareGraph returns; the response is filled then. The id is for CancelPrepare.
  uint64_t PrepareGraph(const TenantRef& tenant, const v1::PrepareGraphRequest& request,
                        v1::PrepareGraphResponse* response, std::function<void(const Outcome&)> done);
  // Ends it with kCancelled at once; unknown ids are ignored.
  void CancelPrepare(uint64_t id);
  Status ReleaseGraph(Tenant& tenant, std::string_view handle);
  // For Stream: the prepared graph of a handle, held as long as the reference is, and the handle with it.
  StatusOr<PreparationRef> FindHandle(Tenant& tenant, std::string_view handle);
  // Those of the tenant, for clients that have lost them (core_handles.cc).
  Status ListGraphs(Tenant& tenant, const v1::ListGraphsRequest& request, v1::ListGraphsResponse* response);

  // What the tenant's executor knows of how long kernels and transfers take (core_costs.cc). With a handle the graph is
  // prepared first if it has to be; without one, and without an executor, nothing is known. Request and response are
  // borrowed until `done`.
  void ListCosts(const TenantRef& tenant, const v1::ListCostsRequest& request, v1::ListCostsResponse* response,
                 std::function<void(const Outcome&)> done);

  // --- Running (core_run.cc) ---
  using RunDone = std::function<void(RunOutcome)>;
  // Tensors of `request` are borrowed until `done`, which comes once, perhaps before Run returns. The id is for
  // CancelRun.
  uint64_t Run(const TenantRef& tenant, const v1::RunRequest& request, RunDone done);
  // One item of a stream: as Run, of a graph that is held already.
  struct StreamItem {
    const v1::StreamRequest::Item* item = nullptr;
    const v1::StreamRequest::Open* open = nullptr;
  };
  uint64_t RunItem(const TenantRef& tenant, PreparationRef preparation, const StreamItem& item, RunDone done);
  // Ends it soon with kCancelled; unknown ids are ignored.
  void CancelRun(uint64_t id);

  // --- Jobs (core_submit.cc, core_attempt.cc, core_job_end.cc, core_cancel.cc, core_job_read.cc, core_restore.cc) ---
  // Once, before any other call about jobs and before serving: takes up what the store has, as a new incarnation. Jobs
  // that ran when the earlier one ended have lost that attempt.
  Status Restore();
  using Done = std::function<void(const Outcome&)>;
  // Requests and responses are borrowed until `done`, which comes once, perhaps before these return; never before what
  // it acknowledges is on disk. These and the reads below ask the store on the caller's thread.
  void Submit(const TenantRef& tenant, const v1::SubmitRequest& request, v1::SubmitResponse* response, Done done);
  void RetryJob(const TenantRef& tenant, const v1::RetryJobRequest& request, v1::SubmitResponse* response, Done done);
  // Of a job or an array.
  void CancelJob(const TenantRef& tenant, std::string_view id, v1::CancelJobResponse* response, Done done);
  Status GetJob(Tenant& tenant, std::string_view id, v1::Job* job);
  // Each call does some of the work, without waiting for more than a short read; true: it is done.
  using Steps = std::function<StatusOr<bool>()>;
  Steps ListJobs(const TenantRef& tenant, const v1::ListJobsRequest& request, v1::ListJobsResponse* response);
  // The key is for Unwatch; 0 when there is nothing to wait for. kResourceExhausted at jobs.watchers_max, and
  // jobs.watchers_per_tenant_max.
  StatusOr<uint64_t> WatchJob(Tenant& tenant, std::string_view id, JobEvents::Wake wake);
  void Unwatch(Tenant& tenant, std::string_view id, uint64_t key);
  struct EventBatch {
    std::vector<v1::JobEvent> events;
    bool last = false;  // The job has ended and these are all.
  };
  // Of jobs that ended a while ago: one event, the job.
  StatusOr<EventBatch> ReadEvents(Tenant& tenant, std::string_view id, uint64_t after, size_t count_max);
  // The bytes of one output of a succeeded job.
  struct StoredBytes {
    v1::StoredOutput header;
    std::string inline_bytes;
    std::unique_ptr<DiskFile> file;  // Instead; header.size_bytes long.
  };
  StatusOr<StoredBytes> FindOutput(Tenant& tenant, std::string_view id, std::string_view name);

  // --- Buffers (core_buffer.cc) ---
  StatusOr<v1::Buffer> CreateBuffer(Tenant& tenant, const v1::CreateBufferRequest& request);
  struct BufferAccess {
    v1::Buffer buffer;
    SegmentRef segment;
  };
  StatusOr<BufferAccess> OpenBuffer(Tenant& tenant, std::string_view id);
  // After writing through the segment; kAborted when a run published other memory meanwhile.
  StatusOr<v1::Buffer> FinishWrite(Tenant& tenant, std::string_view id, const SegmentRef& segment);
  Status DeleteBuffer(Tenant& tenant, std::string_view id);
  // As ListGraphs (core_handles.cc).
  Status ListBuffers(Tenant& tenant, const v1::ListBuffersRequest& request, v1::ListBuffersResponse* response);

  // --- Time and the end (core.cc) ---
  // Carries out what is due; answers when to call again. Called from one thread, which also reaps executors.
  Time OnTime();
  // Does what asks the store, in turn with other reads of that tenant and fairly among tenants (JobStore::PostRead).
  void PostRead(const Tenant& tenant, FairQueue::Work work);
  // Called, from any thread, when OnTime is due earlier than it last said; must only wake that thread. Set before
  // anything else.
  void SetWake(std::function<void()> wake);
  // Refuses new work and starts no job from now on. Jobs that wait stay in the store; what runs may end.
  void Drain();
  // After Drain: runs end as UNAVAILABLE, attempts are broken off and their jobs go back to where they waited, without
  // having spent the attempt. Does not wait; OnTime is still needed.
  void StopRunning();
  // Runs, attempts and writes to the store that have not ended.
  size_t operations() const;
  // Ends everything: executors are killed, operations fail. Blocks until they are reaped. The store is not called any
  // more when it returns.
  void Stop();
  // The store's disk has become full, or has room again (JobStore::SetOnRoom).
  void OnRoom(bool has_room);
  // Something of that job in the store is damaged (JobStore::SetOnDamage): unless it runs or has ended it ends.
  void OnDamage(const JobDamage& damage);
  // Any thread; asks the store.
  CoreHealth Health();
  // Any thread; reads no disk.
  CoreSnapshot Snapshot(bool with_tenants);

 private:
  friend class CoreScope;
  using Waiter = Preparation::Waiter;
  using TimerKey = std::pair<Time, uint64_t>;

  // core.cc
  // Jobs that are looked at under one hold of the mutex.
  static constexpr int kJobsAtOnce = 16;
  // Work under the mutex whose size a tenant chooses: `slice` does some of it at once and the rest in the tenant's
  // turns (JobStore::PostRead), each under a hold of its own, until it says that all is done.
  void InSlices(CoreScope& scope, const TenantRef& tenant, std::function<bool(CoreScope&)> slice);
  // Likewise, and nothing at once.
  void InLaterSlice(CoreScope& scope, const TenantRef& tenant, std::function<bool(CoreScope&)> slice);
  // In slices, every job of the tenant that has not ended, oldest first; then, if it is given, `done`.
  void EachLive(CoreScope& scope, const TenantRef& tenant, std::function<void(CoreScope&, const LiveJobRef&)> look,
                std::function<void(CoreScope&)> done = nullptr);
  void SetTotals();
  TimerKey AddTimer(CoreScope& scope, Time when, std::function<void(CoreScope&)> action);
  void DropTimer(TimerKey& timer);
  void Tick(CoreScope& scope, std::vector<scheduler::Event> events);
  Tenant* TenantByKey(scheduler::TenantKey key);
  TenantRef AddTenant(CoreScope& scope, const std::string& name);
  Status RefuseWhenDraining() const;

  // core_share.cc
  // The fair share's device that stands for the hardware of a device; the processor's is 0.
  scheduler::DeviceIndex ShareDevice(const std::string& id);
  // Those that a run of the graph may use.
  uint64_t ShareDevices(const Preparation& preparation);
  void UseDevices(CoreScope& scope, const RunOp& op, uint64_t devices);
  void ShareSettings(CoreScope& scope, Tenant& tenant);
  // Charges what the tenant's jobs have used of devices since this was last called.
  void SettleDeviceTime(Tenant& tenant);
  void Apply(CoreScope& scope, const scheduler::Decision& decision);
  void RefuseRun(CoreScope& scope, const std::shared_ptr<RunOp>& op, scheduler::RefuseJob::Limit limit);
  void WriteGrant(scheduler::TenantKey key, scheduler::DeviceIndex device, const DeviceGrant& grant);
  void AwaitReturn(CoreScope& scope, const scheduler::Revoke& revoke);
  void WriteGrantEntry(ExecutorSlot& slot, uint32_t entry);
  // All of it, for an executor that is about to start with the slot's profile.
  void WriteGrantPage(ExecutorSlot& slot);

  // core_executor.cc
  void WithExecutor(CoreScope& scope, const TenantRef& tenant, Waiter then);
  // How long no executor may start, because too many crashed; 0: one may.
  CrashBreaker::Limits BreakerLimitsOfAll() const;
  Duration CrashPause(ExecutorSlot& slot);
  void CountCrash(Tenant& tenant);
  // Why the graph may not run now: one of its modules has crashed executors. OK: it may.
  Outcome WhyNoModule(Tenant& tenant, const Preparation& preparation);
  CrashBreaker::Limits BreakerLimits() const;
  // Why no executor of the tenant is started now; OK: one may be.
  Outcome WhyNoExecutor(Tenant& tenant);
  void OnReady(const TenantRef& tenant, uint64_t epoch, const ExecutorReady& ready);
  // The devices that the tenant's next executor gets.
  std::vector<std::string> ProfileOf(const Tenant& tenant) const;
  // Devices for the executor that the tenant is about to get, and what is known of them.
  void SetProfile(Tenant& tenant);
  bool LacksDevices(const Tenant& tenant) const;
  bool IsExecutorBusy(const Tenant& tenant) const;
  void RefuseWaiting(CoreScope& scope, Tenant& tenant);
  void PostSpawn(const TenantRef& tenant, uint64_t epoch);
  void Spawn(const TenantRef& tenant, uint64_t epoch);
  std::shared_ptr<ExecutorProcess> Adopt(std::unique_ptr<ExecutorProcess> port);
  void DestroyEnded();
  void OnExecutorEnd(const TenantRef& tenant, uint64_t epoch, const Status& why);
  void KillExecutor(CoreScope& scope, Tenant& tenant, std::string why);
  bool ReplaceDeadSpare(CoreScope& scope, Tenant& tenant, uint64_t epoch);
  void RetireExecutor(CoreScope& scope, Tenant& tenant);
  void ForgetFreed(Tenant& tenant, ExecutorProcess& port);
  void ScheduleIdleCheck(CoreScope& scope, const TenantRef& tenant);

  // core_device.cc
  // Starts executors that wait for devices, if none is in question any more.
  void SpawnAwaiting(CoreScope& scope);
  // Takes devices of a run away from executors that start, until they have been tried out.
  // Every tenant is shown `what`; `why` is one tenant's or its executor's text, for the log.
  void FenceDevices(CoreScope& scope, const std::vector<std::string>& ids, const std::string& what,
                    const std::string& why);
  // Those of a prepared graph's devices that have drivers.
  std::vector<std::string> DriverDevices(const Preparation& preparation) const;
  Duration StopGrace(const std::vector<std::string>& profile) const;
  bool HasDriver(const std::vector<std::string>& profile) const;

  // core_reclaim.cc
  void OnUsage(const TenantRef& tenant, uint64_t epoch, const ExecutorUsage& usage);
  // A driver refused a run memory: other tenants give back what they do not use, then the run is sent again. False when
  // nobody has any.
  bool RunAgainWithMemory(const std::shared_ptr<RunOp>& op, const RunReply& reply);
  struct Claim;  // core_reclaim.cc
  std::vector<Claim> ClaimsOn(const Tenant& but, const std::string& device);
  uint64_t Ask(CoreScope& scope, const Tenant& but, const std::string& device, uint64_t bytes,
               const std::function<void()>& answered);

  // core_graph.cc
  using NamedBlobs = std::map<std::string, BlobRef>;  // By name, so that a request's order does not matter.
  StatusOr<PreparationRef> FindPreparation(CoreScope& scope, Tenant& tenant, const std::string& graph_sha256,
                                           bool check,
                                           const google::protobuf::RepeatedPtrField<v1::ModuleBinding>& modules);
  // `is_limited`: not for jobs that were accepted, which come back when they may.
  StatusOr<PreparationRef> MakePreparation(CoreScope& scope, Tenant& tenant, bool check, BlobRef document,
                                           NamedBlobs modules, bool is_limited);
  void WithPrepared(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation, Waiter then,
                    std::function<bool()> is_wanted = nullptr);
  // After a wait for it has become unwanted: ends the preparation if no other is wanted.
  void StopUnwanted(CoreScope& scope, Tenant& tenant, Preparation& preparation);
  void SendPrepare(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation);
  void OnPrepared(const TenantRef& tenant, const PreparationRef& preparation, uint64_t epoch,
                  StatusOr<PrepareReply> reply);
  void DropIdlePreparations(CoreScope& scope, Tenant& tenant, size_t keep);
  // The least recently used one that nobody uses; false: all are in use.
  bool DropOnePreparation(CoreScope& scope, Tenant& tenant);
  void DropPreparation(CoreScope& scope, Tenant& tenant, Preparation& preparation);

  // core_handles.cc
  // The graph of a handle that is used now: whoever holds the reference uses the handle as well. kNotFound.
  StatusOr<PreparationRef> UseHandle(Tenant& tenant, std::string_view handle);
  std::string AddHandle(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation);
  // What nobody has used for long gives way: the oldest such handle, and buffers as far as one of that size needs it.
  void YieldHandle(CoreScope& scope, Tenant& tenant);
  void YieldBuffers(Tenant& tenant, uint64_t size_bytes);
  void ScheduleExpiry(CoreScope& scope, const TenantRef& tenant);
  void Expire(CoreScope& scope, const TenantRef& tenant);

  // core_costs.cc
  struct CostsCall {
    v1::ListCostsResponse* response = nullptr;  // Borrowed until `done`.
    std::string handle;                         // As asked for.
    std::function<void(const Outcome&)> done;
  };
  void AskCosts(CoreScope& scope, const TenantRef& tenant, uint64_t link_handle, CostsCall call);
  void OnCosts(Tenant& tenant, uint64_t link_handle, const CostsCall& call, const StatusOr<ExecutorCosts>& costs);

  // core_run.cc
  void Start(CoreScope& scope, const std::shared_ptr<RunOp>& op);
  void SendRun(CoreScope& scope, const std::shared_ptr<RunOp>& op);
  void Transmit(const std::shared_ptr<RunOp>& op);
  void OnRunReply(const std::shared_ptr<RunOp>& op, StatusOr<RunReply> reply);
  void TakeOutcome(const std::shared_ptr<RunOp>& op, RunOutcome outcome, bool has_died);
  void TakeLosses(CoreScope& scope, RunOp& op, bool has_died, const std::vector<std::string>& lost, Outcome& outcome);
  void Finish(CoreScope& scope, const std::shared_ptr<RunOp>& op, RunOutcome outcome);
  void StopRun(CoreScope& scope, const std::shared_ptr<RunOp>& op, Status why);
  void ArmStop(CoreScope& scope, const std::shared_ptr<RunOp>& op, const StopPatience& patience, Time when);
  void RefuseRequest(CoreScope& scope, const std::shared_ptr<RunOp>& op, Outcome why);
  void TakeLeft(CoreScope& scope, RunOp& op, const std::vector<std::string>& left);
  Status SetOptions(RunOp& op, const v1::RequestOptions& options, uint32_t repeat);

  // core_publish.cc
  Status ResolveBindings(Tenant& tenant, RunOp& op, const google::protobuf::RepeatedPtrField<v1::InputBinding>& inputs,
                         const google::protobuf::RepeatedPtrField<v1::OutputBinding>& outputs);
  Status Publish(Tenant& tenant, std::vector<RunOutput>& outputs);
  Status MakeBuffers(Tenant& tenant, std::vector<RunOutput>& outputs, std::vector<std::string>* made);
  void ReserveGenerations(Tenant& tenant, std::vector<RunOutput>& outputs);
  void PublishBuffers(Tenant& tenant, const std::vector<RunOutput>& outputs);

  // core_quota.cc
  void SetPolicy(Tenant& tenant);
  void RestoreSpent(const Tenant& tenant);
  void ApplyPolicy(CoreScope& scope, const TenantRef& tenant);
  void Suspend(CoreScope& scope, const TenantRef& tenant);
  void StopRuns(CoreScope& scope, const TenantRef& tenant, const Status& why);
  // kPermissionDenied or kNotFound when its calls are refused.
  static Status RefuseTenant(const Tenant& tenant);
  // As a refusal of something that comes back when it may.
  static Outcome Suspended(const Tenant& tenant);
  // Drops what nobody uses, so that so much host memory more may be held; not always enough.
  void MakeRoom(CoreScope& scope, Tenant& tenant, uint64_t host_bytes);
  // Refused while there is a debt of compile time, unless nothing is to be compiled.
  Outcome AdmitCompile(const Tenant& tenant, const Preparation& preparation);
  // What a Run takes before it waits for its turn.
  Outcome PayForRun(CoreScope& scope, RunOp& op);
  void ChargeDeviceTime(Tenant& tenant, Duration held);
  // What the executor says of it, within what it can have spent since `sent`.
  void ChargeCompileTime(Tenant& tenant, uint64_t said_ns, Duration wall);
  // What the tenant's executor of that epoch says it holds on devices, all together.
  void SetDeviceBytes(Tenant& tenant, uint64_t epoch, uint64_t bytes);

  // core_submit.cc
  struct Submission;
  using SubmissionRef = std::shared_ptr<Submission>;
  Outcome AdmitJobs(Tenant& tenant, uint64_t count, scheduler::Lease* queued);
  bool JoinPending(Tenant& tenant, const std::string& key, std::function<void()> again);
  void BeginSubmission(CoreScope& scope, const SubmissionRef& submission);
  StatusOr<PreparationRef> PreparationOf(CoreScope& scope, Tenant& tenant, const v1::SubmitRequest& request);
  Status Accept(CoreScope& scope, const SubmissionRef& submission);
  Status Normalise(Submission& submission);
  static void StoreGraph(Submission& submission);
  static void StoreInputs(Submission& submission, const RunOp& op);
  void FillRow(Submission& submission, const RunOp& op);
  Status ReserveBytes(Tenant& tenant, uint64_t bytes, std::string_view what, scheduler::Lease* lease);
  void Put(CoreScope& scope, const SubmissionRef& submission);

  // core_room.cc
  void LeaveQueues(CoreScope& scope);
  Status RefuseWithoutRoom() const;
  std::string RoomSentenceOf(const LiveJob& job) const;

  // core_retry.cc
  Status PrepareRetry(Submission& submission, const v1::RetryJobRequest& request);
  Status PinBlobs(Submission& submission, const StoredJob& from);

  // core_insert.cc
  using StoredUnits = std::map<std::string, StoredUnit>;
  static Outcome StoreRefusal(const Status& status);
  // Empty: the store must be asked (again).
  static std::optional<StoredUnit> StateOfUnit(const Tenant& tenant, const std::string& id, const StoredUnits& units);
  struct Waits {
    std::vector<v1::JobDependency> pending;
    std::optional<v1::JobDependency> failed;
  };
  // As the units stand now.
  static Waits JudgeUnits(const Tenant& tenant, const std::vector<v1::JobDependency>& after, const StoredUnits& units);
  static void AddWaits(Tenant& tenant, LiveJob& job, const Waits& waits);
  void OnBlobs(const SubmissionRef& submission, StatusOr<std::vector<PinnedBlob>> blobs);
  void SettleDependencies(const SubmissionRef& submission);
  FairQueue::Step ReadUnits(const SubmissionRef& submission, UnitReader& reader);
  void Insert(CoreScope& scope, const SubmissionRef& submission);
  void OnInserted(const SubmissionRef& submission, const WriteResult& result);
  bool MakeRows(const SubmissionRef& submission, const v1::JobArray* array, int64_t now);
  bool JoinJobs(CoreScope& scope, const SubmissionRef& submission, const std::vector<uint64_t>& sequences);
  void EndInserting(Submission& submission);
  void AddLive(const LiveJobRef& job);
  FairQueue::Step AddElements(const SubmissionRef& submission, JobFilter* filter);
  void AnswerKnown(const SubmissionRef& submission, const KeyRecord& known);
  void Answer(CoreScope& scope, const SubmissionRef& submission, Outcome outcome);

  // core_attempt.cc
  using JobStep = void (Core::*)(CoreScope&, const LiveJobRef&);
  void ChangeRow(CoreScope& scope, const LiveJobRef& job, StoredJob next, bool with_results, JobStep then);
  void OnChanged(const LiveJobRef& job, const StoredJob& next, bool with_results, JobStep then, const Status& status);
  void Settle(CoreScope& scope, const LiveJobRef& job);
  void WaitUntil(CoreScope& scope, const LiveJobRef& job, Time when);
  void Queue(CoreScope& scope, const LiveJobRef& job);
  void AddQueued(const LiveJobRef& job);
  void RemoveQueued(const LiveJob& job);
  void LeaveQueue(CoreScope& scope, const LiveJobRef& job);
  void Unqueue(CoreScope& scope, const LiveJobRef& job);
  void OnTurn(CoreScope& scope, const LiveJobRef& job);
  void ReturnTurn(CoreScope& scope, const LiveJobRef& job);
  void OnStarted(CoreScope& scope, const LiveJobRef& job);
  BlobMemory MemoryOf(const TenantRef& tenant);
  void Dispatch(CoreScope& scope, const LiveJobRef& job, StoredParts* parts);
  Status FillOp(CoreScope& scope, const LiveJobRef& job, StoredParts& parts, RunOp& op);

  // core_array.cc
  static LiveArray* ArrayOf(const LiveJob& job);
  static void JoinArray(const LiveJobRef& job);
  static bool TakeArrayTurn(const LiveJobRef& job);
  void LeaveArrayTurn(CoreScope& scope, const LiveJobRef& job);
  void LeaveArray(CoreScope& scope, const LiveJobRef& job, v1::JobState state);

  // core_job_end.cc
  void OnAttemptDone(const LiveJobRef& job, RunOutcome outcome);
  void FinishAttempt(CoreScope& scope, const LiveJobRef& job, RunOutcome outcome);
  void EndAttempt(CoreScope& scope, const LiveJobRef& job);
  void StoreOutputs(CoreScope& scope, const LiveJobRef& job);
  Status KeepOutputs(Tenant& tenant, JobAttempt& attempt);
  void DropOutputs(Tenant& tenant, JobAttempt& attempt);
  void KeepLog(Tenant& tenant, JobAttempt& attempt);
  void PutOutputs(const LiveJobRef& job);
  void OnOutputs(const LiveJobRef& job, const StatusOr<std::vector<PinnedBlob>>& blobs);
  void PutBack(CoreScope& scope, const LiveJobRef& job, bool counts);
  void OnPutBack(CoreScope& scope, const LiveJobRef& job);
  void EndJob(CoreScope& scope, const LiveJobRef& job, v1::JobState state, Outcome why);
  void OnEnded(CoreScope& scope, const LiveJobRef& job);
  void LeaveTurn(CoreScope& scope, const LiveJobRef& job);
  void Forget(CoreScope& scope, const LiveJobRef& job);
  void GiveUp(CoreScope& scope, const LiveJobRef& job, const Status& why);
  void TellUnit(CoreScope& scope, const TenantRef& tenant, const std::string& unit, const UnitState& state);
  void SetWaiting(LiveJob& job, bool waits);
  void SetRunning(LiveJob& job, bool runs);

  // core_cancel.cc
  using CancelDone = std::function<void(CoreScope&, const Status&)>;
  struct ArrayCancel;
  bool CancelElements(CoreScope& scope, const std::shared_ptr<ArrayCancel>& cancel);
  Outcome AnswerCancelOfEnded(Tenant& tenant, const std::string& name, v1::CancelJobResponse* response);
  void AskCancel(CoreScope& scope, const LiveJobRef& job, CancelDone then);
  void OnCancelRecorded(CoreScope& scope, const LiveJobRef& job);
  void AnswerCancels(CoreScope& scope, LiveJob& job, const Status& status);
  // What waits for a disk that has no room any more would wait for ever.
  void RefuseCancels(CoreScope& scope);

  // core_restore.cc
  LiveJobRef TakeUp(CoreScope& scope, StoredJob row, bool doubts_clock);
  // The clock is more than an hour from the newest time in the store.
  bool DoubtsClock(const std::vector<StoredJob>& live, const std::map<std::string, TenantUse>& uses);
  // By the clock on the wall, within what its deadline may be at all.
  Time RestoredDeadline(const LiveJob& job) const;
  void LookAtDeadlineAgain(CoreScope& scope, const LiveJobRef& job);
  struct RestoredUnits;  // core_restore.cc
  Status EndDamaged(const std::vector<DamagedJob>& damaged);
  StatusOr<StoredUnit> ReadUnit(const Tenant& tenant, const std::string& id);
  using DamagedUnits = std::optional<std::set<std::string>>;  // Read once, and only if there is a need.
  bool MayBeDamaged(const std::string& unit, DamagedUnits& damaged);
  void CountArrays(const std::vector<LiveJobRef>& taken, DamagedUnits& damaged);
  void ReadForRestore(const std::vector<LiveJobRef>& taken, DamagedUnits& damaged,
                      std::map<Tenant*, RestoredUnits>* units);
  std::set<std::string> ReadDamagedUnits();
  void RestoreDependencies(LiveJob& job, const RestoredUnits& units);
  void SetDeadline(CoreScope& scope, const LiveJobRef& job);

  // core_retention.cc
  void ScheduleRetention(CoreScope& scope, Duration after);
  size_t Retain(RetentionLimits limits);
  void OnDropped(const DropJob& drop, const WriteResult& result);

  // core_job_list.cc
  struct JobList;
  bool PutOnPage(JobList& list, uint64_t sequence, v1::Job job);
  StatusOr<bool> ListStored(JobList& list);
  StatusOr<bool> ListLive(JobList& list);

  // core_job_read.cc
  v1::Job Describe(const LiveJob& job) const;
  std::string WaitSentenceOf(const LiveJob& job) const;
  std::string TurnSentenceOf(const Tenant& tenant) const;
  // Null for those that have ended, or are not on disk yet.
  static LiveJob* FindLive(Tenant& tenant, std::string_view id);
  // Of any job; without its log. Reads the store.
  StatusOr<v1::Job> FindJob(Tenant& tenant, std::string_view id);
  JobEvents& EventsOf(LiveJob& job);
  void AddEvent(CoreScope& scope, JobEvents& events, v1::JobEvent event);
  void AddStateEvent(CoreScope& scope, LiveJob& job);
  void AddRunEvents(CoreScope& scope, LiveJob& job, const RunOutcome& outcome);
  void KeepRecent(LiveJob& job);

  CoreOptions options_;
  const PageTokens page_tokens_;
  const int64_t started_unix_ns_;
  mutable std::mutex config_mutex_;       // Taken after mutex_.
  std::shared_ptr<const Config> config_;  // Changed under both; read under either.
  mutable std::mutex mutex_;
  std::map<std::string, TenantRef> tenants_;
  std::unordered_map<scheduler::TenantKey, TenantRef> tenants_by_key_;
  scheduler::Ledger ledger_;  // Locks itself.
  RequestMeter meter_;
  scheduler::FairShare share_;
  std::vector<std::string> hardware_;  // By the fair share's device.
  bool is_ticking_ = false;
  std::vector<scheduler::Event> more_events_;  // Of decisions that are being carried out.
  std::map<scheduler::JobKey, std::shared_ptr<RunOp>> ops_;
  struct PrepareOp {
    TenantRef tenant;
    PreparationRef preparation;
    std::function<void(const Outcome&)> done;  // Empty: called.
  };
  std::map<uint64_t, std::shared_ptr<PrepareOp>> prepare_ops_;
  std::unordered_map<scheduler::JobKey, LiveJobRef> queued_jobs_;  // Never iterated.
  uint64_t next_op_ = 1, next_timer_ = 1;
  std::map<TimerKey, std::function<void(CoreScope&)>> timers_;
  Time tick_due_ = kNever, next_wake_ = kNever;
  std::function<void()> wake_;
  std::atomic<size_t> live_ports_{0};
  std::mutex graves_mutex_;                               // Taken last; guards the next.
  std::vector<std::unique_ptr<ExecutorProcess>> graves_;  // Ended; destroyed by OnTime's thread.
  std::condition_variable graves_changed_;
  DeviceTable devices_;
  bool devices_known_ = false;
  std::optional<SandboxFacts> sandbox_;                           // Of the executor that started last.
  std::vector<std::pair<TenantRef, uint64_t>> awaiting_devices_;  // To be spawned, with the executor's epoch.
  std::function<void()> probe_wake_;

  ClockWatch clock_watch_{*options_.clock};         // For retention; only the store's thread uses it.
  uint64_t lease_ = 0;                              // This incarnation's; 0: not restored.
  bool has_room_ = true;                            // On the store's disk.
  std::atomic<size_t> retaining_{0};                // Writes of retention that have no answer yet.
  uint64_t waiting_jobs_ = 0;                       // Of all tenants.
  uint64_t running_jobs_ = 0;                       // With an attempt: RUNNING on disk.
  std::set<const Submission*> submissions_;         // Between the call and its answer.
  std::map<std::string, SubmissionRef> inserting_;  // By what waits in the place of their jobs, until those live.
  struct Watcher {
    std::shared_ptr<JobEvents> events;
    uint64_t key = 0;
    Tenant* tenant = nullptr;
  };
  std::map<uint64_t, Watcher> watching_;  // By the key of WatchJob.
  uint64_t next_watcher_ = 1;
  std::deque<std::pair<Tenant*, std::string>> recent_;  // Ended jobs with events, the oldest first.
  size_t recent_events_ = 0;
  // Nothing new; nothing new is started; StopRunning was called; Stop was called; the store is not called any more.
  bool draining_ = false, breaking_off_ = false, stopped_ = false, closed_ = false;
};

// The locked part of one method, and what it decided to do after unlocking.
class CoreScope {
 public:
  explicit CoreScope(Core& core) : core_(core), lock_(core.mutex_), hold_("core lock") {}
  ~CoreScope();
  CoreScope(const CoreScope&) = delete;
  CoreScope& operator=(const CoreScope&) = delete;
  void Defer(std::function<void()> action) { actions_.push_back(std::move(action)); }
  // OnTime is due earlier than it knows.
  void WakeTimer() { wake_timer_ = true; }

 private:
  Core& core_;
  std::unique_lock<std::mutex> lock_;
  WatchedHold hold_;
  std::vector<std::function<void()>> actions_;
  bool wake_timer_ = false;
};

}  // namespace hpvm

#endif  // HPVMD_SERVER_CORE_CORE_H_
