// SPDX-License-Identifier: Apache-2.0
// JobStore is the job store as the core sees it: writes are queued, committed in groups and answered when they are on
// disk.
//
// LocalJobStore joins a JobDatabase and a BlobFolder: one thread commits (all writes that arrived during the last
// commit, or within `group_window` of the first), a few copy blobs. Simulations drive the same logic by hand.
#ifndef HPVMD_SERVER_JOBS_JOB_STORE_H_
#define HPVMD_SERVER_JOBS_JOB_STORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fair_queue.h"
#include "server/jobs/blobs/blob_folder.h"
#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

class DiskRoom;
class Observer;

// BlobInput is the source of a blob, with the object that keeps it alive while it is copied (a memfd of the daemon's).
struct BlobInput {
  BlobSource source;
  std::shared_ptr<const void> keeps;
};

struct JobStoreHealth {
  bool accepts_writes = true;
  // Why not: "The disk is full …" (transient: writes are tried again), "A write to … failed …" (until restart).
  std::string reason;
  bool is_transient = false;
  uint64_t pending_writes = 0;
  uint64_t reserve_bytes = 0;  // Held for a full disk (DiskRoom).
  // Counted by the scrub, since the start.
  uint64_t scrubbed_bytes = 0, scrub_passes = 0;
  uint64_t damaged_jobs = 0;
};

// Thread-safe; never called under the core's mutex, except Write, WriteMany, PutBlobs, Post and PostRead, which never
// block and never call back before they return. Callbacks are called on the store's threads, those of a tenant in the
// order of its writes.
class JobStore {
 public:
  virtual ~JobStore() = default;  // Commits all queued writes; no callback is called later.

  using WriteDone = std::function<void(const WriteResult&)>;
  virtual void Write(JobWrite write, WriteDone done) = 0;
  // A write in the queue.
  struct Pending {
    JobWrite write;
    WriteDone done;
  };
  // Equals as many calls of Write, in that order, but no commit comes between them: as far as one commit has room, and
  // its turns among the tenants allow, all of them are in the next.
  virtual void WriteMany(std::vector<Pending> writes) {
    for (Pending& pending : writes) {
      Write(std::move(pending.write), std::move(pending.done));
    }
  }

  // Makes blobs durable, for a Write that follows; the caller holds the pins until that is answered.
  using PutDone = std::function<void(StatusOr<std::vector<PinnedBlob>>)>;
  virtual void PutBlobs(std::string tenant, std::vector<BlobInput> blobs, PutDone done) = 0;

  // Does `work` in turn with the blobs of that tenant, fairly among tenants (base/fair_queue.h): for long work, such
  // as reading back an input of a gigabyte. "": the daemon's own.
  virtual void Post(std::string tenant, FairQueue::Work work) = 0;

  // Does the same for short reads of the database, which do not wait for blobs.
  virtual void PostRead(std::string tenant, FairQueue::Work work) { Post(std::move(tenant), std::move(work)); }

  virtual JobDatabase& database() = 0;  // For reads.
  virtual BlobFolder& blobs() = 0;
  virtual JobStoreHealth Health() = 0;

  // Reports that an output of so many bytes was refused for want of room and will be put again: until it is stored, or
  // no call has reported it for some seconds, the disk counts as full. Never blocks.
  virtual void AwaitRoom(uint64_t bytes) { (void)bytes; }
  // Called when the disk has become full, and when it has room again; once initially. After SetOnRoom returns, an
  // earlier callback is not called any more.
  using OnRoom = std::function<void(bool has_room)>;
  virtual void SetOnRoom(OnRoom on_room) { (void)on_room; }
  // Called once for each job of which the scrub found damage, even before this call. After SetOnDamage returns, an
  // earlier callback is not called any more.
  using OnDamage = std::function<void(const JobDamage&)>;
  virtual void SetOnDamage(OnDamage on_damage) { (void)on_damage; }
};

// Rate and period of the scrub, which compares everything stored with its checksums.
struct ScrubOptions {
  uint64_t bytes_per_second = 0;  // 0: never.
  // Time between the beginnings of two passes; longer when a pass takes longer.
  Duration every = std::chrono::hours(24);
};

struct LocalJobStoreOptions {
  std::unique_ptr<JobDatabase> database;
  std::unique_ptr<BlobFolder> blobs;
  // The room of database and blobs; must outlive the store, which checks it each second. Null: not known.
  DiskRoom* room = nullptr;
  // Time that a commit waits for further writes while it has only one; 0: none.
  Duration group_window = Duration{0};
  size_t group_max = 256;  // Rows of one commit.
  // Called after kDataLoss, once, on a thread of the store: the daemon stops.
  std::function<void(const Status&)> on_broken;
  Observer* observer = nullptr;  // Is told of commits; null: none. Must outlive the store.
  ScrubOptions scrub;
};
// Starts the threads. A commit that fails with kResourceExhausted fails its inserts with that, and is tried again
// every second for the other writes, which must not be lost.
std::unique_ptr<JobStore> CreateLocalJobStore(LocalJobStoreOptions options);

// Opens the usual arrangement: `folder`/jobs.db and `folder`/blobs on the real disk, swept; `folder` is made (0700) if
// its parent exists. kFailedPrecondition for a database of a newer release; kDataLoss for damage found within 250 ms
// of checking. `room` as above.
StatusOr<std::unique_ptr<JobStore>> OpenLocalJobStore(const std::string& folder,
                                                      std::function<void(const Status&)> on_broken,
                                                      Observer* observer = nullptr, DiskRoom* room = nullptr,
                                                      const ScrubOptions& scrub = {});
// Opens the same in memory, except for the blobs, which are in `folder` until the store is destroyed.
StatusOr<std::unique_ptr<JobStore>> OpenMemoryJobStore(const std::string& folder, Observer* observer = nullptr,
                                                       DiskRoom* room = nullptr);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_JOB_STORE_H_
