// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/sqlite/sqlite_schema.h"

#include <zlib.h>

#include <array>

#include "base/failpoint.h"

namespace hpvm::server {
namespace {

// "hpvm", in the file's header: files with another id are not touched.
constexpr int64_t kApplicationId = 0x6870766d;

// The columns of jobs before `record` repeat values that writes compare and reads search; `record` is a StoredJob. A
// live job's `ended` is NULL: changes that do not set it leave the indexes alone. `request` is the sequence of the
// first job of its array, which is the key of `requests` and `request_users` (arrays only). keys.rows counts the jobs
// whose rows exist; uses is the sum over every tenant's rows.
constexpr char kVersion1[] = R"sql(
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES('lease', 0), ('next_sequence', 1), ('probe', 0);
CREATE TABLE jobs(
  sequence INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  array_id TEXT,
  idempotency_key TEXT,
  request INTEGER NOT NULL,
  dropped INTEGER NOT NULL,
  ended INTEGER,
  bytes INTEGER NOT NULL,
  state INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  lease INTEGER NOT NULL,
  record BLOB NOT NULL,
  sum INTEGER NOT NULL);
CREATE UNIQUE INDEX jobs_by_id ON jobs(id);
CREATE INDEX jobs_by_tenant ON jobs(tenant);
CREATE INDEX jobs_by_array ON jobs(tenant, array_id) WHERE array_id IS NOT NULL;
CREATE INDEX jobs_live ON jobs(sequence) WHERE ended IS NULL;
CREATE INDEX jobs_finished ON jobs(tenant, ended, dropped) WHERE ended IS NOT NULL;
CREATE TABLE requests(sequence INTEGER PRIMARY KEY, bytes BLOB NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE request_users(sequence INTEGER PRIMARY KEY, users INTEGER NOT NULL);
CREATE TABLE results(sequence INTEGER PRIMARY KEY, bytes BLOB NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE uses(
  tenant TEXT PRIMARY KEY,
  jobs INTEGER NOT NULL,
  live INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  finished_bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE keys(
  tenant TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  job_id TEXT NOT NULL,
  array_id TEXT NOT NULL,
  request_hash BLOB NOT NULL,
  created INTEGER NOT NULL,
  rows INTEGER NOT NULL,
  state INTEGER NOT NULL,
  PRIMARY KEY(tenant, idempotency_key)) WITHOUT ROWID;
CREATE INDEX keys_without_rows ON keys(created) WHERE rows = 0;
CREATE TABLE blobs(
  tenant TEXT NOT NULL,
  sha256 BLOB NOT NULL,
  sequence INTEGER NOT NULL,
  PRIMARY KEY(tenant, sha256, sequence)) WITHOUT ROWID;
)sql";

// Large requests are in blobs (stored_request.h): a release that does not know this would run them empty.
constexpr char kVersion2[] = "";

// InsertJobs::shared, by the number of the array's first job.
constexpr char kVersion3[] = R"sql(
CREATE TABLE shared(sequence INTEGER PRIMARY KEY, bytes BLOB NOT NULL, sum INTEGER NOT NULL);
)sql";

// Arrays of which only some rows exist (JobDatabase::Stage): the number of the first job, and how many numbers the
// array has. Their jobs do not count as jobs yet: `whole_jobs` has those that do.
constexpr char kVersion4[] = R"sql(
CREATE TABLE staged(sequence INTEGER PRIMARY KEY, rows INTEGER NOT NULL, sum INTEGER NOT NULL);
CREATE VIEW whole_jobs AS SELECT * FROM jobs WHERE request NOT IN (SELECT sequence FROM staged);
)sql";

constexpr std::array<SqliteMigration, 4> kMigrations = {
    {{1, kVersion1}, {2, kVersion2}, {3, kVersion3}, {4, kVersion4}}};

Status MigrateStep(SqliteConnection& connection, const SqliteMigration& step) {
  HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("store.migrate.before"));
  HPVMD_RETURN_IF_ERROR(connection.Begin());
  Status status = connection.Execute(step.sql);
  if (status.ok()) {
    status = connection.Execute("PRAGMA user_version=" + std::to_string(step.to_version));
  }
  if (status.ok()) {
    status = connection.Commit();
  }
  if (!status.ok()) {
    connection.Rollback().IgnoreError();
    return While(status, "migrating the job database to version " + std::to_string(step.to_version));
  }
  return absl::OkStatus();
}

// Returns true when the columns agree with the record.
bool AgreesWithColumns(const SqliteStatement& row, const StoredJob& stored) {
  const v1::Job& job = stored.job();
  const bool has_ended = IsTerminal(job.state());
  return stored.tenant() == row.Bytes(1) && job.id() == row.Bytes(2) && job.state() == row.Int(3) &&
         job.attempt() == row.Int(4) && stored.lease() == static_cast<uint64_t>(row.Int(5)) &&
         stored.stored_bytes() == static_cast<uint64_t>(row.Int(9)) && row.Int(10) == (job.dropped() ? 1 : 0) &&
         job.array_id() == row.Bytes(11) && has_ended != row.IsNull(13) &&
         (!has_ended || job.ended_unix_ns() == row.Int(13));
}

}  // namespace

