// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/sqlite/sqlite_rename.h"

#include <memory>
#include <utility>
#include <vector>

#include "server/sqlite/sqlite_connection.h"
#include "server/jobs/sqlite/sqlite_schema.h"

namespace hpvm::server {
namespace {

// The new record with its checksum.
struct Rewritten {
  int64_t sequence = 0;
  std::string bytes;
  int64_t sum = 0;
};

// Number of rows in memory at a time.
constexpr int64_t kRowsMax = 1'000;

class TenantRename {
 public:
  TenantRename(SqliteConnection& connection, std::string_view tenant, std::string_view name)
      : connection_(connection), tenant_(tenant), name_(name) {}

  StatusOr<uint64_t> Make() {
    HPVMD_ASSIGN_OR_RETURN(const int64_t jobs, Count("jobs", tenant_));
    HPVMD_ASSIGN_OR_RETURN(const int64_t keys, Count("keys", tenant_));
    HPVMD_ASSIGN_OR_RETURN(const int64_t other_jobs, Count("jobs", name_));
    HPVMD_ASSIGN_OR_RETURN(const int64_t other_keys, Count("keys", name_));
    if (jobs + keys == 0) {
      return static_cast<uint64_t>(other_jobs);  // There are none, or an earlier call renamed them.
    }
    if (other_jobs + other_keys > 0) {
      return AlreadyExists("There are jobs of a tenant \"" + std::string(name_) + "\".");
    }
    HPVMD_RETURN_IF_ERROR(RewriteShared());  // While the jobs still name their tenant.
    HPVMD_RETURN_IF_ERROR(RewriteJobs());
    HPVMD_RETURN_IF_ERROR(Run("DELETE FROM uses WHERE tenant = ?2 AND ?1 <> ?2"));
    for (const char* table : {"keys", "uses", "blobs"}) {
      HPVMD_RETURN_IF_ERROR(Run("UPDATE " + std::string(table) + " SET tenant = ?2 WHERE tenant = ?1"));
    }
    return static_cast<uint64_t>(jobs);
  }

 private:
  StatusOr<int64_t> Count(const char* table, std::string_view tenant) {
    SqliteStatement count;
    HPVMD_RETURN_IF_ERROR(
        connection_.Prepare("SELECT count(*) FROM " + std::string(table) + " WHERE tenant = ?1", &count));
    HPVMD_RETURN_IF_ERROR(count.Start(tenant).Next().status());
    return count.Int(0);
  }

  Status Run(const std::string& sql) {
    SqliteStatement statement;
    HPVMD_RETURN_IF_ERROR(connection_.Prepare(sql, &statement));
    return statement.Run(tenant_, name_);
  }

  // Returns the next records after `*last`, in their new form.
  StatusOr<std::vector<Rewritten>> Read(SqliteStatement& select, int64_t* last) {
    std::vector<Rewritten> rows;
    SqliteReset reset(select);
    select.Start(tenant_, *last, kRowsMax);
    while (true) {
      HPVMD_ASSIGN_OR_RETURN(const bool more, select.Next());
      if (!more) {
        return rows;
      }
      *last = select.Int(0);
      StoredJob record;
      const std::string_view bytes = select.Bytes(1);
      if (select.Int(2) == RowSum(static_cast<uint64_t>(*last), bytes) &&
          record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
        record.set_tenant(std::string(name_));
        std::string rewritten = record.SerializeAsString();
        const int64_t sum = RowSum(static_cast<uint64_t>(*last), rewritten);
        rows.push_back({*last, std::move(rewritten), sum});
      } else {
        rows.push_back({*last, std::string(bytes), select.Int(2)});  // Damaged, and stays damaged.
      }
    }
  }

  Status Rewrite(const std::string& select_sql, const std::string& update_sql) {
    SqliteStatement select, update;
    HPVMD_RETURN_IF_ERROR(connection_.Prepare(select_sql, &select));
    HPVMD_RETURN_IF_ERROR(connection_.Prepare(update_sql, &update));
    int64_t last = -1;
    while (true) {
      HPVMD_ASSIGN_OR_RETURN(const std::vector<Rewritten> rows, Read(select, &last));
      if (rows.empty()) {
        return absl::OkStatus();
      }
      for (const Rewritten& row : rows) {
        HPVMD_RETURN_IF_ERROR(update.Run(row.sequence, SqlBytes{row.bytes}, row.sum, name_));
      }
    }
  }

  Status RewriteJobs() {
    return Rewrite(
        "SELECT sequence, record, sum FROM jobs WHERE tenant = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3",
        "UPDATE jobs SET tenant = ?4, record = ?2, sum = ?3 WHERE sequence = ?1");
  }
  Status RewriteShared() {
    return Rewrite(
        "SELECT sequence, bytes, sum FROM shared WHERE sequence IN (SELECT request FROM jobs WHERE tenant = ?1) AND "
        "sequence > ?2 ORDER BY sequence LIMIT ?3",
        "UPDATE shared SET bytes = ?2, sum = ?3 WHERE sequence = ?1 AND ?4 <> ''");
  }

  SqliteConnection& connection_;
  const std::string_view tenant_, name_;
};

}  // namespace

StatusOr<uint64_t> RenameTenantOfJobs(const std::string& path, std::string_view tenant, std::string_view name) {
  const SqliteFormat format = JobFormat(SqliteMigrations());
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqliteConnection> connection,
                         SqliteConnection::Open(path, "", SqliteConnection::Mode::kWriter, &format));
  HPVMD_RETURN_IF_ERROR(Migrate(*connection, SqliteMigrations()));
  HPVMD_RETURN_IF_ERROR(connection->Begin());
  StatusOr<uint64_t> jobs = TenantRename(*connection, tenant, name).Make();
  const Status done = jobs.ok() ? connection->Commit() : jobs.status();
  if (!done.ok()) {
    connection->Rollback().IgnoreError();
    return done;
  }
  return jobs;
}

}  // namespace hpvm::server
