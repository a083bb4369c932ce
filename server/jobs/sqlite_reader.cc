// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/sqlite_reader.h"

#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "server/jobs/job_rules.h"
#include "server/jobs/sqlite_schema.h"

namespace hpvm {
namespace {

std::string_view BytesOf(const Sha256& hash) {
  return {reinterpret_cast<const char*>(hash.bytes.data()), hash.bytes.size()};
}

Sha256 HashFrom(std::string_view bytes) {
  Sha256 hash;
  std::copy_n(bytes.begin(), std::min(bytes.size(), hash.bytes.size()), hash.bytes.begin());
  return hash;
}

// SQLite's numbers are signed.
int64_t Clamp(uint64_t value) { return static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)); }

// One bit a state; 0: all.
int64_t MaskOf(const std::vector<v1::JobState>& states) {
  int64_t mask = 0;
  for (const v1::JobState state : states) {
    mask |= state >= 0 && state < 62 ? int64_t{1} << state : int64_t{1} << 62;
  }
  return mask;
}

// In a list, a job whose record is damaged shows that.
StoredJob ShowDamage(const SqliteStatement& row, const Status& status) {
  StoredJob job;
  job.set_sequence(static_cast<uint64_t>(row.Int(0)));
  job.set_tenant(std::string(row.Bytes(1)));
  job.mutable_job()->set_id(std::string(row.Bytes(2)));
  job.mutable_job()->set_state(static_cast<v1::JobState>(row.Int(3)));
  job.mutable_job()->mutable_error()->set_code(static_cast<int32_t>(status.code()));
  job.mutable_job()->mutable_error()->set_message(Message(status));
  return job;
}

Status ForEachRow(SqliteStatement& statement, const std::function<void()>& each) {
  SqliteReset reset(statement);
  statement.Start();
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const bool more, statement.Next());
    if (!more) {
      return absl::OkStatus();
    }
    each();
  }
}

}  // namespace

StatusOr<std::unique_ptr<SqliteReader>> SqliteReader::Create(std::unique_ptr<SqliteConnection> connection) {
  auto reader = std::make_unique<SqliteReader>();
  reader->connection_ = std::move(connection);
  HPVMD_RETURN_IF_ERROR(reader->PrepareAll());
  return reader;
}

Status SqliteReader::PrepareAll() {
  const std::string job = std::string("SELECT ") + kJobColumns + " FROM jobs WHERE ";
  const std::string list = " AND sequence < ?2 AND (?3 = 0 OR (?3 >> state) & 1) ORDER BY sequence DESC";
  const std::string finished = "SELECT tenant, id, ended, bytes, dropped FROM jobs WHERE ";
  const std::string page = " AND (?2 OR NOT dropped) ORDER BY ended, sequence LIMIT ?1";
  const std::pair<SqliteStatement*, std::string> statements[] = {
      {&find_, job + "id = ?1"},
      {&find_key_, "SELECT job_id, request_hash, state, array_id FROM keys WHERE tenant = ?1 AND idempotency_key = ?2"},
      {&read_request_,
       // A job has its own request, or that of the first of its array, whose elements have numbers in a row: with
       // another number it would run what somebody else asked for.
       "SELECT jobs.tenant, jobs.dropped, jobs.request, requests.bytes, requests.sum, "
       "iif(jobs.array_id IS NULL, jobs.request = jobs.sequence, jobs.request <= jobs.sequence AND jobs.array_id IS "
       "(SELECT first.array_id FROM jobs AS first WHERE first.sequence >= jobs.request ORDER BY first.sequence LIMIT "
       "1)) "
       "FROM jobs "
       "LEFT JOIN requests ON requests.sequence = jobs.request WHERE jobs.id = ?1"},
      {&read_results_,
       "SELECT jobs.tenant, jobs.sequence, results.bytes, results.sum FROM jobs "
       "LEFT JOIN results ON results.sequence = jobs.sequence WHERE jobs.id = ?1"},
      {&list_, job + "tenant = ?1" + list},
      {&list_array_, job + "tenant = ?1 AND array_id = ?4" + list},
      {&load_live_, job + "ended IS NULL ORDER BY sequence"},
      // No index leads to rows that have ended by one column and not by the other: this looks at each.
      {&load_stray_, std::string("SELECT ") + kJobColumns + " FROM jobs NOT INDEXED WHERE ended IS NOT NULL AND " +
                         "state NOT BETWEEN 4 AND 8"},
      // With whether the indexes lead to the row, by which others look for it.
      {&list_all_, std::string("SELECT ") + kJobColumns +
                       ", EXISTS (SELECT 1 FROM jobs AS found INDEXED BY jobs_by_id WHERE found.id = jobs.id AND "
                       "found.sequence = jobs.sequence) AND (array_id IS NULL OR EXISTS (SELECT 1 FROM jobs AS found "
                       "INDEXED BY jobs_by_array WHERE found.tenant = jobs.tenant AND found.array_id = jobs.array_id "
                       "AND found.sequence = jobs.sequence)) FROM jobs NOT INDEXED"},
      {&list_finished_, finished + "tenant = ?3 AND ended IS NOT NULL" + page},
      {&list_finished_all_, finished + "ended IS NOT NULL" + page},
      {&use_, "SELECT tenant, jobs, live, bytes, finished_bytes FROM uses WHERE jobs > 0"},
      {&list_blobs_, "SELECT DISTINCT tenant, sha256 FROM blobs"},
      {&uses_blob_, "SELECT 1 FROM blobs WHERE tenant = ?1 AND sha256 = ?2 LIMIT 1"},
  };
  for (const auto& [statement, sql] : statements) {
    HPVMD_RETURN_IF_ERROR(connection_->Prepare(sql, statement));
  }
  return absl::OkStatus();
}

