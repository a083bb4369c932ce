// SPDX-License-Identifier: Apache-2.0
// Core holds the daemon's state behind one mutex: tenants and what they own, executors, queues, jobs.
//
// The core consists of rooms, each with state of its own. A room calls only rooms above it in this list; calls in the
// other direction are callbacks. Every public method locks, decides, unlocks, and then carries out its decisions
// (sending to executors, spawning, calling back), so callbacks are called without the mutex held and may call the core
// again. The same holds for answers of executors, which arrive on the link's thread: a Run goes from gRPC's thread to
// the socket and from the link's thread back to gRPC, without a further thread. The job store's answers arrive on the
// store's threads, likewise.
//
// The core has no threads and no clock of its own and does not block (except in Stop): with a simulated clock, store
// and executors it runs in a deterministic simulation.
#ifndef HPVMD_SERVER_CORE_CORE_H_
#define HPVMD_SERVER_CORE_CORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "hpvm/v1/admin.pb.h"
#include "hpvm/v1/operations.pb.h"
#include "hpvm/v1/service.pb.h"
#include "server/core/jobs/job_claims.h"
#include "server/core/jobs/job_commands.h"
#include "server/core/jobs/job_feed.h"
#include "server/core/jobs/job_lifecycle.h"
#include "server/core/jobs/job_reader.h"
#include "server/core/jobs/job_restorer.h"
#include "server/core/jobs/job_retention.h"
#include "server/core/jobs/job_submitter.h"
#include "server/core/jobs/job_table.h"
#include "server/core/jobs/job_watch.h"
#include "server/core/rooms/arbiter.h"
#include "server/core/rooms/buffers.h"
#include "server/core/rooms/devices.h"
#include "server/core/rooms/executors.h"
#include "server/core/rooms/graphs.h"
#include "server/core/rooms/quotas.h"
#include "server/core/rooms/runs.h"
#include "server/core/rooms/tenants.h"
#include "server/core/rooms/watchers.h"
#include "server/core/state/core_context.h"
#include "server/core/state/core_snapshot.h"
#include "server/core/tenant_removal.h"

namespace hpvm::server {

// CoreHealth says whether the core accepts new work; otherwise `reasons` explain in sentences why not.
struct CoreHealth {
  bool is_ready = true;
  std::vector<std::string> reasons;
};

class Core {
 public:
  explicit Core(CoreOptions options);
  ~Core();  // Called after Stop.
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // The rooms, in order.
  Quotas& quotas() { return quotas_; }
  Devices& devices() { return devices_; }
  Tenants& tenants() { return tenants_; }
  Watchers& watchers() { return watchers_; }
  Graphs& graphs() { return graphs_; }
  Buffers& buffers() { return buffers_; }
  Runs& runs() { return runs_; }
  JobReader& job_reader() { return reader_; }
  JobWatch& job_watch() { return job_watch_; }
  JobSubmitter& job_submitter() { return submitter_; }
  JobCommands& job_wishes() { return commands_; }
  JobClaims& job_claims() { return claims_; }
  TenantRemoval& tenant_removal() { return removal_; }

  const Clock& clock() const { return *context_.options.clock; }
  Observer& observer() { return *context_.options.observer; }
  // Does work that reads a disk, in turn with other reads of that tenant and fairly among tenants
  // (JobStore::PostRead).
  void PostRead(std::string tenant, FairQueue::Work work) {
    context_.options.jobs->PostRead(std::move(tenant), std::move(work));
  }

