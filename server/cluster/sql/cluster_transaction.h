// SPDX-License-Identifier: Apache-2.0
// ClusterTransaction is one transaction of the cluster's store: rows under lock, and every change of a job's state.
//
// Locks. A host's row is locked by whoever changes the host or its claims; a tenant's row by whoever changes any of the
// tenant's jobs. Hosts are locked before tenants, and each kind in the order of names, so that transactions of several
// daemons do not wait for each other in a circle. Rows that were read without a lock only say which ones to lock;
// they are read again under the lock.
//
// The store's clock. Leases and deadlines are compared by one clock, which must neither leap nor go back when the
// database's machine sets its clock, or when a standby takes over whose clock differs. So the store's time is the
// database's time plus an offset, within [last, last + clock_leap_max], where `last` is the time of the last sweep; a
// sweep moves both. When all daemons are stopped, the store's time stands still.
#ifndef HPVMD_SERVER_CLUSTER_SQL_CLUSTER_TRANSACTION_H_
#define HPVMD_SERVER_CLUSTER_SQL_CLUSTER_TRANSACTION_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/cluster/cluster_store.h"
#include "server/cluster/sql/sql_session.h"

namespace hpvm::server::cluster {

// Each transaction that changes jobs tells this channel the names of their tenants; a name after "+" says that the
// tenant has more waiting jobs than before.
inline constexpr char kClusterChannel[] = "hpvmd_cluster";

struct JobRow {
  JobView view;
  int64_t sequence = 0;
  bool is_ready = false;
  uint32_t attempts_max = 1, lost = 0, pending = 0, dependents = 0;
  int32_t priority = 0;
  uint64_t incarnation = 0, claim = 0, ended_fence = 0;
  uint64_t memory_bytes = 0;
  int64_t needs = 0;
  Time not_before{0}, deadline = kNever;
  // SaveJob writes the record, or the result, too.
  bool has_new_record = false, has_new_result = false;
};

struct HostRow {
  std::string name, process;
  uint64_t joins = 0;
  std::set<std::string> has;
  uint64_t memory_bytes = 0, incarnation = 0;
  Time lease_end{0};
  HostIntake intake = HostIntake::kOpen;
  bool has_left = false;
  uint64_t last_claim = 0, settled = 0, has_number = 0;
  bool IsLive(Time now) const { return !has_left && now < lease_end; }
};

// The needs of some of a tenant's live jobs.
struct NeedsRow {
  int64_t id = 0;
  Needs needs;  // memory_bytes is the least that one of the jobs may need.
  uint64_t running = 0;
  // Jobs that may start before Needs::running_max of them run.
  uint64_t Room() const {
    return needs.running_max == 0 ? UINT64_MAX : needs.running_max - std::min(needs.running_max, running);
  }
};

struct TenantRow {
  std::string name;
  TenantLimits limits;
  double clock = 0;  // Device time, in seconds, divided by the weight.
  uint64_t waiting = 0, running = 0, events = 0;
  // Changes that Commit writes: of the row, of the events, and of numbers of jobs by the id of their needs.
  bool is_changed = false, has_events = false, has_new_jobs = false;
  struct Counts {
    int64_t waiting = 0, live = 0;
  };
  std::map<int64_t, Counts> needs;
};

class ClusterTransaction {
 public:
  // Called for each change, with an empty `before` for a new job.
  using OnChange = std::function<void(const JobView& before, const JobView& after)>;

  // Borrows all of them. Begin comes first; without Commit the transaction is undone.
  ClusterTransaction(SqlSession& session, const ClusterStoreOptions& options, const OnChange* on_change)
      : session_(session), options_(options), on_change_(on_change) {}
  ~ClusterTransaction();
  ClusterTransaction(const ClusterTransaction&) = delete;
  Status Begin();
  // Writes what is left to write. kUnavailable: it is unknown whether it had an effect.
  Status Commit();