StatusOr<StoredJob> SqliteReader::Find(std::string_view tenant, std::string_view id) {
  SqliteReset reset(find_);
  HPVMD_ASSIGN_OR_RETURN(const bool found, find_.Start(id).Next());
  if (!found || (find_.Bytes(1) != tenant && !HPVMD_MUTANT("store_no_owner_check"))) {
    return NoSuchJob(id);
  }
  return ReadJobRow(find_);
}

StatusOr<KeyRecord> SqliteReader::FindKey(std::string_view tenant, std::string_view key) {
  SqliteReset reset(find_key_);
  HPVMD_ASSIGN_OR_RETURN(const bool found, find_key_.Start(tenant, key).Next());
  if (!found) {
    return NoSuchKey();
  }
  return KeyRecord{std::string(find_key_.Bytes(0)), HashFrom(find_key_.Bytes(1)),
                   static_cast<v1::JobState>(find_key_.Int(2)), std::string(find_key_.Bytes(3))};
}

StatusOr<StoredRequest> SqliteReader::ReadRequest(std::string_view tenant, std::string_view id) {
  SqliteReset reset(read_request_);
  HPVMD_ASSIGN_OR_RETURN(const bool found, read_request_.Start(id).Next());
  if (!found || read_request_.Bytes(0) != tenant) {
    return NoSuchJob(id);
  }
  if (read_request_.Int(1) != 0) {
    return NoSuchRequest(id);
  }
  const std::string_view bytes = read_request_.Bytes(3);
  StoredRequest request;
  if (read_request_.IsNull(3) || read_request_.Int(4) != RowSum(static_cast<uint64_t>(read_request_.Int(2)), bytes) ||
      !request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || read_request_.Int(5) == 0) {
    return DamagedRow("request", id);
  }
  return request;
}

StatusOr<StoredResults> SqliteReader::ReadResults(std::string_view tenant, std::string_view id) {
  SqliteReset reset(read_results_);
  HPVMD_ASSIGN_OR_RETURN(const bool found, read_results_.Start(id).Next());
  if (!found || read_results_.Bytes(0) != tenant) {
    return NoSuchJob(id);
  }
  StoredResults results;
  if (read_results_.IsNull(2)) {
    return results;
  }
  const std::string_view bytes = read_results_.Bytes(2);
  if (read_results_.Int(3) != RowSum(static_cast<uint64_t>(read_results_.Int(1)), bytes) ||
      !results.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return DamagedRow("results", id);
  }
  return results;
}

