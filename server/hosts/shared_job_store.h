// SPDX-License-Identifier: Apache-2.0
// SharedJobStore is the job store of a host of a cluster: jobs are in the cluster's store, their files in a folder that
// all hosts see.
//
// New jobs go to the cluster's store, which gives each to a host. A change of a job that this host has claimed is the
// claim's (ClaimTable). Files are written, read and pinned as in a store of one host; no file is removed here, because
// other hosts' jobs may need it (BlobSweep).
#ifndef HPVMD_SERVER_HOSTS_SHARED_JOB_STORE_H_
#define HPVMD_SERVER_HOSTS_SHARED_JOB_STORE_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/cluster/cluster_store.h"
#include "server/core/state/shared_jobs.h"
#include "server/hosts/claim_table.h"
#include "server/hosts/stored_view.h"
#include "server/jobs/job_store.h"

namespace hpvm::server {

struct SharedJobStoreOptions {
  cluster::ClusterStore* store = nullptr;  // Borrowed; must outlive the job store.
  ClaimTable* claims = nullptr;            // Borrowed; must outlive the job store.
  std::string host;                        // This host's name.
  std::string blob_folder;                 // Exists; is the same on all hosts.
  bool accepts_jobs = true;                // False for hosts that only run jobs.
  DiskRoom* room = nullptr;                // The state folder's. As in LocalJobStoreOptions.
  // Returns the limits of a tenant; called on the store's threads.
  std::function<cluster::TenantLimits(const std::string& tenant)> limits;
  // Called when clients of this host begin or cease to watch a tenant's jobs.
  std::function<void(const std::string& tenant, bool is_watched)> on_watched;
};

class SharedJobStore final : public JobStore, public SharedJobs {
 public:
  explicit SharedJobStore(SharedJobStoreOptions options);
  ~SharedJobStore() override;

  void Write(JobWrite write, WriteDone done) override;
  void PutBlobs(std::string tenant, std::vector<BlobInput> blobs, PutDone done) override {
    files_->PutBlobs(std::move(tenant), std::move(blobs), std::move(done));
  }
  void Post(std::string tenant, FairQueue::Work work) override { files_->Post(std::move(tenant), std::move(work)); }
  void PostRead(std::string tenant, FairQueue::Work work) override {
    files_->PostRead(std::move(tenant), std::move(work));
  }
  JobDatabase& database() override { return files_->database(); }
  BlobFolder& blobs() override { return files_->blobs(); }
  // The health of the files. While the cluster's database does not answer, runs go on, so the host stays ready.
  JobStoreHealth Health() override { return files_->Health(); }
  void AwaitRoom(uint64_t bytes) override { files_->AwaitRoom(bytes); }
  void SetOnRoom(OnRoom on_room) override { files_->SetOnRoom(std::move(on_room)); }

  void Cancel(std::string tenant, std::string id, Done done) override;
  void SetHold(std::string tenant, std::string id, bool is_held, const v1::JobHold& hold, Done done) override;
  void OnPolicyChanged(std::string tenant) override;
  void SetWatched(std::string tenant, bool is_watched) override;

  // Work on a thread that may enter the core, in the tenant's turn.
  void PostOnce(std::string tenant, std::function<void()> work);

 private:
  // The answers of the cluster's store come when they come; this counts them, so that none comes after the end.
  struct Calls;
  void Note(const Status& status);
  void Submit(InsertJobs insert, WriteDone done);
  void Purge(std::string tenant, WriteDone done);
  // These read the store.
  StatusOr<ArrayElements> FindElements(const InsertJobs& insert);
  StatusOr<std::vector<cluster::NewJob>> NewJobsOf(const InsertJobs& insert);
  // Sets the tenant's limits in the store if they have changed, then calls `then`.
  void WithLimits(const std::string& tenant, std::function<void(const Status&)> then);
  void AnswerSubmit(const std::string& tenant, const InsertJobs& insert, const WriteDone& done,
                    const StatusOr<std::vector<cluster::JobView>>& views);
  template <typename T>
  std::function<void(StatusOr<T>)> Posted(std::string tenant, std::function<void(const StatusOr<T>&)> then);

  const SharedJobStoreOptions options_;
  const std::shared_ptr<Calls> calls_;
  const std::unique_ptr<JobStore> files_;  // A local store whose database is a SharedJobDatabase.
  std::mutex mutex_;
  std::map<std::string, cluster::TenantLimits> limits_;  // As the store has them.
  Status last_error_;  // Why the cluster's store did not answer the last call; OK: it answered.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_HOSTS_SHARED_JOB_STORE_H_
