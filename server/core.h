// SPDX-License-Identifier: Apache-2.0
// The daemon's state behind one mutex: tenants and what they own, executors, queues, jobs.
//
// Every public method locks, decides, unlocks, and then carries out what it decided (sending to executors, spawning,
// calling back), so callbacks come without the mutex held and may call the core again. The same holds for what
// executors answer, on the link's thread: a Run goes from gRPC's thread to the socket and from the link's thread back
// to gRPC, with no further thread.
#ifndef HPVMD_SERVER_CORE_H_
#define HPVMD_SERVER_CORE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/grant.h"
#include "hpvm/v1/service.pb.h"
#include "scheduler/fair_share.h"
#include "server/config.h"
#include "server/device_table.h"
#include "server/job_store.h"
#include "server/run_op.h"
#include "server/tenant.h"

namespace hpvm {

struct CoreOptions {
  Config config;
  const Clock* clock = nullptr;          // Borrowed; lives longer.
  Rng* rng = nullptr;                    // Borrowed; lives longer. Used under the mutex.
  ExecutorSpawner* spawner = nullptr;    // Borrowed; lives longer.
  std::unique_ptr<JobStore> jobs;
  uint32_t cpu_threads = 1;              // What grants give.
  // Executors wait for DevicesKnown, so that the first ones have every device.
  bool awaits_devices = false;
};

using TenantRef = std::shared_ptr<Tenant>;   // Shared with operations in progress.

class Core {
 public:
  explicit Core(CoreOptions options);
  ~Core();   // After Stop.
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  const Config& config() const { return options_.config; }
  const Clock& clock() const { return *options_.clock; }

  // The tenant of that name, made on first use. kResourceExhausted at tenants.max.
  StatusOr<TenantRef> FindTenant(std::string_view name);

  void ServerInfo(const Tenant& tenant, v1::ServerInfoResponse* response);
  void ListDevices(Tenant& tenant, v1::ListDevicesResponse* response);

  // --- Devices (core_device.cc) ---
  // What discovery found of one family, at start and again later; a status when its probe failed.
  void SetFound(const std::string& family, const StatusOr<ProbedDevices>& found);
  // Every family has answered.
  void DevicesKnown();
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
  Status InsertBlob(Tenant& tenant, BlobKind kind, BlobRef blob);
  // `done` may come before PrepareGraph returns; the response is filled then.
  void PrepareGraph(const TenantRef& tenant, const v1::PrepareGraphRequest& request, v1::PrepareGraphResponse* response,
                    std::function<void(const Outcome&)> done);
  Status ReleaseGraph(Tenant& tenant, std::string_view handle);
  // For Stream: the prepared graph of a handle, held as long as the reference is.
  StatusOr<PreparationRef> FindHandle(Tenant& tenant, std::string_view handle);

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

  // --- Jobs (core_job.cc) ---
  void Submit(const TenantRef& tenant, std::shared_ptr<const v1::SubmitRequest> request, v1::SubmitResponse* response,
              std::function<void(const Outcome&)> done);
  Status GetJob(Tenant& tenant, std::string_view id, v1::Job* job);
  Status ListJobs(Tenant& tenant, const v1::ListJobsRequest& request, v1::ListJobsResponse* response);
  Status CancelJob(Tenant& tenant, std::string_view id, v1::Job* job);
  // The key is for Unwatch. kResourceExhausted at jobs.watchers_max.
  StatusOr<uint64_t> WatchJob(Tenant& tenant, std::string_view id, JobEvents::Wake wake);
  void Unwatch(Tenant& tenant, std::string_view id, uint64_t key);
  struct EventBatch {
    std::vector<v1::JobEvent> events;
    bool last = false;   // The job has ended and these are all.
  };
  StatusOr<EventBatch> ReadEvents(Tenant& tenant, std::string_view id, uint64_t after, size_t count_max);
  // The bytes of one output of a succeeded job.
  struct StoredBytes {
    v1::StoredOutput header;
    std::string inline_bytes;
    SegmentRef segment;   // Instead.
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

  // --- Time and the end (core.cc) ---
  // Carries out what is due; answers when to call again. Called from one thread, which also reaps executors.
  Time OnTime();
  // Called, from any thread, when OnTime is due earlier than it last said; must only wake that thread. Set before
  // anything else.
  void SetWake(std::function<void()> wake);
  // Refuses new work from now on.
  void Drain();
  // Runs and submitted jobs that have not ended.
  size_t operations() const;
  // Ends everything: executors are killed, operations fail. Blocks until they are reaped.
  void Stop();

 private:
  friend class CoreScope;
  using Waiter = Preparation::Waiter;
  using TimerKey = std::pair<Time, uint64_t>;

  // core.cc
  TimerKey AddTimer(CoreScope& scope, Time when, std::function<void(CoreScope&)> action);
  void Tick(CoreScope& scope, std::initializer_list<scheduler::Event> events);
  void Apply(CoreScope& scope, const scheduler::Decision& decision);
  // `grant`: not 0 when the executor's acknowledgement returns that grant.
  void WriteGrant(CoreScope& scope, scheduler::TenantKey key, GrantState state, bool contended, uint64_t grant);
  Tenant* TenantByKey(scheduler::TenantKey key);
  Status RefuseWhenDraining() const;
  void ExpireJobs();

  // core_executor.cc
  void WithExecutor(CoreScope& scope, const TenantRef& tenant, Waiter then);
  bool IsExecutorBusy(const Tenant& tenant) const;
  void Spawn(const TenantRef& tenant, uint64_t epoch);
  std::shared_ptr<ExecutorProcess> Adopt(std::unique_ptr<ExecutorProcess> port);
  void DestroyEnded();
  void OnExecutorEnd(const TenantRef& tenant, uint64_t epoch, const Status& why);
  void KillExecutor(CoreScope& scope, Tenant& tenant, std::string why);
  void RetireExecutor(CoreScope& scope, Tenant& tenant);
  void ForgetFreed(Tenant& tenant, ExecutorProcess& port);
  void ScheduleIdleCheck(CoreScope& scope, const TenantRef& tenant);

