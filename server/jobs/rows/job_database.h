// SPDX-License-Identifier: Apache-2.0
// Where jobs are kept on disk: one synchronous interface, behind which SQLite stands (sqlite_job_database.h), a model
// for tests (server/jobs/testing/memory_job_database.h), and PostgreSQL where hosts share a store.
//
// Commit takes many writes and makes them durable together: when it answers OK every write that its result says was
// taken is on disk. A write is a compare-and-set: it names the state, attempt and lease that it expects, and a mismatch
// changes nothing (and nothing else in the batch). So a terminal state is written once, by whoever held the lease.
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

// What an idempotency key stands for.
struct KeyRecord {
  std::string job_id;
  Sha256 request_hash;
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;  // Once the job's row is gone: how it ended.
  std::string array_id;
};

// The first rows of an array that were written ahead of its Commit (JobDatabase::Stage).
struct StagedRows {
  uint64_t first = 0;  // The number of the array's first job; 0: none was written.
  size_t rows = 0;     // How many are there now.
};

// New jobs, all or none: one job, or the elements of an array, which share the request and the key.
struct InsertJobs {
  std::vector<StoredJob> jobs;  // `sequence` is set by the database.
  // What the elements of an array share and never change: SharedOf. Then each of `jobs` went through RemoveShared. It
  // is kept once, and every read answers whole jobs.
  std::optional<StoredJob> shared;
  std::string request;          // A StoredRequest.
  std::string idempotency_key;  // Empty: none.
  Sha256 request_hash;
  StagedRows staged = {};  // Stage's and Unstage's.
};

// A job that has not ended.
struct LiveRow {
  StoredJob job;        // Whole.
  bool shares = false;  // The store has SharedOf(job) apart, once for all elements of its array.
};

// One job's next state.
struct ChangeJob {
  std::string tenant, id;
  // Expected now.
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  uint32_t attempt = 0;
  uint64_t lease = 0;
  // The whole row as it is to be; of an array's element it may be without what the elements share (RemoveShared).
  // Labels and `after` stay as they are.
  StoredJob job;
  std::optional<StoredResults> results;  // With a terminal state.
};

// Frees the room of finished jobs: their request, results and blobs go; with `forget` the row too, which leaves the key
// for its time.
struct DropJob {
  std::string tenant, id;
  bool forget = false;
};

// Keys older than that whose jobs' rows are gone.
struct ForgetKeys {
  int64_t before_unix_ns = 0;
};

using JobWrite = std::variant<InsertJobs, ChangeJob, DropJob, ForgetKeys>;

struct WriteResult {
  // kAlreadyExists: the key is known (see `known`). kFailedPrecondition: the expected state is not the present one.
  // kNotFound. Or, of the whole batch: kResourceExhausted (disk full; later writes may succeed), kDataLoss (a write or
  // sync failed: nothing can be stored any more).
  Status status;
  std::optional<KeyRecord> known;
  std::vector<uint64_t> sequences;   // InsertJobs.
  std::vector<Sha256> unused_blobs;  // DropJob, ChangeJob: the tenant's blobs that no row needs any more.
  int64_t stored_bytes_change = 0;   // DropJob: by so much the tenant's TenantUse::stored_bytes changed.
};

struct JobFilter {
  uint64_t before_sequence = UINT64_MAX;  // Only older jobs.
  std::vector<v1::JobState> states;       // Empty: all. QUEUED is stored as ACCEPTED: name both or neither.
  std::map<std::string, std::string> labels;
  std::string array_id;  // Empty: all.
  size_t count_max = 100;
  size_t rows_max = SIZE_MAX;    // Jobs looked at, wanted or not (ListSome).
  bool fails_on_damage = false;  // kDataLoss for a row that is damaged, instead of a job that shows it.
};

// A row whose record is damaged, or whose columns contradict it.
struct DamagedJob {
  uint64_t sequence = 0;
  std::string tenant, id;  // The record's, where its checksum is right; else the columns'.
  bool is_live = false;    // It had not ended, as far as the row still tells.
  // Jobs and arrays that the row may stand for: what its columns say, and what its record does.
  std::set<std::string> units;
};

// A job of which something is not what was written, and what, in a kDataLoss.
struct JobDamage {
  std::string tenant, id;
  Status what;
};

struct ScrubbedRows {
  uint64_t next = 0;            // Where to go on; 0: these were the last.
  uint64_t bytes = 0;           // Of them, their requests and results.
  std::vector<StoredJob> jobs;  // Those whose rows are sound.
  std::vector<JobDamage> damage;
  std::vector<uint64_t> keyless;  // As ListKeyless lists them.
};

// Finished jobs that may be dropped, the oldest end first.
struct FinishedJob {
  std::string tenant, id;
  int64_t ended_unix_ns = 0;
  uint64_t stored_bytes = 0;
  bool dropped = false;
};

struct TenantUse {
  uint64_t jobs = 0;            // Rows.
  uint64_t live = 0;            // Of them not finished.
  uint64_t stored_bytes = 0;    // Sum of StoredJob.stored_bytes.
  uint64_t finished_bytes = 0;  // Of them those of finished jobs.
};

struct BlobUse {
  std::string tenant;
  Sha256 hash;
};

// Reads come from any thread; Commit from one at a time. Reads see what is committed.
class JobDatabase {
 public:
  virtual ~JobDatabase() = default;

