// SPDX-License-Identifier: Apache-2.0
// CommitQueue holds writes that wait for the next group commit, and implements the rules of a store that fails. It has
// no threads of its own: LocalJobStore drives it from one, a simulation by hand.
//
// A group has a limited number of rows, and takes writes from the tenants in turn, so that no tenant waits for the
// thousands of writes of another. An array with many rows is written in steps (JobDatabase::Stage), each a transaction
// of its own, between groups. A tenant's writes keep their order; on a full disk, those
// that need no room overtake the others.
//
//   full    the disk has no room, because a commit found none or DiskRoom says so. Inserts are refused with
//           kResourceExhausted, at once; all other writes are tried, a few at a time, and the first that finds no room
//           gives up the reserve. Without a reserve they wait and are tried again every second, because the end of a
//           job must not be lost. The state ends with a commit that succeeds while DiskRoom has room.
//   broken  a write or sync failed (kDataLoss): the state on disk is unknown until a restart reads it. Every write,
//           now and later, is answered with that failure, and nothing is written any more.
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
  JobDatabase* database = nullptr;  // Borrowed, as are all pointers here.
  BlobFolder* blobs = nullptr;      // Files that no row needs any more are removed from it; null: none are removed.
  DiskRoom* room = nullptr;         // The caller of CommitSome calls its Look; null: only commits find out about room.
  const Clock* clock = nullptr;     // Null: the machine's.
  Observer* observer = nullptr;     // Is told of commits; null: none.
  size_t group_max = 256;           // Rows of one transaction, except for a write that has more by itself.
  size_t stage_rows = 64;  // Rows of one step of an array; the last rows are written with the rest of the insert.
  Duration retry_every = std::chrono::seconds(1);
  std::function<void(const Status&)> on_broken;  // Called once, from within CommitSome or Break.
};

// CommitAnswer is the result of a write, with the callback that waits for it.
struct CommitAnswer {
  std::string tenant;
  JobStore::WriteDone done;
  WriteResult result;
  void Give() const { done(result); }
};

class CommitQueue {
 public:
  explicit CommitQueue(CommitQueueOptions options);

  // Thread-safe; never blocks for long, never calls back.
  void Add(JobWrite write, JobStore::WriteDone done);
  // Equals as many calls of Add, but no commit takes some of the writes before all are there.
  void AddMany(std::vector<JobStore::Pending> writes);

  // Commits some writes as one transaction, the oldest ones of each tenant. The caller gives the answers, those of a
  // tenant in this order and before those of the next call. Returns nothing when no write is due. One thread at a
  // time.
  std::vector<CommitAnswer> CommitSome();

  // Returns when CommitSome has work: now or earlier, later (the disk is full), or kNever.
  Time NextTime() const;
  size_t size() const;
  JobStoreHealth Health() const;

  // Reports a permanent failure outside the database (a blob's sync): from now on the queue is as after a failed
  // commit.
  void Break(const Status& status);

 private:
  struct Waiting {
    JobWrite write;
    JobStore::WriteDone done;
    uint64_t sequence = 0;  // Number of the call of Add.
    size_t rows = 1, bytes = 0;
    bool is_staged = false;  // All rows that can be staged are.
  };
  // A tenant's writes by kind, so that writes of one kind are found without a search among the others.
  struct Lane {
    std::array<std::list<Waiting>, std::variant_size_v<JobWrite>> by_kind;
    bool empty() const;
    // Returns the list among `kinds` (a set of bits) whose first write is the oldest; null when there is none.
    std::list<Waiting>* Next(unsigned kinds);
  };
  using Lanes = std::map<std::string, Lane>;
  struct Batch {
    std::vector<JobWrite> writes;
    std::list<Waiting> waiting;  // One entry per write, without the write itself.
    size_t rows = 0, bytes = 0;
    bool is_probe = false;  // The disk was full: the batch finds out whether there is room again.
  };

  void AddLocked(Waiting waiting);
  bool IsBroken() const;
  size_t FullGroupMax() const;
  // Returns OK, or why inserts are refused.
  Status Fullness() const;
  Batch TakeBatch(std::vector<CommitAnswer>* answers);
  // Returns true when the write's rows are written in steps before it is committed.
  bool NeedsSteps(const Waiting& waiting) const;
  Waiting* NextWithSteps();
  // Writes the next rows of one of the waiting arrays, in turn. Returns false when there is nothing to do.
  bool StepArrays(std::vector<CommitAnswer>* answers);
  // Removes some rows of an insert that was not taken. Returns false when there are none.
  bool StepRemoval();
  // Keeps an insert that was not taken until its rows are removed.
  void RemoveRows(JobWrite write);
  void Move(Batch* batch, unsigned kinds, size_t rows_max, size_t bytes_max);
  // Moves the first write of `list`, one of the lane's, to the batch. Returns false when the lane was empty then and
  // is removed.
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
  Lanes waiting_;                   // Keyed by tenant; no lane is empty.
  size_t count_ = 0, inserts_ = 0;  // Number of all writes, and of inserts among them.
  uint64_t added_ = 0;              // Number of calls of Add.
  std::string last_;                // The tenant served last.
  std::string last_stepped_;        // The tenant whose array was stepped last.
  std::list<InsertJobs> removals_;  // Inserts that were not taken, with rows in the database.
  Status failure_;                  // OK, kResourceExhausted (full) or kDataLoss (broken).
  Time retry_at_{0};                // Used while full.
  size_t full_group_;               // Rows in one commit while full.
  bool was_step_ = false;           // The last call of CommitSome was a step of an array.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_COMMIT_QUEUE_H_
