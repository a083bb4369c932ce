// SPDX-License-Identifier: Apache-2.0
// JobDatabase stores jobs on disk: one synchronous interface, implemented by SQLite (sqlite_job_database.h), a model
// for tests (server/jobs/testing/memory_job_database.h), and PostgreSQL where hosts share a store.
//
// Commit takes many writes and makes them durable together: when it returns OK, every write that its result reports as
// taken is on disk. A write is a compare-and-set: it names the state, attempt and lease that it expects, and a
// mismatch changes nothing (and nothing else in the batch). So a terminal state is written once, by the holder of the
// lease.
#ifndef HPVMD_SERVER_JOBS_ROWS_JOB_DATABASE_H_
#define HPVMD_SERVER_JOBS_ROWS_JOB_DATABASE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "proto/internal/stored_job.pb.h"

namespace hpvm::server {

using internal::StoredJob;
using internal::StoredRequest;
using internal::StoredResults;

bool IsTerminal(v1::JobState state);

// KeyRecord is the request and job of an idempotency key.
struct KeyRecord {
  std::string job_id;
  Sha256 request_hash;
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;  // Final state of the job, set once the job's row is gone.
  std::string array_id;
};

// The first rows of an array, written ahead of its Commit (JobDatabase::Stage).
struct StagedRows {
  uint64_t first = 0;  // The number of the array's first job; 0: none was written.
  size_t rows = 0;     // Number of rows present now.
};

// InsertJobs adds new jobs, all or none: one job, or the elements of an array, which share the request and the key.
struct InsertJobs {
  std::vector<StoredJob> jobs;  // The database sets `sequence`.
  // Fields that the elements of an array share and that never change: SharedOf. RemoveShared was then applied to each
  // of `jobs`. They are stored once, and every read returns complete jobs.
  std::optional<StoredJob> shared;
  std::string request;          // A StoredRequest.
  std::string idempotency_key;  // Empty: none.
  Sha256 request_hash;
  StagedRows staged = {};  // Used by Stage and Unstage.
};

// A job that has not ended.
struct LiveRow {
  StoredJob job;        // Complete.
  bool shares = false;  // The store keeps SharedOf(job) separately, once for all elements of its array.
};

// ChangeJob is a job's next state.
struct ChangeJob {
  std::string tenant, id;
  // The expected present state.
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  uint32_t attempt = 0;
  uint64_t lease = 0;
  // The complete new row; that of an array's element may lack the fields that the elements share (RemoveShared).
  // Labels and `after` do not change.
  StoredJob job;
  std::optional<StoredResults> results;  // Set with a terminal state.
};

// DropJob frees the room of a finished job: removes its request, results and blobs; with `forget` also the row, which
// leaves the key for its time.
struct DropJob {
  std::string tenant, id;
  bool forget = false;
};

// ForgetKeys removes the keys older than this whose jobs' rows are gone.
struct ForgetKeys {
  int64_t before_unix_ns = 0;
  std::string tenant = "";  // Only this tenant's; empty: of all.
};

using JobWrite = std::variant<InsertJobs, ChangeJob, DropJob, ForgetKeys>;

struct WriteResult {
  // kAlreadyExists: the key is known (see `known`). kFailedPrecondition: the expected state is not the present one.
  // kNotFound. Or, of the whole batch: kResourceExhausted (disk full; later writes may succeed), kDataLoss (a write or
  // sync failed: nothing can be stored any more).
  Status status;
  std::optional<KeyRecord> known;
  std::vector<uint64_t> sequences;   // Set for InsertJobs.
  std::vector<Sha256> unused_blobs;  // DropJob, ChangeJob: the tenant's blobs that no row needs any more.
  int64_t stored_bytes_change = 0;   // DropJob: change of the tenant's TenantUse::stored_bytes.
};

struct JobFilter {
  uint64_t before_sequence = UINT64_MAX;  // Only older jobs.
  std::vector<v1::JobState> states;       // Empty: all. QUEUED is stored as ACCEPTED: name both or neither.
  std::map<std::string, std::string> labels;
  std::string array_id;  // Empty: all.
  size_t count_max = 100;
  size_t rows_max = SIZE_MAX;    // Limit on jobs visited, whether they match or not (ListSome).
  bool fails_on_damage = false;  // Returns kDataLoss for a damaged row, instead of a job that shows the damage.
};

// A row whose record is damaged, or whose columns contradict it.
struct DamagedJob {
  uint64_t sequence = 0;
  std::string tenant, id;  // From the record, where its checksum is right; otherwise from the columns.
  bool is_live = false;    // The job had not ended, as far as the row still tells.
  // Jobs and arrays to which the row may belong, by its columns and by its record.
  std::set<std::string> units;
};

// JobDamage is a job with damaged data, and the damage as a kDataLoss.
struct JobDamage {
  std::string tenant, id;
  Status what;
};

struct ScrubbedRows {
  uint64_t next = 0;            // Number at which to continue; 0: these were the last.
  uint64_t bytes = 0;           // Bytes of these rows, their requests and results.
  std::vector<StoredJob> jobs;  // Jobs whose rows are sound.
  std::vector<JobDamage> damage;
  std::vector<uint64_t> keyless;  // As listed by ListKeyless.
};

// FinishedJob is a finished job that may be dropped; lists have the oldest end first.
struct FinishedJob {
  std::string tenant, id;
  int64_t ended_unix_ns = 0;
  uint64_t stored_bytes = 0;
  bool dropped = false;
};

struct TenantUse {
  uint64_t jobs = 0;            // Number of rows.
  uint64_t live = 0;            // Number of unfinished jobs among them.
  uint64_t stored_bytes = 0;    // Sum of StoredJob.stored_bytes.
  uint64_t finished_bytes = 0;  // The finished jobs' part of it.
};

struct BlobUse {
  std::string tenant;
  Sha256 hash;
};

// Reads may be called from any thread; Commit by one at a time. Reads see committed data only.
class JobDatabase {
 public:
  virtual ~JobDatabase() = default;

