// SPDX-License-Identifier: Apache-2.0
// LiveHosts are hosts with real threads and real time that share a store: their runs only wait. They note each start
// and end, and whether two hosts ran one job at a time.
#ifndef HPVMD_SERVER_CLUSTER_TESTING_LIVE_HOSTS_H_
#define HPVMD_SERVER_CLUSTER_TESTING_LIVE_HOSTS_H_

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/cluster/agent_loop.h"
#include "server/cluster/cluster_store.h"

namespace hpvm::server::cluster {

struct LiveHostOptions {
  uint32_t runs_max = 8;
  Duration run_time = std::chrono::milliseconds(1);
  Duration renew_every = std::chrono::milliseconds(200);
  Duration claim_every = std::chrono::milliseconds(20);
  Duration stop_margin = std::chrono::milliseconds(500);
  Duration call_timeout = std::chrono::seconds(2);
  Duration sweep_every = std::chrono::milliseconds(100);
};

// Thread-safe.
class RunLedger {
 public:
  void Started(const std::string& host, const HeldJob& job);
  void Ended(const std::string& host, const HeldJob& job);
  // The host's runs ended with it.
  void HostEnded(const std::string& host);
  uint64_t starts() const;
  // Jobs that two hosts ran at a time.
  std::set<std::string> doubles() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::set<std::string>> active_;  // Hosts, by job.
  std::set<std::string> doubles_;
  uint64_t starts_ = 0;
};

class LiveHost final : public AgentRuns {
 public:
  // Borrows the store and the ledger.
  LiveHost(std::string name, const std::string& process, LiveHostOptions options, AgentStore& store, RunLedger& ledger);
  // Ends at once, as a process that was killed.
  ~LiveHost() override;

  void Start(const Claim& claim) override;
  void Stop(const HeldJob& job, StopReason why) override;
  void OnRecorded(const HeldJob&, const StatusOr<JobView>&) override {}
  AgentLoop& loop() { return *loop_; }

 private:
  void Work();
  void End(const HeldJob& job, JobState state);

  const std::string name_;
  const LiveHostOptions options_;
  RunLedger& ledger_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Time, HeldJob> runs_;  // Keyed by the time of their end.
  bool is_ending_ = false;
  std::unique_ptr<AgentLoop> loop_;
  std::thread thread_;
};

// Calls the store and waits for the answer; kDeadlineExceeded after ten seconds.
StatusOr<std::vector<JobView>> SubmitAndWait(ClusterStore& store, const std::vector<NewJob>& jobs);
StatusOr<JobView> GetAndWait(ClusterStore& store, const std::string& tenant, const std::string& id);
StatusOr<Events> WatchAndWait(ClusterStore& store, const std::string& tenant, uint64_t cursor, uint32_t most);

// Waits until the ledger has so many starts. kDeadlineExceeded after the timeout.
Status WaitForStarts(const RunLedger& ledger, uint64_t starts, Duration timeout);

// Returns the jobs, once all have ended or the time is over.
std::vector<JobView> WaitForEnds(ClusterStore& store, const std::string& tenant, const std::vector<std::string>& ids,
                                 Duration timeout);

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_TESTING_LIVE_HOSTS_H_
