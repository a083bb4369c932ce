// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/sqlite/sqlite_writer.h"

#include <algorithm>
#include <utility>

#include "base/thread_watch.h"
#include "server/jobs/rows/job_rules.h"
#include "server/jobs/sqlite/sqlite_schema.h"

namespace hpvm::server {
namespace {

std::string RecordOf(const StoredJob& job, bool shares) {
  if (!shares || job.shares()) {
    return job.SerializeAsString();
  }
  StoredJob rest = job;
  RemoveShared(&rest);
  return rest.SerializeAsString();
}

}  // namespace

StatusOr<std::unique_ptr<SqliteWriter>> SqliteWriter::Create(SqliteConnection& connection) {
  std::unique_ptr<SqliteWriter> writer(new SqliteWriter(connection));
  HPVMD_RETURN_IF_ERROR(writer->PrepareAll());
  HPVMD_ASSIGN_OR_RETURN(writer->next_sequence_, writer->ReadNextSequence());
  writer->committed_sequence_ = writer->next_sequence_;
  return writer;
}

StatusOr<uint64_t> SqliteWriter::ReadNextSequence() {
  HPVMD_ASSIGN_OR_RETURN(const int64_t next, connection_.QueryInt("SELECT max((SELECT value FROM meta WHERE name = "
                                                                  "'next_sequence'), "
                                                                  "(SELECT ifnull(max(sequence), 0) + 1 FROM jobs))"));
  return static_cast<uint64_t>(next);
}

Status SqliteWriter::PrepareAll() {
  const std::pair<SqliteStatement*, std::string> statements[] = {
      {&insert_job_,
       "INSERT INTO jobs(sequence, id, tenant, array_id, idempotency_key, request, dropped, bytes, state, attempt, "
       "lease, record, sum) VALUES(?1, ?2, ?3, nullif(?4, ''), nullif(?5, ''), ?6, 0, ?7, ?8, ?9, ?10, ?11, ?12)"},
      {&insert_request_, "INSERT INTO requests VALUES(?1, ?2, ?3)"},
      {&insert_request_users_, "INSERT INTO request_users VALUES(?1, ?2)"},
      {&insert_shared_, "INSERT INTO shared VALUES(?1, ?2, ?3)"},
      {&insert_key_, "INSERT INTO keys VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, 0) ON CONFLICT DO NOTHING"},
      {&insert_blob_, "INSERT INTO blobs VALUES(?1, ?2, ?3) ON CONFLICT DO NOTHING"},
      {&insert_results_, "INSERT OR REPLACE INTO results VALUES(?1, ?2, ?3)"},
      {&find_row_, std::string("SELECT ") + kJobColumns + " FROM jobs WHERE id = ?1"},
      {&find_number_, std::string("SELECT ") + kJobColumns + " FROM jobs WHERE sequence = ?1"},
      {&find_elements_, "SELECT min(sequence), count(*) FROM jobs WHERE tenant = ?1 AND array_id = ?2"},
      {&find_element_, "SELECT 1 FROM jobs WHERE tenant = ?1 AND array_id = ?2 LIMIT 1"},
      {&find_key_, "SELECT job_id, request_hash, state, array_id FROM keys WHERE tenant = ?1 AND idempotency_key = ?2"},
      {&find_blob_, "SELECT 1 FROM blobs WHERE tenant = ?1 AND sha256 = ?2 LIMIT 1"},
      {&blobs_of_row_, "SELECT sha256 FROM blobs WHERE tenant = ?1 AND sequence = ?2"},
      {&change_live_,
       "UPDATE jobs SET bytes = ?2, state = ?3, attempt = ?4, lease = ?5, record = ?6, sum = ?7 WHERE sequence = ?1"},
      {&change_ended_,
       "UPDATE jobs SET bytes = ?2, state = ?3, attempt = ?4, lease = ?5, record = ?6, sum = ?7, ended = ?8 "
       "WHERE sequence = ?1"},
      {&change_dropped_, "UPDATE jobs SET bytes = ?2, record = ?3, sum = ?4, dropped = 1 WHERE sequence = ?1"},
      {&change_damaged_,
       "UPDATE jobs SET id = ?2, tenant = ?3, array_id = nullif(?4, ''), dropped = ?5, bytes = ?6, state = ?7, "
       "attempt = ?8, lease = ?9, record = ?10, sum = ?11, ended = ?12 WHERE sequence = ?1"},
      {&delete_job_, "DELETE FROM jobs WHERE sequence = ?1"},
      {&delete_jobs_between_, "DELETE FROM jobs WHERE sequence >= ?1 AND sequence < ?2 AND request = ?3"},
      {&stage_, "INSERT INTO staged VALUES(?1, ?2, ?3)"},
      {&find_staged_, "SELECT sequence, rows, sum FROM staged LIMIT 1"},
      {&delete_staged_, "DELETE FROM staged WHERE sequence = ?1"},
      // No index leads from a number to its blobs: this reads all of them.
      {&delete_staged_blobs_,
       "DELETE FROM blobs WHERE sequence IN (SELECT sequence FROM jobs WHERE sequence >= ?1 AND sequence < ?2 AND "
       "request = ?1)"},
      {&delete_request_, "DELETE FROM requests WHERE sequence = ?1"},
      {&delete_request_users_, "DELETE FROM request_users WHERE sequence = ?1"},
      {&find_shared_, "SELECT bytes, sum FROM shared WHERE sequence = ?1"},
      {&delete_shared_, "DELETE FROM shared WHERE sequence = ?1"},
      {&delete_results_, "DELETE FROM results WHERE sequence = ?1"},
      {&delete_blob_, "DELETE FROM blobs WHERE tenant = ?1 AND sha256 = ?2 AND sequence = ?3"},
      {&delete_key_, "DELETE FROM keys WHERE tenant = ?1 AND idempotency_key = ?2"},
      {&delete_old_keys_, "DELETE FROM keys WHERE rows = 0 AND created < ?1 AND (?2 = '' OR tenant = ?2)"},
      {&leave_request_, "UPDATE request_users SET users = users - 1 WHERE sequence = ?1"},
      {&find_request_users_, "SELECT users FROM request_users WHERE sequence = ?1"},
      {&leave_key_,
       "UPDATE keys SET rows = rows - 1, state = CASE WHEN job_id = ?3 THEN ?4 ELSE state END "
       "WHERE tenant = ?1 AND idempotency_key = ?2 AND (job_id = ?3 OR (?5 <> '' AND array_id = ?5))"},
      {&save_sequence_, "UPDATE meta SET value = ?1 WHERE name = 'next_sequence'"},
      {&add_use_,
       "INSERT INTO uses VALUES(?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET jobs = jobs + ?2, live = live + ?3, "
       "bytes = bytes + ?4, finished_bytes = finished_bytes + ?5"},
      {&probe_, "UPDATE meta SET value = value + 1 WHERE name = 'probe'"},
  };
  for (const auto& [statement, sql] : statements) {
    HPVMD_RETURN_IF_ERROR(connection_.Prepare(sql, statement));
  }
  return absl::OkStatus();
}

Status SqliteWriter::Apply(std::span<const JobWrite> writes, std::vector<WriteResult>* results) {
  UseChanges use;
  results->resize(writes.size());
  for (size_t i = 0; i < writes.size(); ++i) {
    WriteResult& result = (*results)[i];
    // All tenants' writes pass through the thread that commits.
    const WatchedItem item("commits", "write", TenantOf(writes[i]));
    HPVMD_RETURN_IF_ERROR(std::visit([&](const auto& write) { return Write(write, &result, &use); }, writes[i]));
  }
  HPVMD_RETURN_IF_ERROR(AddUse(use));
  return ForgetBlobsInUse(writes, results);
}

Status SqliteWriter::AddUse(const UseChanges& use) {
  for (const auto& [tenant, change] : use) {
    HPVMD_RETURN_IF_ERROR(add_use_.Run(tenant, change.jobs, change.live, change.stored_bytes, change.finished_bytes));
  }
  return absl::OkStatus();
}

void SqliteWriter::Settle(bool committed) {
  (committed ? committed_sequence_ : next_sequence_) = committed ? next_sequence_ : committed_sequence_;
}

Status SqliteWriter::Write(const InsertJobs& insert, WriteResult* result, UseChanges* use) {
  result->status = CheckInsert(insert);
  if (!result->status.ok()) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(const bool is_new, InsertKey(insert, result));
  if (!is_new) {
    return absl::OkStatus();
  }
  const bool is_staged = insert.staged.rows > 0;
  const uint64_t first = is_staged ? insert.staged.first : next_sequence_;
  next_sequence_ = std::max(next_sequence_, first + insert.jobs.size());
  HPVMD_ASSIGN_OR_RETURN(const bool inserted,
                         InsertRows(insert, first, insert.staged.rows, insert.jobs.size(), result));
  if (is_staged) {
    HPVMD_RETURN_IF_ERROR(delete_staged_.Run(first));
  }
  if (!inserted) {
    return UndoInsert(insert, first);
  }
  HPVMD_RETURN_IF_ERROR(insert_request_.Run(first, SqlBytes{insert.request}, RowSum(first, insert.request)));
  if (insert.jobs.size() > 1 || !insert.jobs.front().job().array_id().empty()) {
    HPVMD_RETURN_IF_ERROR(insert_request_users_.Run(first, uint64_t{insert.jobs.size()}));
  }
  if (insert.shared.has_value()) {
    const std::string shared = insert.shared->SerializeAsString();
    HPVMD_RETURN_IF_ERROR(insert_shared_.Run(first, SqlBytes{shared}, RowSum(first, shared)));
  }
  TenantUse& tenant = (*use)[insert.jobs.front().tenant()];
  for (const StoredJob& job : insert.jobs) {
    result->sequences.push_back(first + result->sequences.size());
    tenant.jobs += 1;
    tenant.live += 1;
    tenant.stored_bytes += job.stored_bytes();
  }
  return absl::OkStatus();
}

// Returns false when the key is known.
StatusOr<bool> SqliteWriter::InsertKey(const InsertJobs& insert, WriteResult* result) {
  if (insert.idempotency_key.empty()) {
    return true;
  }
  const StoredJob& first = insert.jobs.front();
  HPVMD_RETURN_IF_ERROR(insert_key_.Run(first.tenant(), insert.idempotency_key, first.job().id(),
                                        first.job().array_id(), SqlBytes{Raw(insert.request_hash)},
                                        first.job().created_unix_ns(), uint64_t{insert.jobs.size()}));
  if (connection_.changes() != 0) {
    return true;
  }
  SqliteReset reset(find_key_);
  HPVMD_ASSIGN_OR_RETURN(const bool found, find_key_.Start(first.tenant(), insert.idempotency_key).Next());
  if (!found) {
    return DataLoss("The job database's idempotency keys are damaged: a key exists but cannot be found.");
  }
  result->known = {std::string(find_key_.Bytes(0)), Sha256FromRaw(find_key_.Bytes(1)).value_or(Sha256()),
                   static_cast<v1::JobState>(find_key_.Int(2)), std::string(find_key_.Bytes(3))};
  result->status = KeyIsKnown();
  return false;
}

// Returns false when an id is taken; some rows may have been written then.
StatusOr<bool> SqliteWriter::InsertRows(const InsertJobs& insert, uint64_t first, size_t from, size_t end,
                                        WriteResult* result) {
  std::string record;
  for (size_t i = from; i < end; ++i) {
    const StoredJob& job = insert.jobs[i];
    const uint64_t sequence = first + i;
    job.SerializeToString(&record);
    const Status status =
        insert_job_.Run(sequence, job.job().id(), job.tenant(), job.job().array_id(), insert.idempotency_key, first,
                        job.stored_bytes(), static_cast<int>(job.job().state()), job.job().attempt(), job.lease(),
                        SqlBytes{record}, RowSum(sequence, record));
    if (absl::IsAlreadyExists(status)) {
      result->status = Internal("The id \"" + job.job().id() + "\" is taken.");
      return false;
    }
    HPVMD_RETURN_IF_ERROR(status);
    for (const Sha256& hash : BlobsOf(job)) {
      HPVMD_RETURN_IF_ERROR(insert_blob_.Run(job.tenant(), SqlBytes{Raw(hash)}, sequence));
    }
  }
  return true;
}

Status SqliteWriter::Stage(InsertJobs* insert, size_t rows_max) {
  StagedRows& staged = insert->staged;
  const StoredJob& job = insert->jobs.front();
  const WatchedItem item("commits", "stage", job.tenant());
  if (staged.rows == 0) {
    // A tenant's inserts follow one another, so that the key does not change until Commit.
    if (!CheckInsert(*insert).ok()) {
      return absl::OkStatus();
    }
    SqliteReset reset(find_key_);
    HPVMD_ASSIGN_OR_RETURN(const bool is_known, find_key_.Start(job.tenant(), insert->idempotency_key).Next());
    if (is_known) {
      return absl::OkStatus();
    }
    staged.first = next_sequence_;
    next_sequence_ += insert->jobs.size();
    const std::string rows = std::to_string(insert->jobs.size());
    HPVMD_RETURN_IF_ERROR(stage_.Run(staged.first, uint64_t{insert->jobs.size()}, RowSum(staged.first, rows)));
  }
  const size_t end = std::min(staged.rows + rows_max, insert->jobs.size() - 1);
  WriteResult result;
  HPVMD_ASSIGN_OR_RETURN(const bool inserted, InsertRows(*insert, staged.first, staged.rows, end, &result));
  if (inserted) {
    staged.rows = end;
    return absl::OkStatus();
  }
  // Commit finds the same conflict, and reports it.
  HPVMD_RETURN_IF_ERROR(UndoRows(*insert, staged.first));
  staged = {};
  return absl::OkStatus();
}

StatusOr<std::vector<Sha256>> SqliteWriter::Unstage(InsertJobs* insert, size_t rows_max) {
  StagedRows& staged = insert->staged;
  const std::string& tenant = insert->jobs.front().tenant();
  const WatchedItem item("commits", "unstage", tenant);
  const size_t end = staged.rows - std::min(staged.rows, rows_max);
  HPVMD_RETURN_IF_ERROR(delete_jobs_between_.Run(staged.first + end, staged.first + staged.rows, staged.first));
  std::vector<Sha256> unused;
  for (size_t i = end; i < staged.rows; ++i) {
    for (const Sha256& hash : BlobsOf(insert->jobs[i])) {
      HPVMD_RETURN_IF_ERROR(delete_blob_.Run(tenant, SqlBytes{Raw(hash)}, staged.first + i));
      HPVMD_ASSIGN_OR_RETURN(const bool used, IsBlobUsed(tenant, hash));
      if (!used) {
        unused.push_back(hash);
      }
    }
  }
  if (end == 0) {
    HPVMD_RETURN_IF_ERROR(EndStaging(*insert, staged.first));
  }
  staged.rows = end;
  return unused;
}

Status SqliteWriter::RemoveStaged() {
  while (true) {
    uint64_t first = 0, end = 0;
    {
      SqliteReset reset(find_staged_);
      HPVMD_ASSIGN_OR_RETURN(const bool found, find_staged_.Start().Next());
      if (!found) {
        return absl::OkStatus();
      }
      first = static_cast<uint64_t>(find_staged_.Int(0));
      const bool is_sound = find_staged_.Int(2) == RowSum(first, std::to_string(find_staged_.Int(1)));
      // If it is damaged the rows stay, as jobs that have lost their request.
      end = is_sound ? first + static_cast<uint64_t>(find_staged_.Int(1)) : first;
    }
    HPVMD_RETURN_IF_ERROR(delete_staged_blobs_.Run(first, end));
    HPVMD_RETURN_IF_ERROR(delete_jobs_between_.Run(first, end, first));
    HPVMD_RETURN_IF_ERROR(delete_staged_.Run(first));
    HPVMD_ASSIGN_OR_RETURN(const uint64_t next, ReadNextSequence());
    next_sequence_ = std::max(first, next);
    HPVMD_RETURN_IF_ERROR(save_sequence_.Run(next_sequence_));
  }
}

// Ends the staging of an insert. Its numbers, which no reader has seen, are given again if they are the last. That is
// saved, because the row before them may have been forgotten meanwhile.
Status SqliteWriter::EndStaging(const InsertJobs& insert, uint64_t first) {
  next_sequence_ = next_sequence_ == first + insert.jobs.size() ? first : next_sequence_;
  HPVMD_RETURN_IF_ERROR(save_sequence_.Run(next_sequence_));
  return delete_staged_.Run(first);
}

// Removes the existing rows, staged or not.
Status SqliteWriter::UndoRows(const InsertJobs& insert, uint64_t first) {
  const uint64_t end = first + insert.jobs.size();
  HPVMD_RETURN_IF_ERROR(delete_staged_blobs_.Run(first, end));
  HPVMD_RETURN_IF_ERROR(delete_jobs_between_.Run(first, end, first));
  return EndStaging(insert, first);
}

Status SqliteWriter::UndoInsert(const InsertJobs& insert, uint64_t first) {
  HPVMD_RETURN_IF_ERROR(UndoRows(insert, first));
  return insert.idempotency_key.empty() ? absl::OkStatus()
                                        : delete_key_.Run(insert.jobs.front().tenant(), insert.idempotency_key);
}

StatusOr<SqliteWriter::Row> SqliteWriter::FindRow(std::string_view tenant, std::string_view id) {
  SqliteReset reset(find_row_);
  HPVMD_ASSIGN_OR_RETURN(const bool found, find_row_.Start(id).Next());
  if (!found || find_row_.Bytes(1) != tenant) {
    return NoSuchJob(id);
  }
  return ReadRow(find_row_);
}

StatusOr<std::optional<SqliteWriter::Row>> SqliteWriter::FindNumber(uint64_t sequence) {
  SqliteReset reset(find_number_);
  HPVMD_ASSIGN_OR_RETURN(const bool found, find_number_.Start(sequence).Next());
  return found ? std::optional<Row>(ReadRow(find_number_)) : std::nullopt;
}

SqliteWriter::Row SqliteWriter::ReadRow(const SqliteStatement& statement) {
  Row row;
  row.sequence = static_cast<uint64_t>(statement.Int(0));
  row.tenant = statement.Bytes(1);
  row.id = statement.Bytes(2);
  row.state = static_cast<v1::JobState>(statement.Int(3));
  row.attempt = static_cast<uint32_t>(statement.Int(4));
  row.lease = static_cast<uint64_t>(statement.Int(5));
  row.request = static_cast<uint64_t>(statement.Int(8));
  row.bytes = static_cast<uint64_t>(statement.Int(9));
  row.dropped = statement.Int(10) != 0;
  row.array_id = statement.Bytes(11);
  row.key = statement.Bytes(12);
  row.has_end = !statement.IsNull(13);
  row.ended_unix_ns = statement.Int(13);
  if (StatusOr<StoredJob> job = ReadJobRow(statement); job.ok()) {
    row.job = *std::move(job);
  } else {
    row.record = ReadRecord(statement);
    // Otherwise it could neither be changed nor dropped.
    row.state = row.has_end && !IsTerminal(row.state) ? v1::JOB_STATE_FAILED : row.state;
  }
  return row;
}

StoredJob SqliteWriter::JobFromColumns(const Row& row) {
  StoredJob stored;
  stored.set_tenant(row.tenant);
  stored.set_lease(row.lease);
  stored.set_stored_bytes(row.bytes);
  v1::Job& job = *stored.mutable_job();
  job.set_id(row.id);
  job.set_state(row.state);
  job.set_attempt(row.attempt);
  job.set_array_id(row.array_id);
  job.set_idempotency_key(row.key);
  job.set_ended_unix_ns(row.ended_unix_ns);
  return stored;
}

Status SqliteWriter::EndDamaged(std::span<const DamagedJob> damaged, int64_t ended_unix_ns) {
  UseChanges use;
  for (const DamagedJob& job : damaged) {
    HPVMD_ASSIGN_OR_RETURN(std::optional<Row> row, FindNumber(job.sequence));
    if (!row.has_value()) {
      continue;
    }
    HPVMD_RETURN_IF_ERROR(LoseDamagedShare(&*row));
    if (row->job.has_value()) {
      continue;
    }
    if (!row->has_end || (row->record.has_value() && !IsTerminal(row->record->job().state()))) {
      HPVMD_RETURN_IF_ERROR(EndDamaged(*row, ended_unix_ns, &use));
    }
  }
  return AddUse(use);
}

// A sound row whose shared fields are damaged counts as damaged: it then stands by itself, without those fields.
Status SqliteWriter::LoseDamagedShare(Row* row) {
  std::optional<StoredJob>& sound = row->job.has_value() ? row->job : row->record;
  if (!sound.has_value() || !sound->shares()) {
    return absl::OkStatus();
  }
  StoredJob whole = *sound;
  HPVMD_ASSIGN_OR_RETURN(const bool added, AddSharedTo(*row, &whole));
  if (!added) {
    row->record = whole;
    row->job.reset();
  }
  return absl::OkStatus();
}

// Returns false when the shared fields are damaged; the job then has its own record only.
StatusOr<bool> SqliteWriter::AddSharedTo(const Row& row, StoredJob* job) {
  SqliteReset reset(find_shared_);
  HPVMD_ASSIGN_OR_RETURN(const bool found, find_shared_.Start(row.request).Next());
  if (found && AddSharedRow(static_cast<int64_t>(row.request), find_shared_.Bytes(0), find_shared_.Int(1), job).ok()) {
    return true;
  }
  job->clear_shares();
  return false;
}

StatusOr<uint64_t> SqliteWriter::MendKeys(std::span<const uint64_t> sequences) {
  uint64_t mended = 0;
  for (const uint64_t sequence : sequences) {
    HPVMD_ASSIGN_OR_RETURN(const std::optional<Row> row, FindNumber(sequence));
    if (row.has_value() && row->job.has_value() && !row->job->job().idempotency_key().empty()) {
      HPVMD_ASSIGN_OR_RETURN(const bool is_mended, MendKey(*row));
      mended += is_mended ? 1 : 0;
    }
  }
  return mended;
}

// Restores the key from the record, which has a checksum: the column of the key may be what was damaged.
StatusOr<bool> SqliteWriter::MendKey(const Row& row) {
  const v1::Job& job = row.job->job();
  {
    SqliteReset reset(find_key_);
    HPVMD_ASSIGN_OR_RETURN(const bool is_known, find_key_.Start(row.tenant, job.idempotency_key()).Next());
    if (is_known) {
      return false;
    }
  }
  std::string first = job.id();
  uint64_t rows = 1;
  if (!job.array_id().empty()) {
    SqliteReset reset(find_elements_);
    HPVMD_RETURN_IF_ERROR(find_elements_.Start(row.tenant, job.array_id()).Next().status());
    rows = static_cast<uint64_t>(find_elements_.Int(1));
    HPVMD_ASSIGN_OR_RETURN(const std::optional<Row> element, FindNumber(static_cast<uint64_t>(find_elements_.Int(0))));
    first = element.has_value() ? element->id : first;
  }
  HPVMD_RETURN_IF_ERROR(insert_key_.Run(row.tenant, job.idempotency_key(), first, job.array_id(),
                                        SqlBytes{row.job->request_hash()}, job.created_unix_ns(), rows));
  return true;
}

Status SqliteWriter::EndDamaged(const Row& row, int64_t ended_unix_ns, UseChanges* use) {
  StoredJob stored = row.record.has_value() ? *row.record : JobFromColumns(row);
  TenantUse& tenant = (*use)[stored.tenant()];
  const bool was_live = !row.record.has_value() || !IsTerminal(stored.job().state());
  const uint64_t bytes_before = stored.stored_bytes();
  v1::Job& job = *stored.mutable_job();
  job.set_state(v1::JOB_STATE_FAILED);
  job.set_ended_unix_ns(ended_unix_ns);
  job.clear_not_before_unix_ns();
  job.clear_outputs();
  const Status why = DataLoss("The job's row in the store was damaged; it did not run to its end.");
  job.mutable_error()->set_code(static_cast<int32_t>(why.code()));
  job.mutable_error()->set_message(Message(why));
  HPVMD_RETURN_IF_ERROR(delete_results_.Run(row.sequence));
  if (!row.record.has_value()) {
    // The blobs that it needs are unknown.
    WriteResult unused;
    HPVMD_RETURN_IF_ERROR(SetBlobs(row, row.tenant, {}, &unused));
    HPVMD_RETURN_IF_ERROR(DropRequest(row));
    stored = DroppedForm(std::move(stored));
  }
  tenant.live -= was_live ? 1 : 0;
  tenant.stored_bytes += stored.stored_bytes() - bytes_before;
  tenant.finished_bytes += stored.stored_bytes() - (was_live ? 0 : bytes_before);
  stored.set_sequence(0);  // As rows are written: the column has it.
  const std::string record = stored.SerializeAsString();
  return change_damaged_.Run(row.sequence, job.id(), stored.tenant(), job.array_id(), job.dropped() ? 1 : 0,
                             stored.stored_bytes(), static_cast<int>(job.state()), job.attempt(), stored.lease(),
                             SqlBytes{record}, RowSum(row.sequence, record), ended_unix_ns);
}

Status SqliteWriter::Write(const ChangeJob& change, WriteResult* result, UseChanges* use) {
  StatusOr<Row> row = FindRow(change.tenant, change.id);
  if (absl::IsNotFound(row.status())) {
    result->status = row.status();
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(row.status());
  result->status = CheckChange({row->state, row->attempt, row->lease, row->array_id}, change);
  if (!result->status.ok()) {
    return absl::OkStatus();
  }
  const v1::Job& job = change.job.job();
  const std::string record = RecordOf(change.job, row->job.has_value() && row->job->shares());
  const uint32_t sum = RowSum(row->sequence, record);
  HPVMD_RETURN_IF_ERROR(SetBlobs(*row, change.tenant, BlobsOf(change.job), result));
  TenantUse& tenant = (*use)[change.tenant];
  tenant.stored_bytes += change.job.stored_bytes() - row->bytes;
  const int state = static_cast<int>(job.state());
  if (!IsTerminal(job.state())) {
    return change_live_.Run(row->sequence, change.job.stored_bytes(), state, job.attempt(), change.job.lease(),
                            SqlBytes{record}, sum);
  }
  tenant.live -= 1;
  tenant.finished_bytes += change.job.stored_bytes();
  HPVMD_RETURN_IF_ERROR(change_ended_.Run(row->sequence, change.job.stored_bytes(), state, job.attempt(),
                                          change.job.lease(), SqlBytes{record}, sum, job.ended_unix_ns()));
  if (!change.results.has_value()) {
    return absl::OkStatus();
  }
  const std::string results = change.results->SerializeAsString();
  return insert_results_.Run(row->sequence, SqlBytes{results}, RowSum(row->sequence, results));
}

StatusOr<std::vector<Sha256>> SqliteWriter::BlobsOfRow(const Row& row, std::string_view tenant) {
  if (row.job.has_value()) {
    return BlobsOf(*row.job);
  }
  // No index leads from a job to its blobs: this reads all of the tenant's.
  std::vector<Sha256> blobs;
  SqliteReset reset(blobs_of_row_);
  blobs_of_row_.Start(tenant, row.sequence);
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const bool more, blobs_of_row_.Next());
    if (!more) {
      return blobs;
    }
    blobs.push_back(Sha256FromRaw(blobs_of_row_.Bytes(0)).value_or(Sha256()));
  }
}

