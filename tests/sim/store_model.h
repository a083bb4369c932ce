// SPDX-License-Identifier: Apache-2.0
// StoreModel is the expected state of the job store, derived from the commits that it acknowledged; compared with
// every response of the database, and with its whole contents after each restart.
//
// It shares no code with the store: rows follow the rules of server/jobs/rows/job_database.h. A commit with an
// unknown outcome (the power was lost, or the disk failed, while it ran) may be there or not, but only completely.
#ifndef HPVMD_TESTS_SIM_STORE_MODEL_H_
#define HPVMD_TESTS_SIM_STORE_MODEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/jobs/rows/job_database.h"
#include "tests/sim/context.h"

namespace hpvm::server::sim {

// The facts in a row that promises are about.
struct Row {
  std::string id, tenant;
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  uint32_t attempt = 0, spent = 0, attempts_max = 0;
  uint64_t lease = 0, sequence = 0, stored_bytes = 0;
  bool cancel_requested = false, in_place = false, dropped = false;
  int32_t error_code = 0;
  std::string error;
  std::string array_id, retry_of;
  uint64_t array_index = 0;
  uint32_t array_running_max = 0;
  std::vector<v1::JobDependency> after;
  int64_t created_unix_ns = 0, deadline_unix_ns = 0, not_before_unix_ns = 0, ended_unix_ns = 0;
  int64_t lost_unix_ns = 0;     // End of the last lost attempt.
  uint64_t token = 0;           // From the job's name.
  uint64_t index = 0;           // Value of its input "i": an element's index, also after RetryJob.
  std::set<std::string> blobs;  // Hashes in hexadecimal.
  Time changed{0};              // When the model saw the last change, by the world's clock.
};

// Size of a dropped job, until the database has reported it.
inline constexpr uint64_t kUnknownBytes = UINT64_MAX;
// Returns true when two readings of one row agree.
bool AreEqual(const Row& a, const Row& b);
Row RowOf(const StoredJob& job);
std::string Describe(const Row& row);

class StoreModel {
 public:
  // With `judges`, changes must also follow the rules of jobs, not only those of the store.
  StoreModel(Context& context, bool judges) : context_(context), judges_(judges) {}

  // A commit has returned.
  void OnCommit(std::span<const JobWrite> writes, const Status& status, const std::vector<WriteResult>& results);
  void OnDropped(const std::string& id, uint64_t stored_bytes);
  // A new daemon's lease.
  void OnLease(uint64_t lease);
  // Compares with a reopened database, and settles a commit with an unknown outcome.
  void Compare(JobDatabase& database);

  // Returns the committed row.
  const Row* Find(const std::string& id) const;
  const std::map<std::string, Row>& rows() const { return rows_; }
  // Returns all jobs of one submit, and those that RetryJob made of them.
  std::vector<const Row*> RowsOf(uint64_t token) const;
  // Facts about its removed rows.
  struct Gone {
    uint64_t attempts = 0, in_place = 0, rows = 0;
  };
  Gone GoneOf(uint64_t token, uint64_t index) const;
  std::vector<const Row*> ElementsOf(const std::string& array_id) const;
  // Returns the job, or the array's elements; removed ones, too, in their final state.
  std::vector<const Row*> UnitRows(const std::string& id) const;
  uint64_t lease() const { return lease_; }
  // Returns true when a commit has failed and may or may not be on disk.
  bool is_uncertain() const { return unknown_.has_value(); }
  // Returns true for a row that was removed after its job had ended.
  bool WasForgotten(const std::string& id) const { return forgotten_.count(id) != 0; }

  // Called for each committed change of a row with the old row (null for a new one) and the new one.
  using OnChange = std::function<void(const Row* before, const Row& after)>;
  void SetOnChange(OnChange on_change) { on_change_ = std::move(on_change); }

 private:
  using TenantKey = std::pair<std::string, std::string>;  // Tenant, idempotency key.
  struct Key {
    std::string job_id;
    int64_t created_unix_ns = 0;
    Time inserted{0};  // Time of the world's clock, which does not jump.
  };

  struct State {
    std::map<std::string, Row> rows;
    std::map<TenantKey, Key> keys;
    std::map<std::string, Row> forgotten;
  };

  // Returns true when the rules accept the write; then applies it. `result` is the database's, or null when unknown.
  bool Apply(const JobWrite& write, const WriteResult* result);
  bool Insert(const InsertJobs& insert, const WriteResult* result);
  bool Change(const ChangeJob& change);
  bool Drop(const DropJob& drop);
  void CheckEarly(const Row& row, bool forget);
  void Forget(const ForgetKeys& forget);
  void CheckChange(const Row& before, const Row& after);
  std::string DescribeWrite(const JobWrite& write) const;
  void CheckUnused(const JobWrite& write, const WriteResult& result);
  // Returns the first difference from the database's contents; empty when there is none.
  std::string Difference(const std::map<std::string, Row>& found, JobDatabase& database) const;
  std::string KeyDifference(JobDatabase& database) const;
  void CheckAround(JobDatabase& database);