std::span<const SqliteMigration> SqliteMigrations() { return kMigrations; }

SqliteFormat JobFormat(std::span<const SqliteMigration> migrations) {
  return {"job database", kApplicationId, migrations.back().to_version};
}

Status CheckVersion(SqliteConnection& connection, const SqliteFormat& format) {
  HPVMD_ASSIGN_OR_RETURN(const int64_t version, connection.ReadVersion(format));
  if (version < format.newest) {
    return FailedPrecondition("The job database has version " + std::to_string(version) +
                              "; this release works with version " + std::to_string(format.newest) +
                              ", to which the daemon of this release migrates it at its start.");
  }
  return absl::OkStatus();
}

Status Migrate(SqliteConnection& connection, std::span<const SqliteMigration> migrations) {
  HPVMD_ASSIGN_OR_RETURN(const int64_t version, connection.ReadVersion(JobFormat(migrations)));
  if (version == 0) {
    HPVMD_RETURN_IF_ERROR(connection.Execute("PRAGMA application_id=" + std::to_string(kApplicationId)));
  }
  for (const SqliteMigration& step : migrations) {
    if (step.to_version > version) {
      HPVMD_RETURN_IF_ERROR(MigrateStep(connection, step));
    }
  }
  return absl::OkStatus();
}

uint32_t RowSum(uint64_t sequence, std::string_view payload) {
  std::array<unsigned char, 8> which;
  for (size_t i = 0; i < which.size(); ++i) {
    which[i] = static_cast<unsigned char>(sequence >> (8 * i));
  }
  const uLong start = crc32_z(0, which.data(), which.size());
  // The view of an empty payload may have a null pointer, which zlib takes as a request to start over.
  return payload.empty()
             ? static_cast<uint32_t>(start)
             : static_cast<uint32_t>(crc32_z(start, reinterpret_cast<const Bytef*>(payload.data()), payload.size()));
}

Status DamagedRow(std::string_view what, std::string_view id) {
  return DataLoss("The stored " + std::string(what) + " of job \"" + std::string(id) + "\" is damaged.");
}

std::optional<StoredJob> ReadRecord(const SqliteStatement& row) {
  const std::string_view record = row.Bytes(6);
  StoredJob job;
  if (row.Int(7) != RowSum(static_cast<uint64_t>(row.Int(0)), record) ||
      !job.ParseFromArray(record.data(), static_cast<int>(record.size()))) {
    return std::nullopt;
  }
  return job;
}

StatusOr<StoredJob> ReadJobRow(const SqliteStatement& row) {
  std::optional<StoredJob> job = ReadRecord(row);
  if (!job.has_value() || !AgreesWithColumns(row, *job)) {
    return DamagedRow("record", row.Bytes(2));
  }
  job->set_sequence(static_cast<uint64_t>(row.Int(0)));
  return *std::move(job);
}

Status AddSharedRow(int64_t sequence, std::string_view bytes, int64_t sum, StoredJob* job) {
  StoredJob shared;
  if (sum != RowSum(static_cast<uint64_t>(sequence), bytes) ||
      !shared.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return DamagedRow("array", job->job().id());
  }
  return AddShared(shared, job);
}

StatusOr<StoredJob> ReadWholeJob(const SqliteStatement& row) {
  StatusOr<StoredJob> job = ReadJobRow(row);
  if (job.ok() && job->shares()) {
    HPVMD_RETURN_IF_ERROR(AddSharedRow(row.Int(8), row.Bytes(14), row.Int(15), &*job));
  }
  return job;
}

DamagedJob DescribeDamage(const SqliteStatement& row) {
  DamagedJob damaged;
  damaged.sequence = static_cast<uint64_t>(row.Int(0));
  damaged.tenant = row.Bytes(1);
  damaged.id = row.Bytes(2);
  damaged.units = {std::string(row.Bytes(2)), std::string(row.Bytes(11))};
  damaged.is_live = row.IsNull(13);
  if (const std::optional<StoredJob> record = ReadRecord(row); record.has_value()) {
    damaged.tenant = record->tenant();
    damaged.id = record->job().id();
    damaged.units.insert({record->job().id(), record->job().array_id()});
    damaged.is_live |= !IsTerminal(record->job().state());
  }
  damaged.units.erase("");
  return damaged;
}

}  // namespace hpvm::server
