// SPDX-License-Identifier: Apache-2.0
// Daemon is the running service: state folder, job store, core, executors, timer thread and gRPC server, from the
// start to a graceful stop.
//
// The order of the start makes a restart safe: first the folder's lock, then the end of all processes that an earlier
// daemon left, then the jobs, of which those that were running may only now run again, then clients.
#ifndef HPVMD_SERVER_DAEMON_H_
#define HPVMD_SERVER_DAEMON_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/round_thread.h"
#include "server/accounts/accounts.h"
#include "server/audit/audit_log.h"
#include "server/audit/audit_observer.h"
#include "server/cluster_admin.h"
#include "server/config/config_print.h"
#include "server/core/core.h"
#include "server/executors/health_watch.h"
#include "server/front/descriptor_inbox.h"
#include "server/hosts/cluster_host.h"
#include "server/identity/identity.h"
#include "server/jobs/blobs/disk_room.h"
#include "server/jobs/job_store.h"
#include "server/observe/observation.h"
#include "server/process/spent_file.h"
#include "server/process/state_folder.h"
#include "server/rpc/service.h"

namespace hpvm::server {

// ProbeThread discovers devices, at the start and on request, and probes lost ones. Probes are processes; this thread
// waits for them.
class ProbeThread {
 public:
  ProbeThread(Core& core, ExecutorSpawner& spawner);
  void Rediscover();

 private:
  // Returns the time of the next round.
  Duration Round();
  void Discover();
  void LookForDefects();
  void TryOut(const std::string& id);

  Core& core_;
  ExecutorSpawner& spawner_;
  std::atomic<bool> discover_{true};
  // Keyed by the identity that DeviceTable::DriverDevices returns.
  std::map<std::string, std::vector<v1::DriverDefect>> defects_;
  RoundThread thread_;
};

struct DaemonOptions {
  Config config;
  ConfigOrigin origin;  // Origin of this configuration and of every later one.
  // Called once when the job store accepts no more writes, on a separate thread; must not block. The daemon has to be
  // stopped.
  std::function<void(const Status&)> on_broken = nullptr;
  // Longest interval between calls of `on_alive` as long as the core works; with kNever there is no limit.
  Duration alive_every = kNever;
  std::function<void()> on_alive = nullptr;
};

class Daemon {
 public:
  // Returns a daemon that serves; health and metrics are served earlier, while the jobs are read. kResourceExhausted
  // when the disk of the state folder has no room for a start.
  static StatusOr<std::unique_ptr<Daemon>> Start(DaemonOptions options);
  static StatusOr<std::unique_ptr<Daemon>> Start(const Config& config) {
    return Start(DaemonOptions{.config = config});
  }
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  const std::vector<std::string>& addresses() const { return server_->addresses(); }
  Core& core() { return *core_; }
  Directory& directory() { return identity_->directory(); }
  AuditLog& audit() { return *audit_; }

  // Discovers devices again: uses new ones, and retries those that were given up.
  void Rediscover() { probe_->Rediscover(); }

  // Applies all of `next`, except for keys that need a restart, or nothing; logs the outcome. Returns an error when
  // the new configuration was refused or could not be read.
  Status Reload(const StatusOr<Config>& next);

  // Refuses new work, lets running work finish for up to server.drain_ms or until `hurry` returns true, then
  // interrupts the rest: jobs return to the queue on disk.
  void Stop(const std::function<bool()>& hurry);

 private:
  Daemon() = default;
  Status Open(DaemonOptions& options);
  Status FillCoreOptions(const Config& config, CoreOptions* core);
  StatusOr<std::unique_ptr<JobStore>> OpenJobs(const DaemonOptions& options);
  StatusOr<std::unique_ptr<JobStore>> JoinCluster(const Config& config);
  Status RefuseOwnJobs();
  Status OpenAudit(const Config& config);
  Status Serve(const Config& config, const std::vector<ListenAddress>& addresses);
  void AwaitOperations(Duration within, const std::function<bool()>& hurry);
  void OpenAccounts(const SpentByTenant& spent);
  void Note(std::string_view event, std::string_view detail);

  void Watch();
  void WatchRoom();
  void WatchHealth(const Config& config);
  Status StartHost();
  Duration RefreshIdentities();

  ConfigOrigin origin_;
  ConfigInForce in_force_;
  std::unique_ptr<Observation> observation_;  // Outlives the other members, which report to it.
  std::unique_ptr<StateFolder> folder_;
  std::unique_ptr<DiskRoom> room_;
  std::unique_ptr<AuditLog> kept_audit_;  // Null without audit.enabled.
  AuditLog* audit_ = &NoAuditLog();
  std::unique_ptr<AuditObserver> audit_observer_;
  std::unique_ptr<Accounts> accounts_;
  EventList events_;
  std::unique_ptr<Identity> identity_;
  std::unique_ptr<ExecutorSpawner> spawner_;
  std::unique_ptr<ClusterHost> host_;  // Null without cluster.database.
  std::unique_ptr<JobStore> jobs_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<SpentKeeper> spent_;      // Queries the core.
  std::unique_ptr<RoundThread> timer_;      // Calls Core::OnTime.
  std::unique_ptr<DescriptorInbox> inbox_;  // Null without a Unix socket.
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<ProbeThread> probe_;
  std::unique_ptr<HealthWatch> health_;          // Null with devices.health = false.
  std::unique_ptr<ClusterAdmin> cluster_admin_;  // Null without cluster.database.
  std::unique_ptr<RoundThread> host_devices_;    // Likewise; tells the cluster which devices the host has.
  std::unique_ptr<RoundThread> identities_;      // Likewise; reads changes of tenants and tokens.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_DAEMON_H_
