// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/sqlite/sqlite_reader.h"

#include <algorithm>
#include <utility>

#include "server/jobs/rows/job_rules.h"
#include "server/jobs/sqlite/sqlite_schema.h"

namespace hpvm::server {
namespace {

// SQLite's numbers are signed.
int64_t Clamp(uint64_t value) { return static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)); }

// Returns one bit per state; 0: all.
int64_t MaskOf(const std::vector<v1::JobState>& states) {
  int64_t mask = 0;
  for (const v1::JobState state : states) {
    mask |= state >= 0 && state < 62 ? int64_t{1} << state : int64_t{1} << 62;
  }
  return mask;
}

// Returns the form in which lists show a job whose record is damaged.
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

}  // namespace

StatusOr<std::unique_ptr<SqliteReader>> SqliteReader::Create(std::unique_ptr<SqliteConnection> connection,
                                                             const Clock& clock) {
  auto reader = std::make_unique<SqliteReader>(clock);
  reader->connection_ = std::move(connection);
  HPVMD_RETURN_IF_ERROR(reader->PrepareAll());
  return reader;
}

Status SqliteReader::ForEachRow(SqliteStatement& statement, const std::function<void()>& start,
                                const std::function<bool()>& each) {
  SqliteReset reset(statement);
  while (true) {
    start();
    const Time begin = clock_.Now();
    do {
      HPVMD_ASSIGN_OR_RETURN(const bool more, statement.Next());
      if (!more || !each()) {
        return absl::OkStatus();
      }
    } while (clock_.Now() - begin < kSnapshotMax);
    statement.Reset();
  }
}