  // Takes over the jobs in the store as a new incarnation. Called once, before any other call about jobs and before
  // serving. Jobs that were running when the earlier incarnation ended have lost that attempt.
  Status Restore();
  // Receivers for JobStore::SetOnRoom and SetOnDamage.
  void OnRoom(bool has_room) { lifecycle_.OnRoom(has_room); }
  void OnDamage(const JobDamage& damage) { lifecycle_.OnDamage(damage); }
  // Replaces the configuration; work in progress keeps the limits with which it started.
  void SetConfig(Config config);
  void ServerInfo(const Tenant& tenant, v1::ServerInfoResponse* response);
  // Carries out all actions that are due; returns the time of the next call. Called from one thread, which also reaps
  // executors.
  Time OnTime();
  // Sets the function that is called, from any thread, when OnTime is due earlier than it last returned; `wake` must
  // only wake that thread. Called before anything else.
  void SetWake(std::function<void()> wake) { context_.monitor.SetWake(std::move(wake)); }
  // Refuses new work and starts no job from now on. Waiting jobs stay in the store; work in progress may end.
  void Drain();
  // Called after Drain: ends runs as UNAVAILABLE; breaks off attempts, whose jobs go back to their place in the queue
  // without having spent the attempt. Does not block; OnTime must still be called.
  void StopRunning();
  // Returns the number of runs, attempts and writes to the store that have not ended.
  size_t operations();
  // Ends everything: kills executors and fails operations. Blocks until the executors are reaped. The store is not
  // called after it returns.
  void Stop();
  // Replaces the intake with the pauses of devices; work in progress goes on.
  void SetIntake(Intake intake);
  Intake intake();
  // Reports on the tenant `only`, or on all when it is null. Devices' holders and executors' processes are for
  // administrators.
  void Overview(const Tenant* only, uint32_t running_max, v1::GetOverviewResponse* response);
  // Thread-safe; queries the store.
  CoreHealth Health();
  // Thread-safe; does not read from disk.
  CoreSnapshot Snapshot(bool with_tenants);
  // Applies a changed policy of the tenant.
  void OnPolicyChanged(std::string_view name);
  // Returns kNotFound when neither the policies nor the core know the tenant.
  Status Usage(std::string_view tenant, v1::GetUsageResponse* response);
  // Returns OK when every balance equals the sum over the existing objects; otherwise an error that names the
  // difference. With `at_rest` no operation may be in progress. Takes linear time in all objects: for tests and
  // simulation.
  Status CheckAccounts(bool at_rest);
  // Thread-safe. The returned configuration does not change; SetConfig replaces it.
  std::shared_ptr<const Config> config() const { return context_.config.Get(); }

 private:
  void ApplyPolicy(CoreScope& scope, const TenantRef& tenant);
  void FillTenant(Tenant& tenant, Time now, v1::TenantLoad* load);

  CoreContext context_;
  const int64_t started_unix_ns_;
  Quotas quotas_{context_};
  Devices devices_{context_};
  Arbiter arbiter_{context_, quotas_, devices_};
  Tenants tenants_{context_, quotas_, arbiter_};
  Watchers watchers_{context_};
  Executors executors_{context_, quotas_, devices_, arbiter_, tenants_};
  Graphs graphs_{context_, quotas_, devices_, executors_};
  Buffers buffers_{context_, graphs_};
  Runs runs_{context_, quotas_, devices_, arbiter_, executors_, graphs_, buffers_};
  JobTable table_{context_};
  JobFeed feed_{context_, quotas_, devices_, arbiter_, watchers_, table_};
  JobLifecycle lifecycle_{context_, quotas_,  devices_, arbiter_, tenants_, executors_,
                          graphs_,  buffers_, runs_,    table_,   feed_};
  JobReader reader_{context_, tenants_, watchers_, table_, feed_};
  JobWatch job_watch_{context_, watchers_, table_, feed_, reader_};
  JobSubmitter submitter_{context_, quotas_, graphs_, runs_, table_, feed_, lifecycle_, reader_};
  JobCommands commands_{context_, feed_, lifecycle_, reader_};
  JobClaims claims_{context_, tenants_, watchers_, table_, feed_, lifecycle_};
  JobRestorer restorer_{context_, tenants_, table_, lifecycle_};
  JobRetention retention_{context_, tenants_, feed_};
  TenantRemoval removal_{context_, tenants_, graphs_, table_, lifecycle_, retention_};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_CORE_H_
