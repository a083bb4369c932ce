// SPDX-License-Identifier: Apache-2.0
// HandJobStore is a job store without threads: the real queue of writes and the real folder of blobs, over a database
// in memory and a simulated disk. Each step happens when a test says so.
#ifndef HPVMD_SERVER_TESTING_HAND_JOB_STORE_H_
#define HPVMD_SERVER_TESTING_HAND_JOB_STORE_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/jobs/commit_queue.h"
#include "server/jobs/testing/memory_job_database.h"
#include "server/testing/sim_disk.h"

namespace hpvm::server::testing {

// The state that outlives a daemon.
struct StoredState {
  explicit StoredState(MemoryJobDatabaseFaults faults = {}) : database(std::move(faults)) { disk.AddFolder("/blobs"); }
  JobDatabase& jobs() { return other != nullptr ? *other : database; }
  SimDisk disk{1};
  MemoryJobDatabase database;
  std::unique_ptr<JobDatabase> other;  // Instead of `database`.
};

class HandJobStore final : public JobStore {
 public:
  HandJobStore(StoredState& state, const Clock& clock)
      : state_(state),
        blobs_(state.disk, "/blobs"),
        queue_({.database = &state.jobs(), .blobs = &blobs_, .clock = &clock, .stage_rows = 2, .on_broken = nullptr}),
        clock_(clock) {
    blobs_.SetIsUsed([asked = asked_](std::string_view tenant, const Sha256& hash) {
      const StatusOr<bool> used = *asked != nullptr ? (*asked)->jobs().UsesBlob(tenant, hash) : true;
      return !used.ok() || *used;
    });
  }
  ~HandJobStore() override {
    *asked_ = nullptr;
    queue_.Break(Unavailable("The store is gone."));
  }

  void Write(JobWrite write, WriteDone done) override {
    writes.push_back(Name(write));
    queue_.Add(std::move(write), std::move(done));
  }
  void PutBlobs(std::string tenant, std::vector<BlobInput> blobs, PutDone done) override {
    posted_.push_back([this, tenant = std::move(tenant), blobs = std::move(blobs), done = std::move(done)] {
      ++puts;
      std::vector<BlobSource> sources;
      for (const BlobInput& blob : blobs) {
        sources.push_back(blob.source);
      }
      done(put_failure.ok() ? blobs_.PutMany(tenant, sources) : StatusOr<std::vector<PinnedBlob>>(put_failure));
    });
  }
  void Post(std::string, FairQueue::Work work) override {
    posted_.push_back([work = std::move(work)] {
      while (work() == FairQueue::Step::kAgain) {
      }
    });
  }
  void PostRead(std::string, FairQueue::Work work) override {
    posted_.push_back([this, work = std::move(work)] {
      if (work() == FairQueue::Step::kAgain) {
        PostRead("", work);
      }
    });
  }
  JobDatabase& database() override { return state_.jobs(); }
  BlobFolder& blobs() override { return blobs_; }
  JobStoreHealth Health() override { return queue_.Health(); }
  void AwaitRoom(uint64_t bytes) override { awaited.push_back(bytes); }

  // Performs one copy, or one step of a read; returns false when there is none.
  bool StepPosted() {
    if (posted_.empty()) {
      return false;
    }
    const auto work = std::move(posted_.front());
    posted_.pop_front();
    work();
    return true;
  }
  // Performs one commit of all waiting writes, with its callbacks; returns false when nothing is due.
  bool StepCommit() {
    if (queue_.NextTime() > clock_.Now()) {
      return false;
    }
    const std::vector<CommitAnswer> answers = queue_.CommitSome();
    for (const CommitAnswer& answer : answers) {
      answer.Give();
    }
    return true;
  }
  // Performs everything that is due, unless it is held.
  void Pump() {
    while ((!hold_posted && StepPosted()) || (!hold_commits && StepCommit())) {
    }
  }

  bool hold_posted = false, hold_commits = false;
  Status put_failure;
  std::vector<std::string> writes;  // The writes, in order: "insert 1", "change RUNNING", ...
  uint64_t puts = 0;
  std::vector<uint64_t> awaited;  // Arguments of AwaitRoom.

 private:
  static std::string Name(const JobWrite& write) {
    if (const auto* insert = std::get_if<InsertJobs>(&write)) {
      return "insert " + std::to_string(insert->jobs.size());
    }
    if (const auto* change = std::get_if<ChangeJob>(&write)) {
      return "change " + v1::JobState_Name(change->job.job().state()).substr(10);
    }
    return std::holds_alternative<DropJob>(write) ? "drop" : "forget";
  }

  StoredState& state_;
  // Pins, which may outlive the store, reach the state through this; null when the store is gone.
  const std::shared_ptr<StoredState*> asked_ = std::make_shared<StoredState*>(&state_);
  BlobFolder blobs_;
  CommitQueue queue_;
  const Clock& clock_;
  std::deque<std::function<void()>> posted_;
};

}  // namespace hpvm::server::testing

#endif  // HPVMD_SERVER_TESTING_HAND_JOB_STORE_H_
