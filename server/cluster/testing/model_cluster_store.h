// SPDX-License-Identifier: Apache-2.0
// ModelClusterStore is a ClusterStore in memory: the reference for those on databases, and the store of simulations.
#ifndef HPVMD_SERVER_CLUSTER_TESTING_MODEL_CLUSTER_STORE_H_
#define HPVMD_SERVER_CLUSTER_TESTING_MODEL_CLUSTER_STORE_H_

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "server/cluster/testing/checked_cluster_store.h"

namespace hpvm::server::cluster {

// Not thread-safe.
class ModelClusterStore final : public CheckedClusterStore {
 public:
  // Borrows the clock, whose Now is the store's time.
  ModelClusterStore(ClusterStoreOptions options, const Clock& clock) : options_(options), clock_(clock) {}

  void Submit(std::vector<NewJob> jobs, Done<std::vector<JobView>> done) override;
  void Join(Worker worker, Done<Lease> done) override;
  void Leave(std::string worker, uint64_t incarnation, Done<Nothing> done) override;
  void Renew(RenewRequest request, Done<Renewal> done) override;
  void Claim(ClaimRequest request, Done<Claims> done) override;
  void Finish(FinishRequest request, Done<JobView> done) override;
  void Cancel(std::string tenant, std::string id, Done<JobView> done) override;
  void Get(std::string tenant, std::string id, Done<JobView> done) override;
  void GetRequest(std::string tenant, std::string id, Done<StoredJobRequest> done) override;
  void FindKey(std::string tenant, std::string key, Done<KeyView> done) override;
  void SetHold(std::string tenant, std::string id, bool is_held, std::string hold, Done<JobView> done) override;
  void List(ListRequest request, Done<JobPage> done) override;
  void ListHosts(Done<std::vector<HostView>> done) override;
  void Watch(std::string tenant, uint64_t cursor, uint32_t most, Done<Events> done) override;
  void Purge(std::string tenant, uint32_t most, Done<SweepResult> done) override;
  void SetLimits(std::string tenant, TenantLimits limits, Done<Nothing> done) override;
  void SetIntake(std::string worker, HostIntake intake, Done<Nothing> done) override;
  void Sweep(uint32_t most, Done<SweepResult> done) override;

  size_t running(const std::string& tenant) const override;
  size_t waiting(const std::string& tenant) const override;

 private:
  using Key = std::pair<std::string, std::string>;  // Tenant and id.
  struct Job {
    NewJob request;
    JobView view;
    uint64_t sequence = 0;
    Time submitted{0}, not_before{0}, deadline = kNever;
    uint32_t pending = 0;       // Dependencies that have not ended.
    bool cannot_start = false;  // One of them has ended otherwise than required.
    uint32_t lost = 0;          // Attempts that were lost.
    // The claim's:
    uint64_t incarnation = 0, claim_number = 0;
    uint64_t ended_fence = 0;  // The last claim that its host finished.
  };
  struct Host {
    Worker worker;
    uint64_t incarnation = 0;
    Time until{0};
    HostIntake intake = HostIntake::kOpen;
    bool has_left = false;
    uint64_t last_claim = 0, settled = 0, has_number = 0;
  };
  struct TenantRow {
    TenantLimits limits;
    double clock = 0;  // Device time, in seconds, divided by the weight.
    size_t waiting = 0, running = 0;
    uint64_t events = 0;
    std::deque<Event> kept;
    std::map<std::string, std::string> keys;
  };
  struct Wait {
    std::string waiter;
    Dependency::Condition condition;
  };

  bool IsLive(const Host& host) const { return !host.has_left && clock_.Now() < host.until; }
  StatusOr<Host*> FindHost(const std::string& name, uint64_t incarnation);
  Job* Find(const std::string& tenant, const std::string& id);
  void AddEvent(TenantRow& tenant, const JobView& job) const;
  // Every change of a job's state goes through here: counters, event, callback.
  void Change(Job& job, JobState state);
  void End(Job& job, JobState state, std::string result);
  void TakeBack(Job& job, bool counts);
  void TakeBackAll(const std::string& host, uint64_t incarnation, bool counts);
  StatusOr<JobView> Insert(NewJob&& request);
  Status CheckInsert(const std::vector<NewJob>& jobs);
  // As many jobs of its group run as may: the jobs of a group have equal needs.
  bool IsGroupFull(const Job& job) const;
  bool MayClaim(const Job& job, const Host& host) const;
  uint64_t MemoryUsed(const Host& host) const;
  Job* NextFor(const Host& host);

  const ClusterStoreOptions options_;
  const Clock& clock_;
  std::map<Key, Job> jobs_;
  std::map<std::string, Host> hosts_;
  std::map<std::string, TenantRow> tenants_;
  std::map<Key, std::vector<Wait>> waits_;  // Keyed by the job that is waited for.
  std::deque<Key> ended_;                   // Jobs whose ends their dependents have not learned yet.
  uint64_t next_sequence_ = 1, next_incarnation_ = 1;
};

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_TESTING_MODEL_CLUSTER_STORE_H_