  // core_device.cc
  // Starts executors that wait for devices, if none is in question any more.
  void SpawnAwaiting(CoreScope& scope);
  // Takes devices of a run away from executors that start, until they have been tried out.
  void FenceDevices(CoreScope& scope, const std::vector<std::string>& ids, const std::string& why);
  // Those of a prepared graph's devices that have drivers.
  std::vector<std::string> DriverDevices(const Preparation& preparation) const;
  Duration StopGrace(const std::vector<std::string>& profile) const;

  // core_graph.cc
  StatusOr<PreparationRef> FindPreparation(CoreScope& scope, Tenant& tenant, const std::string& graph_sha256,
                                           bool check,
                                           const google::protobuf::RepeatedPtrField<v1::ModuleBinding>& modules);
  void WithPrepared(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation, Waiter then);
  void SendPrepare(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation);
  void OnPrepared(const TenantRef& tenant, const PreparationRef& preparation, uint64_t epoch,
                  StatusOr<PrepareReply> reply);
  void DropIdlePreparations(CoreScope& scope, Tenant& tenant, size_t keep);

  // core_run.cc
  void Start(CoreScope& scope, const std::shared_ptr<RunOp>& op);
  void SendRun(CoreScope& scope, const std::shared_ptr<RunOp>& op);
  void Transmit(const std::shared_ptr<RunOp>& op);
  void OnRunReply(const std::shared_ptr<RunOp>& op, StatusOr<RunReply> reply);
  void TakeLosses(CoreScope& scope, RunOp& op, bool has_died, const std::vector<std::string>& lost, Outcome& outcome);
  Status Publish(RunOp& op, std::vector<RunOutput>& outputs);
  void Finish(CoreScope& scope, const std::shared_ptr<RunOp>& op, RunOutcome outcome);
  void StopRun(CoreScope& scope, const std::shared_ptr<RunOp>& op, Status why);
  Status ResolveBindings(Tenant& tenant, RunOp& op,
                         const google::protobuf::RepeatedPtrField<v1::InputBinding>& inputs,
                         const google::protobuf::RepeatedPtrField<v1::OutputBinding>& outputs);
  Status SetOptions(RunOp& op, const v1::RequestOptions& options, uint32_t repeat);

  // core_job.cc
  StatusOr<PreparationRef> PreparationOf(CoreScope& scope, Tenant& tenant, const v1::SubmitRequest& request);
  struct Submission;
  void Accept(CoreScope& scope, const std::shared_ptr<Submission>& submission);
  Status Record(CoreScope& scope, Submission& submission);
  void StartJob(const std::shared_ptr<Submission>& submission, const Status& durable);
  void Answer(CoreScope& scope, const std::shared_ptr<Submission>& submission, Outcome outcome);
  void OnJobDone(const TenantRef& tenant, const std::string& id, RunOutcome outcome);
  Status KeepOutputs(Tenant& tenant, LiveJob& live, RunOutcome& outcome, v1::Job* job);
  void KeepLog(Tenant& tenant, LiveJob& live, const ExecutorLog& log);
  Status ChangeJob(CoreScope& scope, Tenant& tenant, const std::string& id, v1::JobState from,
                   const std::function<void(v1::Job&)>& change);
  void AddEvent(CoreScope& scope, LiveJob& job, v1::JobEvent event);

  CoreOptions options_;
  const int64_t started_unix_ns_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, TenantRef> tenants_;
  std::unordered_map<scheduler::TenantKey, TenantRef> tenants_by_key_;
  scheduler::FairShare share_;
  std::unordered_map<scheduler::JobKey, std::shared_ptr<RunOp>> ops_;
  uint64_t next_op_ = 1, next_timer_ = 1;
  std::map<TimerKey, std::function<void(CoreScope&)>> timers_;
  Time tick_due_ = kNever, next_wake_ = kNever;
  std::function<void()> wake_;
  std::atomic<size_t> live_ports_{0};
  std::mutex graves_mutex_;                                // Taken last; guards the next.
  std::vector<std::unique_ptr<ExecutorProcess>> graves_;      // Ended; destroyed by OnTime's thread.
  std::condition_variable graves_changed_;
  DeviceTable devices_;
  bool devices_known_ = false;
  std::vector<std::pair<TenantRef, uint64_t>> awaiting_devices_;  // To be spawned, with the executor's epoch.
  std::function<void()> probe_wake_;
  Time expire_due_{0};
  uint64_t watchers_ = 0;
  size_t submits_ = 0;        // Between the call and the job.
  bool draining_ = false, stopped_ = false;
};

// The locked part of one method, and what it decided to do after unlocking.
class CoreScope {
 public:
  explicit CoreScope(Core& core) : core_(core), lock_(core.mutex_) {}
  ~CoreScope();
  CoreScope(const CoreScope&) = delete;
  CoreScope& operator=(const CoreScope&) = delete;
  void Defer(std::function<void()> action) { actions_.push_back(std::move(action)); }
  // OnTime is due earlier than it knows.
  void WakeTimer() { wake_timer_ = true; }

 private:
  Core& core_;
  std::unique_lock<std::mutex> lock_;
  std::vector<std::function<void()>> actions_;
  bool wake_timer_ = false;
};

}  // namespace hpvm

#endif  // HPVMD_SERVER_CORE_H_
