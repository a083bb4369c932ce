// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/sqlite/sqlite_check.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "server/jobs/rows/job_rules.h"
#include "server/jobs/sqlite/sqlite_schema.h"

namespace hpvm::server {
namespace {

constexpr size_t kFaultsMax = 1'000;

// Contradictions between tables that SQL can find: each row of the answer is a fault.
constexpr std::pair<const char*, const char*> kContradictions[] = {
    {"has a state that does not exist, or one that contradicts its end",
     "SELECT id FROM jobs WHERE state NOT BETWEEN 1 AND 8 OR (state >= 4) <> (ended IS NOT NULL)"},
    {"has lost its request",
     "SELECT id FROM whole_jobs WHERE NOT dropped AND request NOT IN (SELECT sequence FROM requests)"},
    {"has an idempotency key that is not known",
     "SELECT id FROM whole_jobs AS jobs WHERE idempotency_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM keys WHERE "
     "keys.tenant = jobs.tenant AND keys.idempotency_key = jobs.idempotency_key)"},
    {"has an idempotency key that counts other jobs than there are",
     "SELECT job_id FROM keys WHERE rows <> (SELECT count(*) FROM jobs WHERE jobs.tenant = keys.tenant AND "
     "jobs.idempotency_key = keys.idempotency_key AND "
     "jobs.sequence IN (SELECT sequence FROM jobs WHERE id = keys.job_id UNION SELECT sequence FROM jobs WHERE "
     "tenant = keys.tenant AND array_id = keys.array_id AND keys.array_id <> ''))"},
    {"does not exist, but a blob is kept for it",
     "SELECT sequence FROM blobs WHERE sequence NOT IN (SELECT sequence FROM jobs)"},
    {"does not exist, but results are kept for it",
     "SELECT sequence FROM results WHERE sequence NOT IN (SELECT sequence FROM jobs)"},
    {"does not exist, but a request is kept for it",
     "SELECT sequence FROM requests WHERE sequence NOT IN (SELECT request FROM jobs)"},
    {"does not exist, but the shared record of its array is kept",
     "SELECT sequence FROM shared WHERE sequence NOT IN (SELECT request FROM jobs)"},
    {"has a sequence number that will be assigned again", "SELECT id FROM jobs WHERE sequence < 1"},
    {"is the first of an array that is marked as being written, but is stored",
     "SELECT sequence FROM staged WHERE sequence IN (SELECT sequence FROM requests)"},
};

// Tenants whose rows add up to other values than those in `uses`.
constexpr char kWrongUses[] =
    "SELECT tenant FROM (SELECT tenant, count(*) AS jobs, sum(ended IS NULL) AS live, sum(bytes) AS bytes, "
    "sum(iif(ended IS NULL, 0, bytes)) AS finished FROM whole_jobs GROUP BY tenant) AS counted "
    "LEFT JOIN uses USING(tenant) "
    "WHERE (counted.jobs, counted.live, counted.bytes, counted.finished) IS NOT "
    "(uses.jobs, uses.live, uses.bytes, uses.finished_bytes) "
    "UNION SELECT tenant FROM uses WHERE jobs <> 0 AND tenant NOT IN (SELECT tenant FROM whole_jobs)";

// The number of blobs that jobs need; an array that is being written has none yet.
constexpr char kCountBlobs[] =
    "SELECT count(*) FROM blobs WHERE sequence NOT IN (SELECT jobs.sequence FROM staged JOIN jobs ON jobs.sequence "
    "BETWEEN staged.sequence AND staged.sequence + staged.rows - 1)";

class FaultList {
 public:
  void Add(std::string fault) {
    if (list_.size() < kFaultsMax) {
      list_.push_back(std::move(fault));
    }
  }
  std::vector<std::string> Take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
};

Status ForEachRow(SqliteConnection& connection, std::string_view sql,
                  const std::function<Status(const SqliteStatement&)>& each) {
  SqliteStatement statement;
  HPVMD_RETURN_IF_ERROR(connection.Prepare(sql, &statement));
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const bool more, statement.Next());
    if (!more) {
      return absl::OkStatus();
    }
    HPVMD_RETURN_IF_ERROR(each(statement));
  }
}

