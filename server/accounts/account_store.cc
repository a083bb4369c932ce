// SPDX-License-Identifier: Apache-2.0
#include "server/accounts/account_store.h"

#include <algorithm>

#include "base/failpoint.h"
#include "server/sqlite/sqlite_connection.h"

namespace hpvm::server {
namespace {

// "hpva" in the file's header; files of other applications are not touched.
constexpr int64_t kApplicationId = 0x68707661;
constexpr int kVersion = 1;
constexpr SqliteFormat kFormat = {"accounts", kApplicationId, kVersion};

// Bound of the amounts of one batch, far below SQLite's largest integer, so that the sum of two never becomes a
// floating-point number.
constexpr uint64_t kAmountMax = uint64_t{1} << 61;

constexpr char kVersion1[] = R"sql(
CREATE TABLE accounts(
  day INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  device_ns INTEGER NOT NULL,
  compile_ns INTEGER NOT NULL,
  requests INTEGER NOT NULL,
  request_bytes INTEGER NOT NULL,
  jobs_succeeded INTEGER NOT NULL,
  jobs_failed INTEGER NOT NULL,
  jobs_cancelled INTEGER NOT NULL,
  runs INTEGER NOT NULL,
  PRIMARY KEY(day, tenant)) WITHOUT ROWID;
CREATE INDEX accounts_by_tenant ON accounts(tenant, day);
CREATE TABLE batches(id INTEGER PRIMARY KEY CHECK(id = 1), count INTEGER NOT NULL);
INSERT INTO batches VALUES(1, 0);
)sql";

constexpr const char* kColumns[] = {"device_ns",      "compile_ns",  "requests",       "request_bytes",
                                    "jobs_succeeded", "jobs_failed", "jobs_cancelled", "runs"};
static_assert(std::size(kColumns) == kAccountFields);

std::string AddSql() {
  std::string sql = "INSERT INTO accounts VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO UPDATE SET ";
  for (const char* column : kColumns) {
    const std::string name = column;
    sql += (name == kColumns[0] ? "" : ", ") + name + " = MIN(" + name + " + excluded." + name + ", " +
           std::to_string(kAmountMax) + ")";
  }
  return sql;
}

// Returns true when the file exists.
StatusOr<bool> Exists(Disk& disk, const std::string& path) {
  const StatusOr<std::unique_ptr<DiskFile>> file = disk.Open(path, Disk::Mode::kRead);
  if (absl::IsNotFound(file.status())) {
    return false;
  }
  HPVMD_RETURN_IF_ERROR(file.status());
  return true;
}

}  // namespace

AccountStore::AccountStore(std::unique_ptr<SqliteConnection> connection) : connection_(std::move(connection)) {}

AccountStore::~AccountStore() {
  if (has_failed_) {
    connection_->SkipCheckpointAtClose();
  }
}

StatusOr<std::unique_ptr<AccountStore>> AccountStore::Open(const std::string& path, Disk& disk,
                                                           const std::string& vfs) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<SqliteConnection> connection,
                         SqliteConnection::OpenOrCreate(path, disk, vfs, kFormat));
  std::unique_ptr<AccountStore> store(new AccountStore(std::move(connection)));
  HPVMD_RETURN_IF_ERROR(While(store->Migrate(), "opening \"" + path + "\""));
  return store;
}

Status AccountStore::Migrate() {
  HPVMD_ASSIGN_OR_RETURN(const int64_t version, connection_->ReadVersion(kFormat));
  if (version != kVersion) {
    HPVMD_RETURN_IF_ERROR(connection_->Execute("PRAGMA application_id=" + std::to_string(kApplicationId)));
    HPVMD_RETURN_IF_ERROR(Transact([&] {
      HPVMD_RETURN_IF_ERROR(connection_->Execute(kVersion1));
      return connection_->Execute("PRAGMA user_version=" + std::to_string(kVersion));
    }));
  }
  HPVMD_ASSIGN_OR_RETURN(const int64_t batches, connection_->QueryInt("SELECT count FROM batches"));
  batches_ = static_cast<uint64_t>(batches);
  return absl::OkStatus();
}

template <typename Change>
Status AccountStore::Transact(Change change) {
  Status status = connection_->Begin();
  if (status.ok()) {
    status = change();
    status = status.ok() ? connection_->Commit() : status;
    if (!status.ok()) {
      connection_->Rollback().IgnoreError();
    }
  }
  if (status.ok()) {
    connection_->Checkpoint(/*restart=*/false).IgnoreError();  // The write-ahead log holds the batch, and is synced.
  }
  has_failed_ |= absl::IsDataLoss(status);
  return status;
}