  Time now() const { return now_; }
  // True after the database has refused a statement: the transaction cannot go on.
  bool has_failed() const { return has_failed_; }
  StatusOr<SqlRows> Run(const SqlStatement& statement, std::initializer_list<SqlValue> parameters = {});
  // Runs `step` so that nothing of it is left when it returns an error; the transaction then goes on.
  Status Try(const std::function<Status()>& step);
  const ClusterStoreOptions& options() const { return options_; }
  // Moves the clock's `last` to now.
  Status AdvanceClock();
  StatusOr<uint64_t> NextIncarnation();

  // Locks the host. nullopt: there is none.
  StatusOr<std::optional<HostRow>> LockHost(const std::string& name);
  // kFailedPrecondition: the host has no lease of that incarnation.
  StatusOr<HostRow> LockLease(const std::string& name, uint64_t incarnation);
  Status SaveHost(const HostRow& host);

  // Locks the tenant, whose row is made when it is missing. The reference is valid until the end of the transaction.
  // kInternal: another tenant whose name comes later is locked, and this one is not.
  StatusOr<TenantRow*> LockTenant(const std::string& name);
  Status SaveLimits(TenantRow& tenant, const TenantLimits& limits);
  // Returns the needs of the tenant's waiting jobs, in any order, as Commit last wrote them.
  StatusOr<std::vector<NeedsRow>> LoadNeeds(const std::string& tenant);
  // Returns the id of the row for these needs, which is made when it is missing. kResourceExhausted: too many rows.
  // kInvalidArgument: the needs are too long.
  StatusOr<int64_t> FindNeeds(const std::string& tenant, const Needs& needs);

  // The tenant is locked, for these and all below.
  // `with_result`: also the result, which may be large.
  StatusOr<std::optional<JobRow>> FindJob(const std::string& tenant, const std::string& id, bool with_result = false);
  // Adds a job that waits, and whose key is new.
  StatusOr<JobRow> InsertJob(TenantRow& tenant, const NewJob& job, uint32_t pending);
  // Returns true when a claim may take the job, as far as the job itself is concerned.
  bool IsReady(const JobRow& job) const {
    return job.view.state == JobState::kWaiting && job.pending == 0 && !job.view.is_held && job.not_before <= now_;
  }
  // Every change of a job's state goes through here: its row, counters, the event.
  // For a job that starts, `start` takes its request and record, which `job` may lack.
  Status Change(JobRow& job, JobState state, Claim* start = nullptr);
  Status End(JobRow& job, JobState state, std::string result);
  // The claim is over without a result. `counts`: the attempt was lost.
  Status TakeBack(JobRow& job, bool counts);
  // Writes the row without a change of its state, or of its hold.
  Status SaveJob(const JobRow& job) { return SaveJob(job, nullptr); }
  Status SaveHold(const JobRow& job);

 private:
  Status SaveJob(const JobRow& job, Claim* start);
  Status AddEvent(TenantRow& tenant, const JobView& job);
  Status SaveTenant(const TenantRow& tenant);

  SqlSession& session_;
  const ClusterStoreOptions& options_;
  const OnChange* const on_change_;
  bool is_open_ = false, has_failed_ = false;
  int64_t wall_ns_ = 0;
  Time now_{0};
  std::map<std::string, TenantRow> tenants_;                      // The locked ones.
  std::map<std::pair<std::string, std::string>, int64_t> needs_;  // Ids, keyed by tenant and text.
};

// Reads the words of cluster_hosts.has.
StatusOr<std::set<std::string>> WordsFrom(const std::string& text);

// Columns of cluster_jobs, as ReadJob takes them: all but the large ones, and with the hold and the record.
#define HPVMD_CLUSTER_JOB_NUMBERS                                                                                    \
  "sequence, tenant, id, state, ready, attempts, attempts_max, lost, fence, host, incarnation, claim, ended_fence, " \
  "cancel_requested, pending, dependents, priority, memory, needs, submitted, not_before, deadline, started, held, " \
  "ended"
#define HPVMD_CLUSTER_JOB_COLUMNS HPVMD_CLUSTER_JOB_NUMBERS ", hold, record"
JobRow ReadJob(const SqlRow& row);
// For HPVMD_CLUSTER_JOB_NUMBERS.
JobRow ReadJobNumbers(const SqlRow& row);

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_SQL_CLUSTER_TRANSACTION_H_