  // One transaction. OK: `results` has one entry a write. Otherwise nothing was changed and the status is every
  // write's; after kDataLoss each further Commit fails alike. Without writes: finds out whether one would succeed.
  virtual Status Commit(std::span<const JobWrite> writes, std::vector<WriteResult>* results) = 0;

  // Arrays are written in steps, so that a large one does not hold up everybody's commits. Whether this database does.
  virtual bool stages() const { return false; }
  // Writes the next rows of an insert ahead of its Commit: `rows_max` at most, and never the last. One transaction, of
  // Commit's statuses. No read shows them before Commit has taken the insert, and the next start removes what was not
  // taken. Writes none when Commit would refuse the insert: that says why. Not beside Commit.
  virtual Status Stage(InsertJobs* insert, size_t rows_max) {
    (void)insert, (void)rows_max;
    return absl::OkStatus();
  }
  // Removes up to `rows_max` of the rows that Stage wrote, for an insert that will not be committed. Answers the
  // tenant's blobs that no row needs any more; a failure is as Commit's.
  virtual StatusOr<std::vector<Sha256>> Unstage(InsertJobs* insert, size_t rows_max) {
    (void)insert, (void)rows_max;
    return std::vector<Sha256>();
  }

  // kNotFound for foreign and absent ids alike, as below.
  virtual StatusOr<StoredJob> Find(std::string_view tenant, std::string_view id) = 0;
  virtual StatusOr<KeyRecord> FindKey(std::string_view tenant, std::string_view key) = 0;
  virtual StatusOr<StoredRequest> ReadRequest(std::string_view tenant, std::string_view id) = 0;
  // Empty results when the job has not ended.
  virtual StatusOr<StoredResults> ReadResults(std::string_view tenant, std::string_view id) = 0;
  // Newest first. `filter->before_sequence` becomes that of the last that was looked at: the same call goes on behind
  // it; 0: there are no more.
  virtual StatusOr<std::vector<StoredJob>> ListSome(std::string_view tenant, JobFilter* filter) = 0;
  StatusOr<std::vector<StoredJob>> List(std::string_view tenant, JobFilter filter) { return ListSome(tenant, &filter); }
  // Every job that has not ended, oldest first. Rows that are damaged go to `damaged`, if there is one.
  virtual Status LoadLive(const std::function<void(LiveRow)>& each, std::vector<DamagedJob>* damaged) = 0;
  // Every row that is damaged, or that cannot be found by its id or array, of jobs that have ended too. Reads all rows.
  virtual Status ListDamaged(const std::function<void(const DamagedJob&)>& each) = 0;
  // At most `count_max` of the finished jobs, the oldest first; of all tenants when `tenant` is empty.
  virtual StatusOr<std::vector<FinishedJob>> ListFinished(std::string_view tenant, size_t count_max,
                                                          bool with_dropped = true) = 0;
  virtual StatusOr<std::map<std::string, TenantUse>> Use() = 0;
  // Every blob that a row needs.
  virtual Status ListBlobs(const std::function<void(const BlobUse&)>& each) = 0;
  // Whether a row needs that one, now.
  virtual StatusOr<bool> UsesBlob(std::string_view tenant, const Sha256& hash) = 0;

  // Ends rows that LoadLive called damaged as FAILED with kDataLoss, all in one transaction: nothing of such a job runs
  // any more. A row with a right checksum keeps what its record says, of another only its columns stay. What is not
  // damaged is left alone. Statuses as Commit's; the blobs that it lets go are for the sweep of the next start.
  virtual Status EndDamaged(std::span<const DamagedJob> damaged, int64_t ended_unix_ns) = 0;

  // Numbers of the jobs with an idempotency key that the store does not know: its row was damaged. Reads all rows.
  virtual StatusOr<std::vector<uint64_t>> ListKeyless() { return std::vector<uint64_t>(); }
  // Makes the keys of these jobs known again, as their records have them, so that no request runs twice. What is
  // known, and what has no sound record, is left alone. Answers how many keys came back. Statuses as Commit's.
  virtual StatusOr<uint64_t> MendKeys(std::span<const uint64_t> sequences) {
    (void)sequences;
    return uint64_t{0};
  }

  // Grows with each start of a daemon on this database, before which it is durable: the lease of its attempts.
  virtual StatusOr<uint64_t> NextLease() = 0;

  // Gives room that no row needs any more back to the disk: about so many pages of 4 KiB at most, in one transaction of
  // Commit's statuses. Some stay for the next rows. True: there is more to give back.
  virtual StatusOr<bool> Shrink(int pages_max) {
    (void)pages_max;
    return false;
  }
  // Looks at the rows from number `from` on, about `bytes_max` bytes of them, at least one. On connections of its own:
  // other reads do not wait for it. One thread at a time.
  virtual StatusOr<ScrubbedRows> Scrub(uint64_t from, uint64_t bytes_max) {
    (void)from, (void)bytes_max;
    return ScrubbedRows();
  }

  // A consistent copy while others read and write. `path` must not exist.
  virtual Status BackUp(const std::string& path) = 0;
  // Every fault found, in sentences; empty: sound. Reads everything.
  virtual StatusOr<std::vector<std::string>> Check() = 0;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_ROWS_JOB_DATABASE_H_
