// SPDX-License-Identifier: Apache-2.0
// Writes into the job database's tables, inside a transaction of the caller's.
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
#include "server/jobs/sqlite/sqlite_connection.h"

namespace hpvm::server {

// How a transaction changes a tenant's use. Differences: they wrap.
using UseChanges = std::map<std::string, TenantUse>;

// A status of Apply is the whole batch's: the caller rolls back. One thread at a time.
class SqliteWriter {
 public:
  static StatusOr<std::unique_ptr<SqliteWriter>> Create(SqliteConnection& connection);

  Status Apply(std::span<const JobWrite> writes, std::vector<WriteResult>* results);
  // As JobDatabase's; what they change in `insert` is right once the transaction is committed.
  Status Stage(InsertJobs* insert, size_t rows_max);
  StatusOr<std::vector<Sha256>> Unstage(InsertJobs* insert, size_t rows_max);
  // Removes what was staged and never taken, before anything is read.
  Status RemoveStaged();
  // As JobDatabase's.
  Status EndDamaged(std::span<const DamagedJob> damaged, int64_t ended_unix_ns);
  StatusOr<uint64_t> MendKeys(std::span<const uint64_t> sequences);
  // What Apply counted is forgotten (the transaction was rolled back) or stays.
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
    std::optional<StoredJob> job;     // Empty: its record is damaged, or a column.
    std::optional<StoredJob> record;  // Then: the record, if it is not that.
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
  // The number behind all that the tables have.
  StatusOr<uint64_t> ReadNextSequence();
  // Empty: there is none of that number.
  StatusOr<std::optional<Row>> FindNumber(uint64_t sequence);
  // kNotFound for a foreign one too.
  StatusOr<Row> FindRow(std::string_view tenant, std::string_view id);
  // Of a row whose record is damaged: what its columns know.
  static StoredJob JobFromColumns(const Row& row);
  Status LoseDamagedShare(Row* row);
  Status ForgetShared(const Row& row);
  StatusOr<bool> AddSharedTo(const Row& row, StoredJob* job);
  static Row ReadRow(const SqliteStatement& statement);
  Status EndDamaged(const Row& row, int64_t ended_unix_ns, UseChanges* use);
  // True: it was not known.
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
  uint64_t next_sequence_ = 1;       // With this transaction's inserts.
  uint64_t committed_sequence_ = 1;  // Without.

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
