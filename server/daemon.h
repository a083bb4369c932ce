// SPDX-License-Identifier: Apache-2.0
// The running daemon: state folder, job store, core, executors, timer thread and gRPC server, from start to graceful
// stop.
//
// The order of the start is what makes a restart safe: the folder's lock, then the end of whatever an earlier daemon
// left running, then the jobs, of which those that were running may only now be run again, then clients.
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
#include "server/config/config_print.h"
#include "server/core/core.h"
#include "server/front/descriptor_inbox.h"
#include "server/identity/identity.h"
#include "server/jobs/blobs/disk_room.h"
#include "server/jobs/job_store.h"
#include "server/observe/observation.h"
#include "server/process/spent_file.h"
#include "server/process/state_folder.h"
#include "server/rpc/service.h"

namespace hpvm::server {

// Looks for devices, at start and when told to, and tries out those that were lost. Probes are processes; this thread
// waits for them.
class ProbeThread {
 public:
  ProbeThread(Core& core, ExecutorSpawner& spawner);
  void Rediscover();

 private:
  // Answers when next.
  Duration Round();
  void Discover();
  void LookForDefects();
  void TryOut(const std::string& id);

  Core& core_;
  ExecutorSpawner& spawner_;
  std::atomic<bool> discover_{true};
  std::map<std::string, std::vector<v1::DriverDefect>> defects_;  // By DeviceTable::DriverDevices' identity.
  RoundThread thread_;
};

struct DaemonOptions {
  Config config;
  ConfigOrigin origin;  // Of it, and of every later one.
  // The job store takes no more writes: once, on a thread of its own; must not block. The daemon has to be stopped.
  std::function<void(const Status&)> on_broken = nullptr;
  // How often `on_alive` is called at least, as long as the core does its work; kNever: as it comes.
  Duration alive_every = kNever;
  std::function<void()> on_alive = nullptr;
};

class Daemon {
 public:
  // Serves when it returns; health and metrics do already while the jobs are read. kResourceExhausted: the disk of the
  // state folder has no room for a start.
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

  // Looks for devices again: what came is used, what was given up gets another chance.
  void Rediscover() { probe_->Rediscover(); }

  // All of `next` takes effect, but for keys that need a restart, or nothing does; either is logged. A status: why the
  // new configuration was not taken, or could not be read.
  Status Reload(const StatusOr<Config>& next);

  // Refuses new work, lets what runs end for up to server.drain_ms or until `hurry` says true, then breaks off what is
  // left: jobs go back to the queue on disk.
  void Stop(const std::function<bool()>& hurry);

 private:
  Daemon() = default;
  Status Open(DaemonOptions& options);
  StatusOr<std::unique_ptr<JobStore>> OpenJobs(const DaemonOptions& options);
  Status OpenAudit(const Config& config);
  Status Serve(const Config& config, const std::vector<ListenAddress>& addresses);
  void AwaitOperations(Duration within, const std::function<bool()>& hurry);
  void OpenAccounts(const SpentByTenant& spent);
  void Note(std::string_view event, std::string_view detail);

  void Watch();
  void WatchRoom();

  ConfigOrigin origin_;
  ConfigInForce in_force_;
  std::unique_ptr<Observation> observation_;  // Outlives the others, who tell it things.
  std::unique_ptr<StateFolder> folder_;
  std::unique_ptr<DiskRoom> room_;
  std::unique_ptr<AuditLog> kept_audit_;  // None without audit.enabled.
  AuditLog* audit_ = &NoAuditLog();
  std::unique_ptr<AuditObserver> audit_observer_;
  std::unique_ptr<Accounts> accounts_;
  EventList events_;
  std::unique_ptr<Identity> identity_;
  std::unique_ptr<ExecutorSpawner> spawner_;
  std::unique_ptr<JobStore> jobs_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<SpentKeeper> spent_;      // Asks the core.
  std::unique_ptr<RoundThread> timer_;      // Calls Core::OnTime.
  std::unique_ptr<DescriptorInbox> inbox_;  // None without a Unix socket.
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<ProbeThread> probe_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_DAEMON_H_