StatusOr<std::vector<StoredJob>> SqliteReader::List(std::string_view tenant, const JobFilter& filter) {
  std::vector<StoredJob> jobs;
  SqliteStatement& list = filter.array_id.empty() ? list_ : list_array_;
  SqliteReset reset(list);
  if (filter.array_id.empty()) {
    list.Start(tenant, Clamp(filter.before_sequence), MaskOf(filter.states));
  } else {
    list.Start(tenant, Clamp(filter.before_sequence), MaskOf(filter.states), filter.array_id);
  }
  while (jobs.size() < filter.count_max) {
    HPVMD_ASSIGN_OR_RETURN(const bool more, list.Next());
    if (!more) {
      break;
    }
    StatusOr<StoredJob> job = ReadJobRow(list);
    if (!job.ok() && filter.fails_on_damage) {
      return job.status();
    }
    if (!job.ok()) {
      jobs.push_back(ShowDamage(list, job.status()));
    } else if (MatchesLabels(*job, filter)) {
      jobs.push_back(*std::move(job));
    }
  }
  return jobs;
}

Status SqliteReader::LoadLive(const std::function<void(StoredJob)>& each, std::vector<DamagedJob>* damaged) {
  HPVMD_RETURN_IF_ERROR(ForEachRow(load_live_, [&] {
    if (StatusOr<StoredJob> job = ReadJobRow(load_live_); job.ok()) {
      each(*std::move(job));
    } else if (damaged != nullptr) {
      damaged->push_back(DescribeDamage(load_live_));
    }
  }));
  if (damaged == nullptr) {
    return absl::OkStatus();
  }
  return ForEachRow(load_stray_, [&] {
    if (DamagedJob stray = DescribeDamage(load_stray_); stray.is_live) {
      damaged->push_back(std::move(stray));
    }
  });
}

Status SqliteReader::ListDamaged(const std::function<void(const DamagedJob&)>& each) {
  return ForEachRow(list_all_, [&] {
    if (list_all_.Int(14) == 0 || !ReadJobRow(list_all_).ok()) {
      each(DescribeDamage(list_all_));
    }
  });
}

StatusOr<std::vector<FinishedJob>> SqliteReader::ListFinished(std::string_view tenant, size_t count_max,
                                                              bool with_dropped) {
  SqliteStatement& list = tenant.empty() ? list_finished_all_ : list_finished_;
  SqliteReset reset(list);
  if (tenant.empty()) {
    list.Start(Clamp(count_max), with_dropped ? 1 : 0);
  } else {
    list.Start(Clamp(count_max), with_dropped ? 1 : 0, tenant);
  }
  std::vector<FinishedJob> jobs;
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const bool more, list.Next());
    if (!more) {
      return jobs;
    }
    jobs.push_back({std::string(list.Bytes(0)), std::string(list.Bytes(1)), list.Int(2),
                    static_cast<uint64_t>(list.Int(3)), list.Int(4) != 0});
  }
}

StatusOr<std::map<std::string, TenantUse>> SqliteReader::Use() {
  SqliteReset reset(use_);
  use_.Start();
  std::map<std::string, TenantUse> use;
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const bool more, use_.Next());
    if (!more) {
      return use;
    }
    use[std::string(use_.Bytes(0))] = {static_cast<uint64_t>(use_.Int(1)), static_cast<uint64_t>(use_.Int(2)),
                                       static_cast<uint64_t>(use_.Int(3)), static_cast<uint64_t>(use_.Int(4))};
  }
}

Status SqliteReader::ListBlobs(const std::function<void(const BlobUse&)>& each) {
  SqliteReset reset(list_blobs_);
  list_blobs_.Start();
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const bool more, list_blobs_.Next());
    if (!more) {
      return absl::OkStatus();
    }
    each({std::string(list_blobs_.Bytes(0)), HashFrom(list_blobs_.Bytes(1))});
  }
}

StatusOr<bool> SqliteReader::UsesBlob(std::string_view tenant, const Sha256& hash) {
  SqliteReset reset(uses_blob_);
  return uses_blob_.Start(tenant, SqlBytes{BytesOf(hash)}).Next();
}

}  // namespace hpvm
