// SPDX-License-Identifier: Apache-2.0
// SqliteWriter writes the job database's tables, inside a transaction of the caller's.
#ifndef HPVMD_SERVER_JOBS_SQLITE_SQLITE_WRITER_H_
#define HPVMD_SERVER_JOBS_SQLITE_SQLITE_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/jobs/rows/job_database.h"
#include "server/sqlite/sqlite_connection.h"

namespace hpvm::server {

// Changes of tenants' use by a transaction. Differences: they wrap.
using UseChanges = std::map<std::string, TenantUse>;

// A status of Apply concerns the whole batch: the caller rolls back. Used by one thread at a time.
class SqliteWriter {
 public:
  static StatusOr<std::unique_ptr<SqliteWriter>> Create(SqliteConnection& connection);

  Status Apply(std::span<const JobWrite> writes, std::vector<WriteResult>* results);
  // As JobDatabase's; their changes of `insert` are valid once the transaction is committed.
  Status Stage(InsertJobs* insert, size_t rows_max);
  StatusOr<std::vector<Sha256>> Unstage(InsertJobs* insert, size_t rows_max);
  // Removes staged rows that were never taken; called before anything is read.
  Status RemoveStaged();
  // As JobDatabase's.
  Status EndDamaged(std::span<const DamagedJob> damaged, int64_t ended_unix_ns);
  StatusOr<uint64_t> MendKeys(std::span<const uint64_t> sequences);
  // Keeps the counts of Apply, or forgets them when the transaction was rolled back.
  void Settle(bool committed);

  Status Probe() { return probe_.Run(); }

 private:
  struct Row {
    uint64_t sequence = 0;
    uint64_t request = 0;
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    uint32_t attempt = 0;
    uint64_t lease = 0;
    uint64_t bytes = 0;
    bool dropped = false;
    std::string tenant, id;
    std::string array_id;
    std::string key;
    bool has_end = false;
    int64_t ended_unix_ns = 0;
    std::optional<StoredJob> job;     // Empty when its record or a column is damaged.
    std::optional<StoredJob> record;  // In that case the record, if the record itself is sound.
  };

  explicit SqliteWriter(SqliteConnection& connection) : connection_(connection) {}
  Status PrepareAll();

  Status Write(const InsertJobs& insert, WriteResult* result, UseChanges* use);
  Status Write(const ChangeJob& change, WriteResult* result, UseChanges* use);
  Status Write(const DropJob& drop, WriteResult* result, UseChanges* use);
  Status Write(const ForgetKeys& forget, WriteResult* result, UseChanges* use);

  StatusOr<bool> InsertKey(const InsertJobs& insert, WriteResult* result);
  // Writes the rows of [`from`, `end`); the insert's first job has the number `first`.
  StatusOr<bool> InsertRows(const InsertJobs& insert, uint64_t first, size_t from, size_t end, WriteResult* result);
  Status UndoRows(const InsertJobs& insert, uint64_t first);
  Status UndoInsert(const InsertJobs& insert, uint64_t first);
  Status EndStaging(const InsertJobs& insert, uint64_t first);
  // Returns the number after all numbers in the tables.
  StatusOr<uint64_t> ReadNextSequence();
  // Returns nothing when there is no row with that number.
  StatusOr<std::optional<Row>> FindNumber(uint64_t sequence);
  // Returns kNotFound for another tenant's row, too.
  StatusOr<Row> FindRow(std::string_view tenant, std::string_view id);
  // Makes a job from the columns of a row whose record is damaged.
  static StoredJob JobFromColumns(const Row& row);
  Status LoseDamagedShare(Row* row);
  Status ForgetShared(const Row& row);
  StatusOr<bool> AddSharedTo(const Row& row, StoredJob* job);
  static Row ReadRow(const SqliteStatement& statement);
  Status EndDamaged(const Row& row, int64_t ended_unix_ns, UseChanges* use);
  // Returns true when the key was not known.
  StatusOr<bool> MendKey(const Row& row);
  StatusOr<std::vector<Sha256>> BlobsOfRow(const Row& row, std::string_view tenant);
  Status SetBlobs(const Row& row, std::string_view tenant, const std::vector<Sha256>& blobs, WriteResult* result);
  Status DropPayload(const Row& row);
  Status DropRequest(const Row& row);
  Status Forget(const Row& row, const DropJob& drop);
  StatusOr<bool> IsBlobUsed(std::string_view tenant, const Sha256& hash);
  Status AddUse(const UseChanges& use);
  Status ForgetBlobsInUse(std::span<const JobWrite> writes, std::vector<WriteResult>* results);

  SqliteConnection& connection_;
  uint64_t next_sequence_ = 1;       // Includes this transaction's inserts.
  uint64_t committed_sequence_ = 1;  // Excludes them.

  SqliteStatement insert_job_, insert_request_, insert_request_users_, insert_key_, insert_blob_, insert_results_;
  SqliteStatement insert_shared_, find_shared_, delete_shared_, find_element_;
  SqliteStatement find_row_, find_number_, find_key_, find_blob_, find_request_users_, find_elements_, blobs_of_row_;
  SqliteStatement change_live_, change_ended_, change_dropped_, change_damaged_;
  SqliteStatement stage_, find_staged_, delete_staged_, delete_staged_blobs_;
  SqliteStatement delete_job_, delete_jobs_between_, delete_request_, delete_request_users_, delete_results_;
  SqliteStatement delete_blob_;
  SqliteStatement delete_key_, delete_old_keys_, leave_request_, leave_key_, save_sequence_, add_use_, probe_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_SQLITE_SQLITE_WRITER_H_
