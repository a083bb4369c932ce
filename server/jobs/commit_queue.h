// SPDX-License-Identifier: Apache-2.0
// Writes that wait for the next group commit, and the rules of a store that fails. No threads of its own:
// LocalJobStore drives it from one, a simulation by hand.
//
// A group has a limited number of rows, and takes from the tenants in turn, so that nobody waits for the thousands of
// writes of another. An array with many rows is written in steps (JobDatabase::Stage), each a transaction of its own,
// between groups. A tenant's writes keep their order.
//
//   full    the disk has no room, because a commit found none or DiskRoom says so. Inserts are refused with
//           kResourceExhausted, at once; all other writes are tried, a few at a time, and the first that finds no room
//           gives up the reserve. Without one they wait and are tried again every second: how a job ended must not be
//           lost. Ends with a commit that succeeds while DiskRoom has room.
//   broken  a write or sync failed (kDataLoss): what is on disk is unknown until a restart reads it. Every write, now
//           and later, is answered with that failure, and nothing is written any more.
#ifndef HPVMD_SERVER_JOBS_COMMIT_QUEUE_H_
#define HPVMD_SERVER_JOBS_COMMIT_QUEUE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/jobs/job_store.h"

namespace hpvm::server {

class DiskRoom;
class Observer;

struct CommitQueueOptions {
  JobDatabase* database = nullptr;  // Borrowed, as all here.
  BlobFolder* blobs = nullptr;      // Files that no row needs any more are removed; null: nothing is.
  DiskRoom* room = nullptr;         // Looked at by whoever calls CommitSome; null: it is known by commits alone.
  const Clock* clock = nullptr;     // Null: the machine's.
  Observer* observer = nullptr;     // Hears of commits; null: nobody.
  size_t group_max = 256;           // Rows of one transaction, except for a write that has more by itself.
  size_t stage_rows = 64;           // Rows of one step of an array; its last are written with all that goes with it.
  Duration retry_every = std::chrono::seconds(1);
  std::function<void(const Status&)> on_broken;  // Once, from within CommitSome or Break.
};

// Who waits for a write, and what became of it.
struct CommitAnswer {
  std::string tenant;
  JobStore::WriteDone done;
  WriteResult result;
  void Give() const { done(result); }
};

class CommitQueue {
 public:
  explicit CommitQueue(CommitQueueOptions options);

  // Any thread; never blocks for long, never calls back.
  void Add(JobWrite write, JobStore::WriteDone done);
  // As so many calls of Add; no commit takes some before all are there.
  void AddMany(std::vector<JobStore::Pending> writes);

  // Commits some writes as one transaction, of each tenant the oldest. The answers are the caller's to give, those of a
  // tenant in this order and before those of the next call. Empty when nothing is due. One thread at a time.
  std::vector<CommitAnswer> CommitSome();

  // When CommitSome has something to do: now or earlier, later (the disk is full), or kNever.
  Time NextTime() const;
  size_t size() const;
  JobStoreHealth Health() const;

  // Something outside the database failed for good (a blob's sync): from now on as after a failed commit.
  void Break(const Status& status);

 private:
  struct Waiting {
    JobWrite write;
    JobStore::WriteDone done;
    uint64_t sequence = 0;  // Counts calls of Add.
    size_t rows = 1, bytes = 0;
    bool is_staged = false;  // As far as it can be.
  };
  // A tenant's, by the kind of write, so that those of one kind are found without a search among the others.
  struct Lane {
    std::array<std::list<Waiting>, std::variant_size_v<JobWrite>> by_kind;
    bool empty() const;
    // The list of `kinds` (a set of bits) whose first is the oldest; null: there is none.
    std::list<Waiting>* Next(unsigned kinds);
  };
  using Lanes = std::map<std::string, Lane>;
  struct Batch {
    std::vector<JobWrite> writes;
    std::list<Waiting> waiting;  // As many, without their writes.
    size_t rows = 0, bytes = 0;
    bool is_probe = false;  // The disk was full: is there room again?
  };

  void AddLocked(Waiting waiting);
  bool IsBroken() const;
  size_t FullGroupMax() const;
  // OK, or why inserts are refused.
  Status Fullness() const;
  Batch TakeBatch(std::vector<CommitAnswer>* answers);
  // True: its rows are written in steps before it is committed.
  bool NeedsSteps(const Waiting& waiting) const;
  Waiting* NextWithSteps();
  // Writes the next rows of one of the arrays that wait, in turn. False: there is nothing to do.
  bool StepArrays(std::vector<CommitAnswer>* answers);
  // Removes some rows of an insert that was not taken. False: there are none.
  bool StepRemoval();
  // Keeps an insert that was not taken until its rows are removed.
  void RemoveRows(JobWrite write);
  void Move(Batch* batch, unsigned kinds, size_t rows_max, size_t bytes_max);
  // Moves the first of `list`, one of the lane's, to the batch. False: the lane is gone, as nothing was left in it.
  bool Take(Batch* batch, Lanes::iterator lane, std::list<Waiting>* list);
  void Clear(std::vector<CommitAnswer>* answers);
  void RefuseInserts(const Status& why, std::vector<CommitAnswer>* answers);
  void MoveWhatMust(Batch* batch);
  Status Commit(const Batch& batch, std::vector<WriteResult>* results);
  void SettleBlobs(const Batch& batch, const std::vector<WriteResult>& results);
  void PutBack(Batch batch, const Status& status, std::vector<CommitAnswer>* answers);

  const CommitQueueOptions options_;
  const Clock& clock_;

  mutable std::mutex mutex_;
  Lanes waiting_;                   // By tenant; none is empty.
  size_t count_ = 0, inserts_ = 0;  // In all; of them, inserts.
  uint64_t added_ = 0;              // Since the start.
  std::string last_;                // The tenant that was served last.
  std::string last_stepped_;        // The tenant whose array was.
  std::list<InsertJobs> removals_;  // Inserts that were not taken, with rows that are there.
  Status failure_;                  // OK, kResourceExhausted (full) or kDataLoss (broken).
  Time retry_at_{0};                // While full.
  size_t full_group_;               // Rows in one commit while full.
  bool was_step_ = false;           // The last call of CommitSome.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_COMMIT_QUEUE_H_