// Checks records, and that the table of blobs agrees with them.
Status CheckJobs(SqliteConnection& connection, FaultList* faults) {
  SqliteStatement blobs;
  HPVMD_RETURN_IF_ERROR(
      connection.Prepare("SELECT 1 FROM blobs WHERE tenant = ?1 AND sha256 = ?2 AND sequence = ?3", &blobs));
  uint64_t blobs_named = 0;
  HPVMD_RETURN_IF_ERROR(ForEachRow(
      connection, std::string("SELECT ") + kWholeJobColumns + " FROM whole_jobs AS jobs",
      [&](const SqliteStatement& row) {
        const StatusOr<StoredJob> job = ReadWholeJob(row);
        if (!job.ok()) {
          faults->Add(Message(job.status()));
          return absl::OkStatus();
        }
        for (const Sha256& hash : BlobsOf(*job)) {
          ++blobs_named;
          SqliteReset reset(blobs);
          HPVMD_ASSIGN_OR_RETURN(const bool found,
                                 blobs.Start(job->tenant(), SqlBytes{Raw(hash)}, job->sequence()).Next());
          if (!found) {
            faults->Add("Job \"" + job->job().id() + "\" needs blob " + ToHex(hash) + ", which is not kept for it.");
          }
        }
        return absl::OkStatus();
      }));
  HPVMD_ASSIGN_OR_RETURN(const int64_t blob_rows, connection.QueryInt(kCountBlobs));
  if (static_cast<uint64_t>(blob_rows) != blobs_named) {
    faults->Add("The jobs name " + std::to_string(blobs_named) + " blobs; the table of blobs has " +
                std::to_string(blob_rows) + ".");
  }
  return absl::OkStatus();
}

Status CheckPayloads(SqliteConnection& connection, const std::string& table, FaultList* faults) {
  return ForEachRow(connection, "SELECT sequence, bytes, sum FROM " + table, [&](const SqliteStatement& row) {
    if (row.Int(2) != RowSum(static_cast<uint64_t>(row.Int(0)), row.Bytes(1))) {
      faults->Add("Row " + std::to_string(row.Int(0)) + " of " + table + " is damaged.");
    }
    return absl::OkStatus();
  });
}

Status CheckTables(SqliteConnection& connection, FaultList* faults) {
  HPVMD_RETURN_IF_ERROR(CheckJobs(connection, faults));
  HPVMD_RETURN_IF_ERROR(CheckPayloads(connection, "requests", faults));
  HPVMD_RETURN_IF_ERROR(CheckPayloads(connection, "results", faults));
  HPVMD_RETURN_IF_ERROR(CheckPayloads(connection, "shared", faults));
  for (const auto& [what, sql] : kContradictions) {
    HPVMD_RETURN_IF_ERROR(ForEachRow(connection, sql, [&, what = what](const SqliteStatement& row) {
      faults->Add("Job \"" + std::string(row.Bytes(0)) + "\" " + what + ".");
      return absl::OkStatus();
    }));
  }
  return ForEachRow(connection, kWrongUses, [&](const SqliteStatement& row) {
    faults->Add("The jobs of tenant \"" + std::string(row.Bytes(0)) +
                "\" add up to other numbers than the table \"uses\" has.");
    return absl::OkStatus();
  });
}

}  // namespace

StatusOr<std::vector<std::string>> CheckJobTables(SqliteConnection& connection) {
  FaultList faults;
  HPVMD_RETURN_IF_ERROR(connection.Execute("BEGIN"));
  StatusOr<std::vector<std::string>> structure = connection.CheckIntegrity(false, nullptr);
  Status status = structure.status();
  if (structure.ok()) {
    for (std::string& fault : *structure) {
      faults.Add("SQLite: " + std::move(fault) + ".");
    }
    status = CheckTables(connection, &faults);
  }
  connection.Rollback().IgnoreError();
  if (absl::IsDataLoss(status)) {
    // A table that cannot be read to its end is a fault too, and earlier faults are kept.
    faults.Add(Message(status));
    status = absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(status);
  return faults.Take();
}

}  // namespace hpvm::server