Status SqliteWriter::SetBlobs(const Row& row, std::string_view tenant, const std::vector<Sha256>& blobs,
                              WriteResult* result) {
  HPVMD_ASSIGN_OR_RETURN(const std::vector<Sha256> before, BlobsOfRow(row, tenant));
  for (const Sha256& hash : blobs) {
    if (!std::binary_search(before.begin(), before.end(), hash)) {
      HPVMD_RETURN_IF_ERROR(insert_blob_.Run(tenant, SqlBytes{Raw(hash)}, row.sequence));
    }
  }
  for (const Sha256& hash : before) {
    if (!std::binary_search(blobs.begin(), blobs.end(), hash)) {
      HPVMD_RETURN_IF_ERROR(delete_blob_.Run(tenant, SqlBytes{Raw(hash)}, row.sequence));
      HPVMD_ASSIGN_OR_RETURN(const bool used, IsBlobUsed(tenant, hash));
      if (!used) {
        result->unused_blobs.push_back(hash);
      }
    }
  }
  return absl::OkStatus();
}

StatusOr<bool> SqliteWriter::IsBlobUsed(std::string_view tenant, const Sha256& hash) {
  SqliteReset reset(find_blob_);
  return find_blob_.Start(tenant, SqlBytes{Raw(hash)}).Next();
}

