// SPDX-License-Identifier: Apache-2.0
// The daemon's state behind one mutex: tenants and what they own, executors, queues, jobs.
//
// It is made of rooms, each with state of its own: a room calls only those above it in this list, and what comes back
// up are callbacks. Every public method locks, decides, unlocks, and then carries out what it decided (sending to
// executors, spawning, calling back), so callbacks come without the mutex held and may call the core again. The same
// holds for what executors answer, on the link's thread: a Run goes from gRPC's thread to the socket and from the
// link's thread back to gRPC, with no further thread. The job store's answers come on its threads, likewise.
//
// The core has no threads and no clock of its own and does not wait (but for Stop): with a played clock, store and
// executors it runs in a simulation, the same way each time.
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
#include "server/core/jobs/job_canceller.h"
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

namespace hpvm::server {

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
  JobCanceller& job_canceller() { return canceller_; }

  const Clock& clock() const { return *context_.options.clock; }
  Observer& observer() { return *context_.options.observer; }
  // Does what asks a disk, in turn with other reads of that tenant and fairly among tenants (JobStore::PostRead).
  void PostRead(std::string tenant, FairQueue::Work work) {
    context_.options.jobs->PostRead(std::move(tenant), std::move(work));
  }

  // Once, before any other call about jobs and before serving: takes up what the store has, as a new incarnation. Jobs
  // that ran when the earlier one ended have lost that attempt.
  Status Restore();
  // JobStore::SetOnRoom and SetOnDamage.
  void OnRoom(bool has_room) { lifecycle_.OnRoom(has_room); }
  void OnDamage(const JobDamage& damage) { lifecycle_.OnDamage(damage); }
  // From now on; what runs keeps the limits that it started with.
  void SetConfig(Config config);
  void ServerInfo(const Tenant& tenant, v1::ServerInfoResponse* response);
  // Carries out what is due; answers when to call again. Called from one thread, which also reaps executors.
  Time OnTime();
  // Called, from any thread, when OnTime is due earlier than it last said; must only wake that thread. Set before
  // anything else.
  void SetWake(std::function<void()> wake) { context_.monitor.SetWake(std::move(wake)); }
  // Refuses new work and starts no job from now on. Jobs that wait stay in the store; what runs may end.
  void Drain();
  // After Drain: runs end as UNAVAILABLE, attempts are broken off and their jobs go back to where they waited, without
  // having spent the attempt. Does not wait; OnTime is still needed.
  void StopRunning();
  // Runs, attempts and writes to the store that have not ended.
  size_t operations();
  // Ends everything: executors are killed, operations fail. Blocks until they are reaped. The store is not called any
  // more when it returns.
  void Stop();
  // From now on; what runs goes on.
  void SetIntake(Intake intake);
  // Of that tenant alone, or of all when it is null. Devices' holders and executors' processes are for administrators.
  void Overview(const Tenant* only, uint32_t running_max, v1::GetOverviewResponse* response);
  // Any thread; asks the store.
  CoreHealth Health();
  // Any thread; reads no disk.
  CoreSnapshot Snapshot(bool with_tenants);
  // The policies say something else of that tenant from now on.
  void OnPolicyChanged(std::string_view name);
  // kNotFound: neither the policies nor the core know it.
  Status Usage(std::string_view tenant, v1::GetUsageResponse* response);
  // Whether every balance is what the objects there are add up to; a sentence otherwise. `at_rest`: nothing is on its
  // way. Linear in everything: for tests and simulation.
  Status CheckAccounts(bool at_rest);
  // Any thread. What it holds does not change; SetConfig replaces it.
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
  JobFeed feed_{context_, quotas_, arbiter_, watchers_, table_};
  JobLifecycle lifecycle_{context_, quotas_, arbiter_, tenants_, executors_, graphs_, buffers_, runs_, table_, feed_};
  JobReader reader_{context_, watchers_, table_, feed_};
  JobWatch job_watch_{context_, watchers_, table_, reader_};
  JobSubmitter submitter_{context_, quotas_, graphs_, runs_, table_, feed_, lifecycle_, reader_};
  JobCanceller canceller_{context_, feed_, lifecycle_, reader_};
  JobRestorer restorer_{context_, tenants_, table_, lifecycle_};
  JobRetention retention_{context_, tenants_, feed_};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_CORE_H_