  Context& context_;
  const bool judges_;
  std::map<std::string, Row> rows_;
  std::map<uint64_t, std::set<std::string>> by_token_;
  std::map<std::string, std::set<std::string>> by_array_;
  std::map<TenantKey, Key> keys_;
  std::map<std::string, uint64_t> indexes_;  // Keyed by job id; never removed.
  std::map<std::string, Row> forgotten_;     // In their final state.
  std::set<std::string> tenants_;
  std::map<std::pair<uint64_t, uint64_t>, Gone> gone_;  // Keyed by token and index.
  uint64_t lease_ = 0;
  std::set<uint64_t> sequences_;  // Numbers of present and former jobs.
  // A commit with an unknown outcome, and the state before it. A restart's findings about it are certain only once that
  // daemon has committed its lease: until then a loss of power may still remove unsynced data.
  std::optional<std::vector<JobWrite>> unknown_;
  std::optional<State> before_unknown_;
  OnChange on_change_;
};

// Passes everything on and reports each commit to the model.
class WatchedDatabase final : public JobDatabase {
 public:
  WatchedDatabase(JobDatabase& database, StoreModel& model) : database_(database), model_(model) {}
  Status Commit(std::span<const JobWrite> writes, std::vector<WriteResult>* results) override {
    const Status status = database_.Commit(writes, results);
    model_.OnCommit(writes, status, *results);
    for (const JobWrite& write : writes) {
      // Only the database knows the size of a dropped job.
      const auto* drop = status.ok() ? std::get_if<DropJob>(&write) : nullptr;
      if (drop != nullptr) {
        if (const StatusOr<StoredJob> job = database_.Find(drop->tenant, drop->id); job.ok()) {
          model_.OnDropped(drop->id, job->stored_bytes());
        }
      }
    }
    return status;
  }
  bool stages() const override { return database_.stages(); }
  Status Stage(InsertJobs* insert, size_t rows_max) override { return database_.Stage(insert, rows_max); }
  StatusOr<std::vector<Sha256>> Unstage(InsertJobs* insert, size_t rows_max) override {
    return database_.Unstage(insert, rows_max);
  }
  StatusOr<StoredJob> Find(std::string_view tenant, std::string_view id) override { return database_.Find(tenant, id); }
  StatusOr<KeyRecord> FindKey(std::string_view tenant, std::string_view key) override {
    return database_.FindKey(tenant, key);
  }
  StatusOr<StoredRequest> ReadRequest(std::string_view tenant, std::string_view id) override {
    return database_.ReadRequest(tenant, id);
  }
  StatusOr<StoredResults> ReadResults(std::string_view tenant, std::string_view id) override {
    return database_.ReadResults(tenant, id);
  }
  StatusOr<std::vector<StoredJob>> ListSome(std::string_view tenant, JobFilter* filter) override {
    return database_.ListSome(tenant, filter);
  }
  Status LoadLive(const std::function<void(LiveRow)>& each, std::vector<DamagedJob>* damaged) override {
    return database_.LoadLive(each, damaged);
  }
  Status ListDamaged(const std::function<void(const DamagedJob&)>& each) override {
    return database_.ListDamaged(each);
  }
  Status EndDamaged(std::span<const DamagedJob> damaged, int64_t ended_unix_ns) override {
    return database_.EndDamaged(damaged, ended_unix_ns);
  }
  StatusOr<std::vector<uint64_t>> ListKeyless() override { return database_.ListKeyless(); }
  StatusOr<uint64_t> MendKeys(std::span<const uint64_t> sequences) override { return database_.MendKeys(sequences); }
  StatusOr<std::vector<FinishedJob>> ListFinished(std::string_view tenant, size_t count_max,
                                                  bool with_dropped) override {
    return database_.ListFinished(tenant, count_max, with_dropped);
  }
  StatusOr<std::map<std::string, TenantUse>> Use() override { return database_.Use(); }
  Status ListBlobs(const std::function<void(const BlobUse&)>& each) override { return database_.ListBlobs(each); }
  StatusOr<bool> UsesBlob(std::string_view tenant, const Sha256& hash) override {
    return database_.UsesBlob(tenant, hash);
  }
  StatusOr<uint64_t> NextLease() override {
    StatusOr<uint64_t> lease = database_.NextLease();
    if (lease.ok()) {
      model_.OnLease(*lease);
    }
    return lease;
  }
  StatusOr<bool> Shrink(int pages_max) override { return database_.Shrink(pages_max); }
  Status BackUp(const std::string& path) override { return database_.BackUp(path); }
  StatusOr<std::vector<std::string>> Check() override { return database_.Check(); }

 private:
  JobDatabase& database_;
  StoreModel& model_;
};

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_STORE_MODEL_H_
