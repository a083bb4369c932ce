// SPDX-License-Identifier: Apache-2.0
// MemoryJobDatabase keeps jobs in containers: the model with which databases are compared, and a store whose faults
// tests choose.
#ifndef HPVMD_SERVER_JOBS_TESTING_MEMORY_JOB_DATABASE_H_
#define HPVMD_SERVER_JOBS_TESTING_MEMORY_JOB_DATABASE_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

// Faults of a disk, as a database reports them. kResourceExhausted and kDataLoss mean the same as from Commit.
struct MemoryJobDatabaseFaults {
  std::function<Status(std::span<const JobWrite>)> before_commit;  // Not OK: nothing is changed.
  std::function<Status(std::span<const JobWrite>)> after_commit;   // Not OK: changed, but reported as failed.
};

class MemoryJobDatabase final : public JobDatabase {
 public:
  explicit MemoryJobDatabase(MemoryJobDatabaseFaults faults = {}) : faults_(std::move(faults)) {}

  Status Commit(std::span<const JobWrite> writes, std::vector<WriteResult>* results) override;
  StatusOr<StoredJob> Find(std::string_view tenant, std::string_view id) override;
  StatusOr<KeyRecord> FindKey(std::string_view tenant, std::string_view key) override;
  StatusOr<StoredRequest> ReadRequest(std::string_view tenant, std::string_view id) override;
  StatusOr<StoredResults> ReadResults(std::string_view tenant, std::string_view id) override;
  StatusOr<std::vector<StoredJob>> ListSome(std::string_view tenant, JobFilter* filter) override;
  Status LoadLive(const std::function<void(LiveRow)>& each, std::vector<DamagedJob>* damaged) override;
  Status ListDamaged(const std::function<void(const DamagedJob&)>& each) override { return absl::OkStatus(); }
  Status EndDamaged(std::span<const DamagedJob> damaged, int64_t ended_unix_ns) override { return absl::OkStatus(); }
  StatusOr<std::vector<FinishedJob>> ListFinished(std::string_view tenant, size_t count_max,
                                                  bool with_dropped) override;
  StatusOr<std::map<std::string, TenantUse>> Use() override;
  Status ListBlobs(const std::function<void(const BlobUse&)>& each) override;
  StatusOr<bool> UsesBlob(std::string_view tenant, const Sha256& hash) override;
  StatusOr<uint64_t> NextLease() override;
  // Returns kUnimplemented.
  Status BackUp(const std::string& path) override;
  StatusOr<std::vector<std::string>> Check() override;

  // Simulates a daemon that starts again on the same contents: commits are accepted again after a kDataLoss.
  void Reopen();

 private:
  struct Row {
    StoredJob job;
    bool shares = false;   // As in LiveRow.
    uint64_t request = 0;  // The sequence of the first job that has it.
    std::string key;
    StoredResults results;
  };
  struct Request {
    std::string bytes;
    uint64_t users = 0;
  };
  struct Key {
    KeyRecord record;
    int64_t created_unix_ns = 0;
    uint64_t rows = 0;
  };
  struct Tenant {
    std::set<uint64_t> sequences;
    std::set<std::pair<int64_t, uint64_t>> finished;  // End, sequence.
    std::map<std::string, Key, std::less<>> keys;
    std::map<Sha256, uint64_t> blob_users;
    TenantUse use;
  };

  Row* FindRow(std::string_view tenant, std::string_view id);
  void Apply(const InsertJobs& insert, WriteResult* result);
  void Apply(const ChangeJob& change, WriteResult* result);
  void Apply(const DropJob& drop, WriteResult* result);
  void Apply(const ForgetKeys& forget, WriteResult* result);
  void Replace(Row& row, StoredJob job, WriteResult* result);
  void DropPayload(Row& row, WriteResult* result);
  void Forget(Row& row);
  void SetBlobs(Tenant& tenant, const StoredJob& before, const StoredJob& after, WriteResult* result);
  void ForgetBlobsInUse(std::span<const JobWrite> writes, std::vector<WriteResult>* results) const;

  const MemoryJobDatabaseFaults faults_;
  mutable std::mutex mutex_;
  bool broken_ = false;
  uint64_t next_sequence_ = 1;
  uint64_t lease_ = 0;
  std::map<uint64_t, Row> rows_;
  std::unordered_map<std::string, uint64_t> sequence_of_;  // Keyed by id.
  std::map<uint64_t, Request> requests_;
  std::map<std::string, Tenant, std::less<>> tenants_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_TESTING_MEMORY_JOB_DATABASE_H_
