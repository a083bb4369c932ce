// SPDX-License-Identifier: Apache-2.0
#include "server/identity/identity_database.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/failpoint.h"
#include "server/sqlite/sqlite_connection.h"

namespace hpvm::server {
namespace {

// "hpvi", in the file's header, so that another application's file is not changed.
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

Status Damaged(std::string_view what, std::string_view key) {
  return DataLoss("The stored " + std::string(what) + " \"" + std::string(key) +
                  "\" is damaged. Restore identity.sqlite from a backup.");
}

}  // namespace

int64_t SumOfIdentityRow(std::string_view key, std::string_view secret_hash, std::string_view record) {
  Hasher hasher;
  hasher.AddField(key);
  hasher.AddField(secret_hash);
  hasher.AddField(record);
  int64_t sum;
  std::memcpy(&sum, hasher.Finish().bytes.data(), sizeof(sum));
  return sum;
}

IdentityDatabase::IdentityDatabase(std::unique_ptr<SqliteConnection> connection) : connection_(std::move(connection)) {}

IdentityDatabase::~IdentityDatabase() {
  if (!failure_.ok()) {
    connection_->SkipCheckpointAtClose();
  }
}

StatusOr<std::unique_ptr<IdentityDatabase>> IdentityDatabase::Open(const std::string& path, Disk& disk,
                                                                   const std::string& vfs) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<SqliteConnection> connection,
                         SqliteConnection::OpenOrCreate(path, disk, vfs, kFormat));
  std::unique_ptr<IdentityDatabase> database(new IdentityDatabase(std::move(connection)));
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
    // The write-ahead log holds the change and is synced. The checkpoint only keeps the log short, so its failure does
    // not matter here.
    connection_->Checkpoint(/*restart=*/true).IgnoreError();
  } else if (status.code() == absl::StatusCode::kDataLoss) {
    failure_ = Unavailable("The tenants' database failed (" + Message(status) +
                           "); its contents are known after the next start.");
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
    if (rows.Int(2) != SumOfIdentityRow(name, "", record) ||
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
    if (rows.Int(4) != SumOfIdentityRow(id, hash, record) || !secret_hash.has_value() ||
        !token.token.ParseFromArray(record.data(), static_cast<int>(record.size())) || token.token.id() != id ||
        token.token.tenant() != tenant) {
      return Damaged("token", id);
    }
    token.secret_hash = *secret_hash;
    contents.tokens.push_back(std::move(token));
  }
}

Status IdentityDatabase::PutRow(const v1::Tenant& tenant) {
  const std::string record = tenant.SerializeAsString();
  SqliteStatement put;
  HPVMD_RETURN_IF_ERROR(connection_->Prepare("INSERT OR REPLACE INTO tenants VALUES(?1, ?2, ?3)", &put));
  return put.Run(std::string_view(tenant.name()), SqlBytes{record}, SumOfIdentityRow(tenant.name(), "", record));
}

Status IdentityDatabase::PutRow(const StoredToken& token) {
  const std::string record = token.token.SerializeAsString();
  const std::string_view id = token.token.id(), hash = Raw(token.secret_hash);
  SqliteStatement put;
  HPVMD_RETURN_IF_ERROR(connection_->Prepare("INSERT OR REPLACE INTO tokens VALUES(?1, ?2, ?3, ?4, ?5)", &put));
  return put.Run(id, std::string_view(token.token.tenant()), SqlBytes{hash}, SqlBytes{record},
                 SumOfIdentityRow(id, hash, record));
}

Status IdentityDatabase::Put(const v1::Tenant& tenant, bool without_tokens) {
  return Transact([&]() -> Status {
    if (without_tokens) {
      SqliteStatement forget;
      HPVMD_RETURN_IF_ERROR(connection_->Prepare("DELETE FROM tokens WHERE tenant = ?1", &forget));
      HPVMD_RETURN_IF_ERROR(forget.Run(std::string_view(tenant.name())));
    }
    return PutRow(tenant);
  });
}

Status IdentityDatabase::Rename(const std::string& tenant, const std::string& name) {
  HPVMD_ASSIGN_OR_RETURN(IdentityContents contents, Load());
  const auto is_named = [](const std::string& wanted) {
    return [&wanted](const v1::Tenant& one) { return one.name() == wanted; };
  };
  const auto found = std::find_if(contents.tenants.begin(), contents.tenants.end(), is_named(tenant));
  if (found == contents.tenants.end()) {
    return NotFound("There is no tenant \"" + tenant + "\".");
  }
  if (std::any_of(contents.tenants.begin(), contents.tenants.end(), is_named(name))) {
    return AlreadyExists("There is a tenant \"" + name + "\" already.");
  }
  found->set_name(name);
  return Transact([&]() -> Status {
    SqliteStatement forget;
    HPVMD_RETURN_IF_ERROR(connection_->Prepare("DELETE FROM tenants WHERE name = ?1", &forget));
    HPVMD_RETURN_IF_ERROR(forget.Run(std::string_view(tenant)));
    HPVMD_RETURN_IF_ERROR(PutRow(*found));
    for (StoredToken& token : contents.tokens) {
      if (token.token.tenant() == tenant) {
        token.token.set_tenant(name);
        HPVMD_RETURN_IF_ERROR(PutRow(token));
      }
    }
    return absl::OkStatus();
  });
}

Status IdentityDatabase::Forget(const std::string& tenant) {
  return Transact([&]() -> Status {
    SqliteStatement forget;
    HPVMD_RETURN_IF_ERROR(connection_->Prepare("DELETE FROM tenants WHERE name = ?1", &forget));
    return forget.Run(std::string_view(tenant));
  });
}

Status IdentityDatabase::Put(const StoredToken& token, const std::vector<std::string>& forget_ids) {
  return Transact([&]() -> Status {
    SqliteStatement forget;
    HPVMD_RETURN_IF_ERROR(connection_->Prepare("DELETE FROM tokens WHERE id = ?1", &forget));
    for (const std::string& old : forget_ids) {
      HPVMD_RETURN_IF_ERROR(forget.Run(std::string_view(old)));
    }
    return PutRow(token);
  });
}

Status BackUpIdentity(const std::string& folder, const std::string& to) {
  return BackUpSqliteFile(folder + "/identity.sqlite", to + "/identity.sqlite");
}

}  // namespace hpvm::server
