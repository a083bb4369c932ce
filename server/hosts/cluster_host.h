// SPDX-License-Identifier: Apache-2.0
// ClusterHost makes a daemon one host of a cluster: it opens the cluster's database, gives the core its job store,
// claims jobs for the core, and reports changes of other hosts' jobs.
#ifndef HPVMD_SERVER_HOSTS_CLUSTER_HOST_H_
#define HPVMD_SERVER_HOSTS_CLUSTER_HOST_H_

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/round_thread.h"
#include "server/cluster/agent_loop.h"
#include "server/cluster/cluster_store.h"
#include "server/cluster/sql/sql_session.h"
#include "server/config/config.h"
#include "server/core/core.h"
#include "server/core/state/cluster_facts.h"
#include "server/hosts/claim_table.h"
#include "server/hosts/shared_feed.h"
#include "server/hosts/shared_job_store.h"

namespace hpvm::server {

struct ClusterHostOptions {
  Config config;             // cluster.database is set.
  DiskRoom* room = nullptr;  // The state folder's. Borrowed.
  // Returns the limits of a tenant; called on several threads.
  std::function<cluster::TenantLimits(const std::string& tenant)> limits;
};

// Splits "a,b" into words, without spaces around them and without empty ones.
std::set<std::string> SplitWords(const std::string& text);
// Returns a function that opens a session on cluster.database.
std::function<StatusOr<std::unique_ptr<cluster::SqlSession>>()> ConnectTo(const Config& config);
// Lets a user of cluster.database, which that database has, do what an agent does. The configuration's user owns the
// tables, which are made when they are missing.
Status GrantToAgent(const Config& config, const std::string& user);
// Returns cluster.host, or this machine's name where it is not set.
std::string HostNameOf(const Config& config);

class ClusterHost {
 public:
  using Connect = std::function<StatusOr<std::unique_ptr<cluster::SqlSession>>()>;

  // Connects to the database, whose tables are made when they are missing, and opens the folder of blobs.
  // kFailedPrecondition: the database's version, password or name is wrong, or the folder is missing. kUnavailable: it
  // does not answer.
  static StatusOr<std::unique_ptr<ClusterHost>> Open(ClusterHostOptions options);
  ~ClusterHost();
  ClusterHost(const ClusterHost&) = delete;

  // For CoreOptions. The caller destroys the job store after Core::Stop, and before the core and this object.
  std::unique_ptr<SharedJobStore> TakeJobs() { return std::move(jobs_); }
  SharedJobs* shared() { return shared_; }
  cluster::ClusterStore& store() { return *store_; }
  const std::string& name() const { return name_; }
  // Opens a session of its own on the cluster's database.
  const Connect& connect() const { return connect_; }
  // Called for each word of the database about that channel; set before Start.
  void SetOnNotice(std::function<void(const std::string& channel)> on_notice) { on_notice_ = std::move(on_notice); }

  // Begins to claim jobs, unless the host's role is "api", and to report changes. Borrows the core.
  Status Start(Core& core);
  // Called with the devices of the host from time to time; changes are told to the cluster.
  void SetDevices(const std::vector<v1::Device>& devices);
  // While the host starts no jobs (its intake is closed, its disk is full), it claims none.
  void SetPaused(bool is_paused);
  // Never blocks.
  ClusterFacts Facts() const;
  // Claims no more jobs; those that the host has go on.
  void Drain();
  // Gives all jobs back, and leaves the cluster; waits for a few seconds at most.
  void Leave();
  // Ends what Start began. Called before the job store is destroyed.
  void Stop();

 private:
  // The last answer about the cluster; outlives this object, for an answer that comes late.
  struct Look {
    std::mutex mutex;
    ClusterFacts facts;
    Time answered{0};  // 0: never.
  };
  class Notices;  // A listener for PostgreSQL, nothing for SQLite, which tells nothing.
  ClusterHost(ClusterHostOptions options, std::string name);
  Status OpenStore();
  std::set<std::string> Words(const std::vector<v1::Device>& devices) const;
  void OnNotice(const std::string& channel, const std::string& payload);
  void LookAround();

  const ClusterHostOptions options_;
  const std::string name_;
  Connect connect_;
  std::unique_ptr<cluster::ClusterStore> store_;
  std::unique_ptr<ClaimTable> claims_;
  std::unique_ptr<SharedJobStore> jobs_;  // Until TakeJobs.
  SharedJobStore* shared_ = nullptr;
  std::function<void(const std::string& channel)> on_notice_;
  std::mutex mutex_;                  // Guards the pointers below, which notices and watches use.
  std::shared_ptr<SharedFeed> feed_;  // Null outside of Start and Stop.
  std::shared_ptr<cluster::AgentLoop> loop_;
  std::set<std::string> words_;  // As the loop has them.
  std::unique_ptr<Notices> notices_;
  std::unique_ptr<RoundThread> sweeps_;  // Removes unneeded files from the shared folder.
  const std::shared_ptr<Look> look_ = std::make_shared<Look>();
  std::unique_ptr<RoundThread> looks_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_HOSTS_CLUSTER_HOST_H_
