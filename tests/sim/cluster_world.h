// SPDX-License-Identifier: Apache-2.0
// ClusterWorld is a few hosts and clients that share one store (server/cluster): hosts are killed, paused,
// drained and cut off, messages are lost, late and doubled, the store is down for a while. Checks compare what the
// store does and what hosts run with the promises of a cluster.
//
// The checks: no acknowledged job is lost or made twice; an end never changes, and its result is that of the last
// claim; a job's record is that of the last end or lost attempt that counted; no two hosts run one job at a time
// (paused hosts, which cannot stop, are left out); attempts, dependencies, deadlines, limits, needs and cancellations
// hold; the words of a host are the newest that it knows to be stored, or newer ones; watchers see each change; all
// jobs end once faults cease, and the store shows them as its changes said.
#ifndef HPVMD_TESTS_SIM_CLUSTER_WORLD_H_
#define HPVMD_TESTS_SIM_CLUSTER_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/cluster/testing/checked_cluster_store.h"
#include "tests/sim/context.h"
#include "tests/sim/verdict.h"

namespace hpvm::server::sim {

// Rates are per mille; a mean time of 0 means never.
struct ClusterPlan {
  uint32_t hosts = 3, tenants = 1, jobs = 20;
  uint32_t lose = 0, duplicate = 0, delay = 0;
  Duration kill_every{0}, pause_every{0}, cut_every{0}, drain_every{0}, down_every{0}, cordon_every{0}, words_every{0};
  uint32_t crash = 0;           // Share of runs whose executor is lost.
  uint32_t drift_ppm = 0;       // The most by which a host's clock is fast or slow.
  uint32_t pause_at_claim = 0;  // Share of claims whose host is paused before the answer comes.
  bool hasty_retries = false;
  uint32_t keep_disk = 800;  // Share of kills after which the host knows its former process.
  bool is_calm() const {
    return kill_every + pause_every + cut_every + down_every == Duration{0} &&
           lose + delay + crash + pause_at_claim == 0;
  }
  std::string Describe() const;
};

class ClusterWorld {
 public:
  // The model, or the store of a daemon on a database of SQLite in memory.
  enum class Store : uint8_t { kModel, kSqlite };
  ClusterWorld(uint64_t seed, bool prints, Store store = Store::kModel);
  ~ClusterWorld();
  Verdict Run();
  const Trace& trace() const { return context_.trace; }
  const ClusterPlan& plan() const { return plan_; }

 private:
  class Link;
  struct Host;
  struct Client;
  struct JobFacts {
    cluster::NewJob request;
    cluster::JobView view;
    Time submitted{0};
    bool is_acknowledged = false, is_cancel_acknowledged = false;
    std::string record;                              // The one that counts.
    std::map<uint64_t, std::string> claims_records;  // The one at each claim, keyed by its fence.
    // Hosts that run it now, and are not paused.
    std::set<uint32_t> active;
  };
  using Key = std::pair<std::string, std::string>;

  static ClusterPlan DrawPlan(SeededRng rng);
  std::string HostName(uint32_t host) const { return "host-" + std::to_string(host); }
  bool is_over() const { return context_.failure.has_value(); }
  bool has_faults() const { return context_.faults_on; }

  void StartHost(uint32_t host);
  void KillHost(uint32_t host);
  void PauseHost(uint32_t host);
  void ResumeHost(uint32_t host);
  // Runs `action` on the host unless it has been killed since; later, if the host is paused.
  void OnHost(uint32_t host, Duration delay, std::function<void()> action);
  void Tick(uint32_t host);
  // The words that a host has now; each change adds to `has_label`.
  std::set<std::string> WordsOf(uint32_t host) const;
  void ChangeWords(uint32_t host);
  // The host was told that the store has these words.
  void OnWordsStored(uint32_t host, const std::set<std::string>& words);
  void SweepAgain(uint32_t host);
  void Repeat(Duration mean, const std::string& purpose, std::function<void()> action);

  void StartRun(uint32_t host, const cluster::Claim& claim);
  void StopRun(uint32_t host, const cluster::HeldJob& job);
  void OnRecorded(uint32_t host, const cluster::HeldJob& job);
  void EndRun(uint32_t host, const cluster::HeldJob& job, uint64_t generation, cluster::JobState state);

  void ClientStep(uint32_t client);
  void Submit(uint32_t client);
  void SendSubmit(uint32_t client, std::vector<cluster::NewJob> jobs);
  void SendCancel(uint32_t client, Key job, int tries);
  void WatchAgain(uint32_t tenant);
  cluster::NewJob DrawJob(const std::string& tenant);

  void OnChange(const cluster::NewJob& request, const cluster::JobView& before, const cluster::JobView& after);
  void CheckClaim(const JobFacts& facts, const cluster::JobView& view);
  void CheckRecord(JobFacts& facts, const cluster::JobView& view);
  void CheckStart(const JobFacts& facts, const cluster::JobView& view);
  void CheckEnd(const JobFacts& facts, const cluster::JobView& view);
  void EndFaults();
  bool AllEnded() const;
  void CheckAtEnd();
  void CheckStored(const cluster::JobView& expected);
  void CheckHostsAtEnd();

  Context context_;
  const ClusterPlan plan_;
  SeededRng rng_, network_rng_, client_rng_, run_rng_, words_rng_, record_rng_, group_rng_;
  const std::unique_ptr<cluster::CheckedClusterStore> store_;
  bool is_down_ = false;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::map<Key, JobFacts> jobs_;
  std::map<std::string, uint64_t> running_max_;
  std::map<std::string, std::map<std::string, cluster::JobState>> watched_;  // Last state seen, by tenant and job.
  std::map<std::string, uint64_t> cursors_;
  std::set<std::string> cordoned_;
  const cluster::FinishRequest* finishing_ = nullptr;  // The call that the store is at.
  uint64_t next_id_ = 1, next_process_ = 1, runs_ = 0, starts_ = 0, steps_ = 0;
};

class SqliteClusterWorld : public ClusterWorld {
 public:
  SqliteClusterWorld(uint64_t seed, bool prints) : ClusterWorld(seed, prints, Store::kSqlite) {}
};

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_CLUSTER_WORLD_H_