Status SqliteWriter::Write(const DropJob& drop, WriteResult* result, UseChanges* use) {
  StatusOr<Row> row = FindRow(drop.tenant, drop.id);
  if (row.ok()) {
    result->status = CheckDrop(row->state, drop.id);
  } else if (absl::IsNotFound(row.status())) {
    result->status = row.status();
  } else {
    return row.status();
  }
  if (!result->status.ok()) {
    return absl::OkStatus();
  }
  TenantUse& tenant = (*use)[drop.tenant];
  if (!row->dropped) {
    HPVMD_RETURN_IF_ERROR(SetBlobs(*row, drop.tenant, {}, result));
    HPVMD_RETURN_IF_ERROR(DropPayload(*row));
  }
  if (drop.forget) {
    tenant.jobs -= 1;
    tenant.stored_bytes -= row->bytes;
    tenant.finished_bytes -= row->bytes;
    result->stored_bytes_change = -static_cast<int64_t>(row->bytes);
    return Forget(*row, drop);
  }
  if (row->dropped) {
    return absl::OkStatus();
  }
  StoredJob job = row->job.has_value() ? *std::move(row->job) : JobFromColumns(*row);
  bool shares = job.shares();
  if (shares) {
    HPVMD_ASSIGN_OR_RETURN(shares, AddSharedTo(*row, &job));
  }
  job = DroppedForm(std::move(job));
  const std::string record = RecordOf(job, shares);
  result->stored_bytes_change = static_cast<int64_t>(job.stored_bytes() - row->bytes);
  tenant.stored_bytes += result->stored_bytes_change;
  tenant.finished_bytes += result->stored_bytes_change;
  return change_dropped_.Run(row->sequence, job.stored_bytes(), SqlBytes{record}, RowSum(row->sequence, record));
}