Status SqliteReader::PrepareAll() {
  const std::string is_whole = kIsWhole;
  const std::string job = std::string("SELECT ") + kWholeJobColumns + " FROM jobs WHERE " + is_whole + " AND ";
  const std::string list = " AND sequence < ?2 ORDER BY sequence DESC";
  const std::string finished = "SELECT tenant, id, ended, bytes, dropped FROM jobs WHERE ";
  const std::string keyless =
      "jobs.idempotency_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM keys WHERE keys.tenant = jobs.tenant AND "
      "keys.idempotency_key = jobs.idempotency_key)";
  const std::string page = " AND (?2 OR NOT dropped) ORDER BY ended, sequence LIMIT ?1";
  const std::pair<SqliteStatement*, std::string> statements[] = {
      {&find_, job + "id = ?1"},
      {&find_key_, "SELECT job_id, request_hash, state, array_id FROM keys WHERE tenant = ?1 AND idempotency_key = ?2"},
      {&read_request_,
       // A job has its own request, or that of the first of its array, whose elements have consecutive numbers: with
       // another number it would run another job's request.
       "SELECT jobs.tenant, jobs.dropped, jobs.request, requests.bytes, requests.sum, "
       "iif(jobs.array_id IS NULL, jobs.request = jobs.sequence, jobs.request <= jobs.sequence AND jobs.array_id IS "
       "(SELECT first.array_id FROM jobs AS first WHERE first.sequence >= jobs.request ORDER BY first.sequence LIMIT "
       "1)) "
       "FROM jobs "
       "LEFT JOIN requests ON requests.sequence = jobs.request WHERE jobs.id = ?1 AND " +
           is_whole},
      {&read_results_,
       "SELECT jobs.tenant, jobs.sequence, results.bytes, results.sum FROM jobs "
       "LEFT JOIN results ON results.sequence = jobs.sequence WHERE jobs.id = ?1 AND " +
           is_whole},
      {&list_, job + "tenant = ?1" + list},
      {&list_array_, job + "tenant = ?1 AND array_id = ?3" + list},
      {&load_live_, job + "ended IS NULL AND sequence > ?1 ORDER BY sequence"},
      // No index leads to rows that have ended by one column and not by the other, so this visits each row.
      {&load_stray_, std::string("SELECT ") + kWholeJobColumns + " FROM jobs NOT INDEXED WHERE ended IS NOT NULL AND " +
                         "state NOT BETWEEN 4 AND 8 AND sequence > ?1 ORDER BY sequence"},
      // Also selects whether the indexes lead to the row, through which other reads find it.
      {&list_all_,
       std::string("SELECT ") + kWholeJobColumns +
           ", EXISTS (SELECT 1 FROM jobs AS found INDEXED BY jobs_by_id WHERE found.id = jobs.id AND "
           "found.sequence = jobs.sequence) AND (jobs.array_id IS NULL OR EXISTS (SELECT 1 FROM jobs AS found "
           "INDEXED BY jobs_by_array WHERE found.tenant = jobs.tenant AND found.array_id = jobs.array_id "
           "AND found.sequence = jobs.sequence)) FROM jobs NOT INDEXED WHERE sequence > ?1 AND " +
           is_whole + " ORDER BY sequence"},
      {&list_keyless_, "SELECT sequence FROM jobs NOT INDEXED WHERE sequence > ?1 AND " + is_whole + " AND " + keyless +
                           " ORDER BY sequence"},
      {&list_finished_, finished + "tenant = ?3 AND ended IS NOT NULL" + page},
      {&list_finished_all_, finished + "ended IS NOT NULL" + page},
      {&use_, "SELECT tenant, jobs, live, bytes, finished_bytes FROM uses WHERE jobs > 0"},
      {&list_blobs_,
       "SELECT DISTINCT tenant, sha256 FROM blobs WHERE (tenant, sha256) > (?1, ?2) ORDER BY tenant, sha256"},
      {&scrub_, std::string("SELECT ") + kWholeJobColumns +
                    ", requests.bytes, requests.sum, results.bytes, results.sum, " + keyless +
                    " FROM jobs LEFT JOIN requests ON requests.sequence = jobs.request "
                    "LEFT JOIN results ON results.sequence = jobs.sequence WHERE jobs.sequence >= ?1 AND " +
                    is_whole + " ORDER BY jobs.sequence"},
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
  if (!found || find_.Bytes(1) != tenant) {
    return NoSuchJob(id);
  }
  return ReadWholeJob(find_);
}

StatusOr<KeyRecord> SqliteReader::FindKey(std::string_view tenant, std::string_view key) {
  SqliteReset reset(find_key_);
  HPVMD_ASSIGN_OR_RETURN(const bool found, find_key_.Start(tenant, key).Next());
  if (!found) {
    return NoSuchKey();
  }
  return KeyRecord{std::string(find_key_.Bytes(0)), Sha256FromRaw(find_key_.Bytes(1)).value_or(Sha256()),
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

StatusOr<std::vector<StoredJob>> SqliteReader::ListSome(std::string_view tenant, JobFilter* const wanted) {
  const JobFilter& filter = *wanted;
  std::vector<StoredJob> jobs;
  if (filter.count_max == 0) {
    return jobs;
  }
  SqliteStatement& list = filter.array_id.empty() ? list_ : list_array_;
  int64_t before = Clamp(filter.before_sequence);
  const int64_t states = MaskOf(filter.states);
  size_t rows = 0;
  Status damage;
  const auto start = [&] {
    if (filter.array_id.empty()) {
      list.Start(tenant, before);
    } else {
      list.Start(tenant, before, filter.array_id);
    }
  };
  HPVMD_RETURN_IF_ERROR(ForEachRow(list, start, [&] {
    if (rows++ == filter.rows_max) {
      return false;
    }
    before = list.Int(0);
    // Filtered here rather than in SQL, which would search for the next match without end.
    if (states != 0 && ((states >> (list.Int(3) & 63)) & 1) == 0) {
      return true;
    }
    StatusOr<StoredJob> job = ReadWholeJob(list);
    if (!job.ok() && filter.fails_on_damage) {
      damage = job.status();
      return false;
    }
    if (!job.ok()) {
      jobs.push_back(ShowDamage(list, job.status()));
    } else if (MatchesLabels(*job, filter)) {
      jobs.push_back(*std::move(job));
    }
    return jobs.size() < filter.count_max;
  }));
  HPVMD_RETURN_IF_ERROR(damage);
  const bool may_have_more = rows > filter.rows_max || jobs.size() == filter.count_max;
  wanted->before_sequence = may_have_more ? static_cast<uint64_t>(before) : 0;
  return jobs;
}

Status SqliteReader::LoadLive(const std::function<void(LiveRow)>& each, std::vector<DamagedJob>* damaged) {
  int64_t last = INT64_MIN;
  HPVMD_RETURN_IF_ERROR(ForEachRow(
      load_live_, [&] { load_live_.Start(last); },
      [&] {
        last = load_live_.Int(0);
        if (StatusOr<StoredJob> job = ReadWholeJob(load_live_); job.ok()) {
          each({*std::move(job), !load_live_.IsNull(kSharedColumn)});
        } else if (damaged != nullptr) {
          damaged->push_back(DescribeDamage(load_live_));
        }
        return true;
      }));
  if (damaged == nullptr) {
    return absl::OkStatus();
  }
  last = INT64_MIN;
  return ForEachRow(
      load_stray_, [&] { load_stray_.Start(last); },
      [&] {
        last = load_stray_.Int(0);
        if (DamagedJob stray = DescribeDamage(load_stray_); stray.is_live) {
          damaged->push_back(std::move(stray));
        }
        return true;
      });
}

Status SqliteReader::ListDamaged(const std::function<void(const DamagedJob&)>& each) {
  int64_t last = INT64_MIN;
  return ForEachRow(
      list_all_, [&] { list_all_.Start(last); },
      [&] {
        last = list_all_.Int(0);
        if (list_all_.Int(16) == 0 || !ReadWholeJob(list_all_).ok()) {
          each(DescribeDamage(list_all_));
        }
        return true;
      });
}

StatusOr<std::vector<uint64_t>> SqliteReader::ListKeyless() {
  std::vector<uint64_t> keyless;
  HPVMD_RETURN_IF_ERROR(ForEachRow(
      list_keyless_, [&] { list_keyless_.Start(keyless.empty() ? INT64_MIN : static_cast<int64_t>(keyless.back())); },
      [&] {
        keyless.push_back(static_cast<uint64_t>(list_keyless_.Int(0)));
        return true;
      }));
  return keyless;
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
  std::string tenant, hash;  // Values of the last row.
  // Bound values must not change while rows are read: SQLite reads them again for each row.
  std::string from_tenant, from_hash;
  return ForEachRow(
      list_blobs_,
      [&] {
        list_blobs_.Reset();
        from_tenant = tenant;
        from_hash = hash;
        list_blobs_.Start(from_tenant, SqlBytes{from_hash});
      },
      [&] {
        tenant = list_blobs_.Bytes(0);
        hash = list_blobs_.Bytes(1);
        each({tenant, Sha256FromRaw(hash).value_or(Sha256())});
        return true;
      });
}

StatusOr<bool> SqliteReader::UsesBlob(std::string_view tenant, const Sha256& hash) {
  SqliteReset reset(uses_blob_);
  return uses_blob_.Start(tenant, SqlBytes{Raw(hash)}).Next();
}

StatusOr<ScrubbedRows> SqliteReader::Scrub(uint64_t from, uint64_t bytes_max) {
  ScrubbedRows rows;
  int64_t request = INT64_MIN;  // The last one, which an array's elements share.
  bool is_sound_request = true;
  const auto is_sound = [this, &rows](int64_t sequence, int column) {
    const std::string_view bytes = scrub_.Bytes(column);
    rows.bytes += bytes.size();
    return scrub_.Int(column + 1) == RowSum(static_cast<uint64_t>(sequence), bytes);
  };
  SqliteReset reset(scrub_);
  scrub_.Start(from);
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const bool more, scrub_.Next());
    if (!more) {
      return rows;
    }
    const int64_t sequence = scrub_.Int(0);
    if (rows.bytes >= bytes_max && rows.bytes > 0) {
      rows.next = static_cast<uint64_t>(sequence);
      return rows;
    }
    StatusOr<StoredJob> job = ReadWholeJob(scrub_);
    rows.bytes += scrub_.Bytes(6).size();
    Status what = job.status();
    if (const bool needs_request = scrub_.Int(10) == 0; needs_request && scrub_.Int(8) != request) {
      request = scrub_.Int(8);
      is_sound_request = !scrub_.IsNull(16) && is_sound(request, 16);
    } else if (!needs_request) {
      is_sound_request = true;
      request = INT64_MIN;
    }
    const bool are_sound_results = scrub_.IsNull(18) || is_sound(sequence, 18);
    if (what.ok() && !is_sound_request) {
      what = DamagedRow("request", scrub_.Bytes(2));
    } else if (what.ok() && !are_sound_results) {
      what = DamagedRow("results", scrub_.Bytes(2));
    }
    if (!what.ok()) {
      const DamagedJob damaged = DescribeDamage(scrub_);
      rows.damage.push_back({damaged.tenant, damaged.id, what});
    }
    if (scrub_.Int(20) != 0) {
      rows.keyless.push_back(static_cast<uint64_t>(sequence));
    }
    if (job.ok()) {
      rows.jobs.push_back(*std::move(job));
    }
  }
}

}  // namespace hpvm::server
