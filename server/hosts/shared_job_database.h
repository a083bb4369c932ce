// SPDX-License-Identifier: Apache-2.0
// SharedJobDatabase reads the jobs of a cluster for one host. Writes go through SharedJobStore.
#ifndef HPVMD_SERVER_HOSTS_SHARED_JOB_DATABASE_H_
#define HPVMD_SERVER_HOSTS_SHARED_JOB_DATABASE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/cluster/cluster_store.h"
#include "server/hosts/claim_table.h"
#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

// Thread-safe. Reads wait for the database, for some seconds at most, and fail with kUnavailable or kDeadlineExceeded
// when it does not answer. No host restores, drops or checks all jobs of the store by itself: the calls for that find
// nothing.
class SharedJobDatabase final : public JobDatabase {
 public:
  // Borrows both.
  SharedJobDatabase(cluster::ClusterStore& store, ClaimTable& claims) : store_(store), claims_(claims) {}

  // Takes no writes; kInternal.
  Status Commit(std::span<const JobWrite> writes, std::vector<WriteResult>* results) override;
  StatusOr<StoredJob> Find(std::string_view tenant, std::string_view id) override;
  StatusOr<KeyRecord> FindKey(std::string_view tenant, std::string_view key) override;
  StatusOr<StoredRequest> ReadRequest(std::string_view tenant, std::string_view id) override;
  StatusOr<StoredResults> ReadResults(std::string_view tenant, std::string_view id) override;
  StatusOr<std::vector<StoredJob>> ListSome(std::string_view tenant, JobFilter* filter) override;
  Status LoadLive(const std::function<void(LiveRow)>&, std::vector<DamagedJob>*) override { return absl::OkStatus(); }
  Status ListDamaged(const std::function<void(const DamagedJob&)>&) override { return absl::OkStatus(); }
  StatusOr<std::vector<FinishedJob>> ListFinished(std::string_view, size_t, bool) override {
    return std::vector<FinishedJob>();
  }
  StatusOr<std::map<std::string, TenantUse>> Use() override { return std::map<std::string, TenantUse>(); }
  Status ListBlobs(const std::function<void(const BlobUse&)>&) override { return absl::OkStatus(); }
  // Other hosts' jobs may need any blob.
  StatusOr<bool> UsesBlob(std::string_view, const Sha256&) override { return true; }
  Status EndDamaged(std::span<const DamagedJob>, int64_t) override { return absl::OkStatus(); }
  StatusOr<uint64_t> NextLease() override { return uint64_t{1}; }
  Status BackUp(const std::string& path) override;
  StatusOr<std::vector<std::string>> Check() override { return std::vector<std::string>(); }

 private:
  cluster::ClusterStore& store_;
  ClaimTable& claims_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_HOSTS_SHARED_JOB_DATABASE_H_