Status SqliteWriter::DropPayload(const Row& row) {
  HPVMD_RETURN_IF_ERROR(DropRequest(row));
  return delete_results_.Run(row.sequence);
}

Status SqliteWriter::DropRequest(const Row& row) {
  if (!row.array_id.empty()) {
    HPVMD_RETURN_IF_ERROR(leave_request_.Run(row.request));
    SqliteReset reset(find_request_users_);
    HPVMD_ASSIGN_OR_RETURN(const bool found, find_request_users_.Start(row.request).Next());
    if (found && find_request_users_.Int(0) > 0) {
      return absl::OkStatus();
    }
    find_request_users_.Reset();
    HPVMD_RETURN_IF_ERROR(delete_request_users_.Run(row.request));
  }
  return delete_request_.Run(row.request);
}

Status SqliteWriter::Forget(const Row& row, const DropJob& drop) {
  if (!row.key.empty()) {
    HPVMD_RETURN_IF_ERROR(leave_key_.Run(drop.tenant, row.key, drop.id, static_cast<int>(row.state), row.array_id));
  }
  HPVMD_RETURN_IF_ERROR(delete_job_.Run(row.sequence));
  HPVMD_RETURN_IF_ERROR(ForgetShared(row));
  // The newest row's number must not be given again after a restart.
  return row.sequence + 1 == next_sequence_ ? save_sequence_.Run(next_sequence_) : absl::OkStatus();
}