  // Runs one transaction. OK: `results` has one entry per write. Otherwise nothing was changed and the status is every
  // write's; after kDataLoss each further Commit fails in the same way. Without writes, finds out whether a commit
  // would succeed.
  virtual Status Commit(std::span<const JobWrite> writes, std::vector<WriteResult>* results) = 0;

  // Returns true when this database writes arrays in steps, so that a large one does not delay other commits.
  virtual bool stages() const { return false; }
  // Writes the next rows of an insert ahead of its Commit: at most `rows_max`, and never the last. Runs one
  // transaction, with Commit's statuses. No read shows these rows before Commit has taken the insert, and the next
  // start removes rows that were not taken. Writes none when Commit would refuse the insert, which then reports why.
  // Not called during Commit.
  virtual Status Stage(InsertJobs* insert, size_t rows_max) {
    (void)insert, (void)rows_max;
    return absl::OkStatus();
  }
  // Removes up to `rows_max` of the rows that Stage wrote, for an insert that will not be committed. Returns the
  // tenant's blobs that no row needs any more; fails as Commit does.
  virtual StatusOr<std::vector<Sha256>> Unstage(InsertJobs* insert, size_t rows_max) {
    (void)insert, (void)rows_max;
    return std::vector<Sha256>();
  }

  // Returns kNotFound for foreign and absent ids alike, as do the following functions.
  virtual StatusOr<StoredJob> Find(std::string_view tenant, std::string_view id) = 0;
  virtual StatusOr<KeyRecord> FindKey(std::string_view tenant, std::string_view key) = 0;
  virtual StatusOr<StoredRequest> ReadRequest(std::string_view tenant, std::string_view id) = 0;
  // Returns empty results when the job has not ended.
  virtual StatusOr<StoredResults> ReadResults(std::string_view tenant, std::string_view id) = 0;
  // Lists jobs, newest first. Sets `filter->before_sequence` to that of the last job visited, so that the same call
  // continues after it; 0: there are no more.
  virtual StatusOr<std::vector<StoredJob>> ListSome(std::string_view tenant, JobFilter* filter) = 0;
  StatusOr<std::vector<StoredJob>> List(std::string_view tenant, JobFilter filter) { return ListSome(tenant, &filter); }
  // Reads every job that has not ended, oldest first. Damaged rows are added to `damaged`, unless it is null.
  virtual Status LoadLive(const std::function<void(LiveRow)>& each, std::vector<DamagedJob>* damaged) = 0;
  // Lists every row that is damaged, or that cannot be found by its id or array, including those of ended jobs. Reads
  // all rows.
  virtual Status ListDamaged(const std::function<void(const DamagedJob&)>& each) = 0;
  // Lists at most `count_max` finished jobs, the oldest first; of all tenants when `tenant` is empty.
  virtual StatusOr<std::vector<FinishedJob>> ListFinished(std::string_view tenant, size_t count_max,
                                                          bool with_dropped = true) = 0;
  virtual StatusOr<std::map<std::string, TenantUse>> Use() = 0;
  // Lists every blob that a row needs.
  virtual Status ListBlobs(const std::function<void(const BlobUse&)>& each) = 0;
  // Returns true when a row needs that blob now.
  virtual StatusOr<bool> UsesBlob(std::string_view tenant, const Sha256& hash) = 0;

  // Ends rows that LoadLive reported as damaged as FAILED with kDataLoss, all in one transaction, so that such a job
  // cannot run any more. A row with a right checksum keeps its record; of another only the columns stay. Sound rows
  // are left alone. Has Commit's statuses; the blobs that it releases are for the sweep of the next start.
  virtual Status EndDamaged(std::span<const DamagedJob> damaged, int64_t ended_unix_ns) = 0;

  // Lists the numbers of jobs with an idempotency key that the store does not know because its row was damaged. Reads
  // all rows.
  virtual StatusOr<std::vector<uint64_t>> ListKeyless() { return std::vector<uint64_t>(); }
  // Restores the keys of these jobs from their records, so that no request runs twice. Known keys, and jobs without a
  // sound record, are left alone. Returns the number of keys restored. Has Commit's statuses.
  virtual StatusOr<uint64_t> MendKeys(std::span<const uint64_t> sequences) {
    (void)sequences;
    return uint64_t{0};
  }

  // Returns the lease of this daemon's attempts, which grows with each start of a daemon on this database and is
  // durable before the daemon starts.
  virtual StatusOr<uint64_t> NextLease() = 0;

  // Gives room that no row needs any more back to the disk: at most about so many pages of 4 KiB, in one transaction
  // with Commit's statuses. Some pages stay for the next rows. Returns true when there is more to give back.
  virtual StatusOr<bool> Shrink(int pages_max) {
    (void)pages_max;
    return false;
  }
  // Checks the rows from number `from` on, about `bytes_max` bytes of them, at least one. Uses connections of its own:
  // other reads do not wait for it. One thread at a time.
  virtual StatusOr<ScrubbedRows> Scrub(uint64_t from, uint64_t bytes_max) {
    (void)from, (void)bytes_max;
    return ScrubbedRows();
  }

  // Makes a consistent copy while others read and write. `path` must not exist.
  virtual Status BackUp(const std::string& path) = 0;
  // Returns every fault found, in sentences; empty when the database is sound. Reads everything.
  virtual StatusOr<std::vector<std::string>> Check() = 0;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_ROWS_JOB_DATABASE_H_
