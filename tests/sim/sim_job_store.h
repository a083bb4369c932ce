// SPDX-License-Identifier: Apache-2.0
// SimJobStore is the daemon's job store without its threads: the world decides when a commit runs, when its callbacks
// are called, and when blobs are copied. The logic between is the real one (CommitQueue, JobDatabase, BlobFolder).
#ifndef HPVMD_TESTS_SIM_SIM_JOB_STORE_H_
#define HPVMD_TESTS_SIM_SIM_JOB_STORE_H_

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "server/jobs/commit_queue.h"
#include "server/jobs/job_store.h"
#include "tests/sim/context.h"

namespace hpvm::server::sim {

class SimJobStore final : public JobStore {
 public:
  SimJobStore(Context& context, SeededRng& rng, JobDatabase& database, BlobFolder& blobs,
              std::function<void(const Status&)> on_broken);
  ~SimJobStore() override = default;

  void Write(JobWrite write, WriteDone done) override;
  void PutBlobs(std::string tenant, std::vector<BlobInput> blobs, PutDone done) override;
  void Post(std::string tenant, FairQueue::Work work) override;
  void PostRead(std::string tenant, FairQueue::Work work) override;
  JobDatabase& database() override { return database_; }
  BlobFolder& blobs() override { return blobs_; }
  JobStoreHealth Health() override { return queue_.Health(); }

  // Performs the maintenance that the daemon's store does between commits.
  void Shrink();
  // For a daemon that stops in order: performs all waiting work and its callbacks. Readers end before the blobs'
  // threads, and these before the writes, as in the daemon's store: work posted to ended threads is never done.
  void Flush();
  // For a daemon that crashed: drops all waiting work; no callback is called any more.
  void Abandon();
  size_t waiting() const { return answers_.size() + work_.size() + queue_.size(); }

 private:
  void ScheduleCommit();
  void CommitNow();
  void GiveAnswer();
  enum class Kind : uint8_t { kBlob, kRead };
  struct Task {
    Kind kind;
    FairQueue::Work work;
  };
  void Push(Kind kind, FairQueue::Work work);
  void FlushKind(Kind kind);
  void DoWork();
  void PutNow(const std::string& tenant, const std::vector<BlobInput>& blobs, const PutDone& done);

  Context& context_;
  SeededRng& rng_;
  JobDatabase& database_;
  BlobFolder& blobs_;
  CommitQueue queue_;
  const uint64_t incarnation_;
  bool commit_scheduled_ = false, abandoned_ = false;
  std::deque<CommitAnswer> answers_;
  std::deque<Task> work_;  // For the readers and the blob threads.
  bool readers_have_ended_ = false, blobs_have_ended_ = false;
  Time answers_until_{0}, work_until_{0};
};

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_SIM_JOB_STORE_H_