// Removes the shared fields after the last job of an array, if they are certainly that array's: a damaged number may
// lead to another's.
Status SqliteWriter::ForgetShared(const Row& row) {
  if (row.array_id.empty()) {
    return absl::OkStatus();
  }
  {
    SqliteReset reset(find_element_);
    HPVMD_ASSIGN_OR_RETURN(const bool has_others, find_element_.Start(row.tenant, row.array_id).Next());
    if (has_others) {
      return absl::OkStatus();
    }
  }
  StoredJob whole = JobFromColumns(row);
  HPVMD_ASSIGN_OR_RETURN(const bool is_its_own, AddSharedTo(row, &whole));
  return is_its_own ? delete_shared_.Run(row.request) : absl::OkStatus();
}

Status SqliteWriter::Write(const ForgetKeys& forget, WriteResult* result, UseChanges* use) {
  return delete_old_keys_.Run(forget.before_unix_ns, std::string_view(forget.tenant));
}

// A blob that one write of the batch left unused may be used by a later one.
Status SqliteWriter::ForgetBlobsInUse(std::span<const JobWrite> writes, std::vector<WriteResult>* results) {
  for (size_t i = 0; i < writes.size(); ++i) {
    std::vector<Sha256>& unused = (*results)[i].unused_blobs;
    for (size_t j = unused.size(); j-- > 0;) {
      HPVMD_ASSIGN_OR_RETURN(const bool used, IsBlobUsed(TenantOf(writes[i]), unused[j]));
      if (used) {
        unused.erase(unused.begin() + static_cast<ptrdiff_t>(j));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
