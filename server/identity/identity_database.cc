// SPDX-License-Identifier: Apache-2.0
#include "server/identity/identity_database.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "base/failpoint.h"
#include "server/jobs/sqlite/sqlite_connection.h"

namespace hpvm::server {
namespace {

// "hpvi", in the file's header: what is not ours is not touched.
constexpr int64_t kApplicationId = 0x68707669;
constexpr int kVersion = 1;
constexpr SqliteFormat kFormat = {"tenants' database", kApplicationId, kVersion};

constexpr char kVersion1[] = R"sql(
CREATE TABLE tenants(name TEXT PRIMARY KEY, record BLOB NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE tokens(
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  secret_sha256 BLOB NOT NULL UNIQUE,
  record BLOB NOT NULL,
  sum INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX tokens_by_tenant ON tokens(tenant);
)sql";

// Of a row's contents and of which row it is: bytes that were changed or moved to another row are wrong.
int64_t SumOf(std::string_view key, std::string_view secret_hash, std::string_view record) {
  Hasher hasher;
  hasher.AddField(key);
  hasher.AddField(secret_hash);
  hasher.AddField(record);
  int64_t sum;
  std::memcpy(&sum, hasher.Finish().bytes.data(), sizeof(sum));
  return sum;
}

Status Damaged(std::string_view what, std::string_view key) {
  return DataLoss("The stored " + std::string(what) + " \"" + std::string(key) +
                  "\" is damaged. Restore identity.sqlite from a backup.");
}

}  // namespace

IdentityDatabase::IdentityDatabase(std::unique_ptr<SqliteConnection> connection) : connection_(std::move(connection)) {}

IdentityDatabase::~IdentityDatabase() {
  if (!failure_.ok()) {
    connection_->SkipCheckpointAtClose();
  }
}

StatusOr<std::unique_ptr<IdentityDatabase>> IdentityDatabase::Open(const std::string& path, Disk& disk,
                                                                   const std::string& vfs) {
  // So that the file is made with mode 0600; SQLite's log and index take it over.
  HPVMD_RETURN_IF_ERROR(disk.Open(path, Disk::Mode::kOpenOrCreate).status());
  HPVMD_RETURN_IF_ERROR(disk.SyncFolder(FolderOf(path)));
  StatusOr<std::unique_ptr<SqliteConnection>> connection =
      SqliteConnection::Open(path, vfs, SqliteConnection::Mode::kWriter, &kFormat);
  HPVMD_RETURN_IF_ERROR(While(connection.status(), "opening \"" + path + "\""));
  std::unique_ptr<IdentityDatabase> database(new IdentityDatabase(*std::move(connection)));
  HPVMD_RETURN_IF_ERROR(While(database->Migrate(), "opening \"" + path + "\""));
  return database;
}

Status IdentityDatabase::Migrate() {
  HPVMD_ASSIGN_OR_RETURN(const int64_t version, connection_->ReadVersion(kFormat));
  if (version == kVersion) {
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(connection_->Execute("PRAGMA application_id=" + std::to_string(kApplicationId)));
  return Transact([&] {
    HPVMD_RETURN_IF_ERROR(connection_->Execute(kVersion1));
    return connection_->Execute("PRAGMA user_version=" + std::to_string(kVersion));
  });
}

template <typename Change>
Status IdentityDatabase::Transact(Change change) {
  HPVMD_RETURN_IF_ERROR(failure_);
  HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("identity.write.before"));
  Status status = connection_->Begin();
  if (status.ok()) {
    status = change();
    status = status.ok() ? connection_->Commit() : status;
    if (!status.ok()) {
      connection_->Rollback().IgnoreError();
    }
  }
  if (status.ok()) {
    // The log holds it and is synced; that it stays short matters little enough for a failure to wait.
    connection_->Checkpoint(/*restart=*/true).IgnoreError();
  } else if (status.code() == absl::StatusCode::kDataLoss) {
    failure_ = Unavailable("The tenants' database failed (" + Message(status) +
                           "); what it holds is known after the next start.");
  }
  return status;
}

StatusOr<IdentityContents> IdentityDatabase::Load() {
  IdentityContents contents;
  SqliteStatement rows;
  HPVMD_RETURN_IF_ERROR(connection_->Prepare("SELECT name, record, sum FROM tenants ORDER BY name", &rows));
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const bool has_row, rows.Next());
    if (!has_row) {
      break;
    }
    v1::Tenant tenant;
    const std::string_view name = rows.Bytes(0), record = rows.Bytes(1);
    if (rows.Int(2) != SumOf(name, "", record) ||
        !tenant.ParseFromArray(record.data(), static_cast<int>(record.size())) || tenant.name() != name) {
      return Damaged("tenant", name);
    }
    contents.tenants.push_back(std::move(tenant));
  }
  HPVMD_RETURN_IF_ERROR(
      connection_->Prepare("SELECT id, tenant, secret_sha256, record, sum FROM tokens ORDER BY id", &rows));
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const bool has_row, rows.Next());
    if (!has_row) {
      return contents;
    }
    StoredToken token;
    const std::string_view id = rows.Bytes(0), tenant = rows.Bytes(1), hash = rows.Bytes(2), record = rows.Bytes(3);
    const std::optional<Sha256> secret_hash = Sha256FromRaw(hash);
    if (rows.Int(4) != SumOf(id, hash, record) || !secret_hash.has_value() ||
        !token.token.ParseFromArray(record.data(), static_cast<int>(record.size())) || token.token.id() != id ||
        token.token.tenant() != tenant) {
      return Damaged("token", id);
    }
    token.secret_hash = *secret_hash;
    contents.tokens.push_back(std::move(token));
  }
}

Status IdentityDatabase::Put(const v1::Tenant& tenant) {
  const std::string record = tenant.SerializeAsString();
  return Transact([&]() -> Status {
    SqliteStatement put;
    HPVMD_RETURN_IF_ERROR(connection_->Prepare("INSERT OR REPLACE INTO tenants VALUES(?1, ?2, ?3)", &put));
    return put.Run(std::string_view(tenant.name()), SqlBytes{record}, SumOf(tenant.name(), "", record));
  });
}

Status IdentityDatabase::Put(const StoredToken& token, const std::vector<std::string>& forget_ids) {
  const std::string record = token.token.SerializeAsString();
  const std::string_view id = token.token.id(), hash = Raw(token.secret_hash);
  return Transact([&]() -> Status {
    SqliteStatement forget, put;
    HPVMD_RETURN_IF_ERROR(connection_->Prepare("DELETE FROM tokens WHERE id = ?1", &forget));
    for (const std::string& old : forget_ids) {
      HPVMD_RETURN_IF_ERROR(forget.Run(std::string_view(old)));
    }
    HPVMD_RETURN_IF_ERROR(connection_->Prepare("INSERT OR REPLACE INTO tokens VALUES(?1, ?2, ?3, ?4, ?5)", &put));
    return put.Run(id, std::string_view(token.token.tenant()), SqlBytes{hash}, SqlBytes{record},
                   SumOf(id, hash, record));
  });
}

Status BackUpIdentity(const std::string& folder, const std::string& to) {
  return BackUpSqliteFile(folder + "/identity.sqlite", to + "/identity.sqlite");
}

}  // namespace hpvm::server
