// SPDX-License-Identifier: Apache-2.0
// The tables of the job database, and the migration of older ones.
#ifndef HPVMD_SERVER_JOBS_SQLITE_SQLITE_SCHEMA_H_
#define HPVMD_SERVER_JOBS_SQLITE_SQLITE_SCHEMA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/jobs/rows/job_database.h"
#include "server/sqlite/sqlite_connection.h"
#include "server/jobs/sqlite/sqlite_job_database.h"

namespace hpvm::server {

SqliteFormat JobFormat(std::span<const SqliteMigration> migrations);
// Returns kFailedPrecondition when it is not a job database of the newest version.
Status CheckVersion(SqliteConnection& connection, const SqliteFormat& format);
// Brings the file to the newest version in the table, each step in one transaction.
Status Migrate(SqliteConnection& connection, std::span<const SqliteMigration> migrations);

// Returns the CRC-32 of a row's payload and of its number, so that bytes that were moved to another row are detected.
uint32_t RowSum(uint64_t sequence, std::string_view payload);

// Columns of a row of jobs, as every read of them selects.
inline constexpr char kJobColumns[] =
    "jobs.sequence, jobs.tenant, jobs.id, jobs.state, jobs.attempt, jobs.lease, jobs.record, jobs.sum, jobs.request, "
    "jobs.bytes, jobs.dropped, jobs.array_id, jobs.idempotency_key, jobs.ended";
// The same with the shared fields of its array, for ReadWholeJob.
inline constexpr char kWholeJobColumns[] =
    "jobs.sequence, jobs.tenant, jobs.id, jobs.state, jobs.attempt, jobs.lease, jobs.record, jobs.sum, jobs.request, "
    "jobs.bytes, jobs.dropped, jobs.array_id, jobs.idempotency_key, jobs.ended, "
    "iif(jobs.array_id IS NULL, NULL, (SELECT shared.bytes FROM shared WHERE shared.sequence = jobs.request)), "
    "iif(jobs.array_id IS NULL, NULL, (SELECT shared.sum FROM shared WHERE shared.sequence = jobs.request))";
inline constexpr int kSharedColumn = 14;
// SQL that holds for every job except those of an array that is still being written.
inline constexpr char kIsWhole[] = "jobs.request NOT IN (SELECT sequence FROM staged)";
// Returns the job of the present row, from its record. kDataLoss naming it when its checksum is wrong or the columns
// contradict the record.
StatusOr<StoredJob> ReadJobRow(const SqliteStatement& row);
// Includes the shared fields of its array, whose damage is the job's.
StatusOr<StoredJob> ReadWholeJob(const SqliteStatement& row);
// Adds the fields in the row of `shared` with that number.
Status AddSharedRow(int64_t sequence, std::string_view bytes, int64_t sum, StoredJob* job);
Status DamagedRow(std::string_view what, std::string_view id);
// For a row that ReadJobRow refuses: returns its record when the checksum is right, whatever the columns say.
std::optional<StoredJob> ReadRecord(const SqliteStatement& row);
DamagedJob DescribeDamage(const SqliteStatement& row);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_SQLITE_SQLITE_SCHEMA_H_