Status AccountStore::Add(const AccountUses& uses) {
  HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("accounts.write.before"));
  HPVMD_RETURN_IF_ERROR(Transact([&]() -> Status {
    SqliteStatement add;
    HPVMD_RETURN_IF_ERROR(connection_->Prepare(AddSql(), &add));
    for (const auto& [key, use] : uses) {
      const auto amount = [&use = use](AccountField field) { return std::min(use[field], kAmountMax); };
      HPVMD_RETURN_IF_ERROR(add.Run(key.first, std::string_view(key.second), amount(kDeviceNs), amount(kCompileNs),
                                    amount(kRequestCount), amount(kRequestBytes), amount(kJobsSucceeded),
                                    amount(kJobsFailed), amount(kJobsCancelled), amount(kRuns)));
    }
    return connection_->Execute("UPDATE batches SET count = count + 1");
  }));
  ++batches_;
  return absl::OkStatus();
}

Status AccountStore::Prune(uint64_t days_max, uint64_t entries_max) {
  return Transact([&]() -> Status {
    SqliteStatement days, entries;
    HPVMD_RETURN_IF_ERROR(connection_->Prepare(
        "DELETE FROM accounts WHERE day < (SELECT MIN(day) FROM (SELECT DISTINCT day FROM accounts ORDER BY day DESC "
        "LIMIT ?1))",
        &days));
    HPVMD_RETURN_IF_ERROR(days.Run(days_max));
    HPVMD_RETURN_IF_ERROR(connection_->Prepare(
        "DELETE FROM accounts WHERE (day, tenant) IN (SELECT day, tenant FROM accounts ORDER BY day, tenant LIMIT "
        "MAX(0, (SELECT COUNT(*) FROM accounts) - ?1))",
        &entries));
    return entries.Run(entries_max);
  });
}

StatusOr<std::vector<std::pair<AccountKey, AccountUse>>> ReadAccounts(const std::string& path,
                                                                      const AccountQuery& query, Disk& disk,
                                                                      const std::string& vfs) {
  std::vector<std::pair<AccountKey, AccountUse>> found;
  HPVMD_ASSIGN_OR_RETURN(const bool exists, Exists(disk, path));
  if (!exists) {
    return found;
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqliteConnection> connection,
                         SqliteConnection::Open(path, vfs, SqliteConnection::Mode::kReader, &kFormat));
  HPVMD_ASSIGN_OR_RETURN(const int64_t version, connection->ReadVersion(kFormat));
  if (version == 0) {
    return found;  // The file is being made.
  }
  const std::string columns =
      "SELECT day, tenant, device_ns, compile_ns, requests, request_bytes, jobs_succeeded, jobs_failed, "
      "jobs_cancelled, runs FROM accounts ";
  const bool goes_on = !query.after.second.empty() && query.after.first >= query.first_day;
  SqliteStatement rows;
  if (query.tenant.empty()) {
    HPVMD_RETURN_IF_ERROR(connection->Prepare(
        columns + "WHERE (day, tenant) > (?1, ?2) AND day <= ?3 ORDER BY day, tenant LIMIT ?4", &rows));
    rows.Start(goes_on ? query.after.first : query.first_day, std::string_view(goes_on ? query.after.second : ""),
               query.last_day, query.count_max);
  } else {
    HPVMD_RETURN_IF_ERROR(
        connection->Prepare(columns + "WHERE tenant = ?1 AND day >= ?2 AND day <= ?3 ORDER BY day LIMIT ?4", &rows));
    rows.Start(std::string_view(query.tenant), goes_on ? uint64_t{query.after.first} + 1 : query.first_day,
               query.last_day, query.count_max);
  }
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const bool has_row, rows.Next());
    if (!has_row) {
      return found;
    }
    auto& [key, use] = found.emplace_back();
    key = {static_cast<uint32_t>(rows.Int(0)), std::string(rows.Bytes(1))};
    for (size_t i = 0; i < kAccountFields; ++i) {
      use[i] = static_cast<uint64_t>(rows.Int(static_cast<int>(2 + i)));
    }
  }
}

Status BackUpAccounts(const std::string& folder, const std::string& to) {
  return BackUpSqliteFile(folder + kAccountsFile, to + kAccountsFile);
}

}  // namespace hpvm::server
