// SPDX-License-Identifier: Apache-2.0
#include "server/hosts/shared_identity.h"

#include <chrono>
#include <thread>
#include <utility>

#include "server/hosts/cluster_host.h"

namespace hpvm::server {
namespace {

using cluster::SqlBlob;
using cluster::SqlRow;
using cluster::SqlRows;
using cluster::SqlSession;
using cluster::SqlStatement;

constexpr char kTables[] = R"sql(
CREATE TABLE cluster_identity(name TEXT PRIMARY KEY, value BIGINT NOT NULL);
INSERT INTO cluster_identity(name, value) VALUES('version', 0);
CREATE TABLE cluster_identity_tenants(tenant TEXT PRIMARY KEY, record BYTEA NOT NULL);
CREATE TABLE cluster_identity_tokens(
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  secret_sha256 BYTEA NOT NULL UNIQUE,
  record BYTEA NOT NULL);
)sql";

constexpr SqlStatement kVersion{"SELECT value FROM cluster_identity WHERE name = 'version'"};
constexpr SqlStatement kLockVersion{"SELECT value FROM cluster_identity WHERE name = 'version' FOR UPDATE"};
constexpr SqlStatement kNextVersion{"UPDATE cluster_identity SET value = value + 1 WHERE name = 'version'"};
constexpr SqlStatement kTenants{"SELECT tenant, record FROM cluster_identity_tenants ORDER BY tenant"};
constexpr SqlStatement kTokens{"SELECT id, tenant, secret_sha256, record FROM cluster_identity_tokens ORDER BY id"};
constexpr SqlStatement kPutTenant{
    "INSERT INTO cluster_identity_tenants(tenant, record) VALUES(?1, ?2) ON CONFLICT(tenant) DO UPDATE SET "
    "record = excluded.record"};
constexpr SqlStatement kDropTenant{"DELETE FROM cluster_identity_tenants WHERE tenant = ?1"};
constexpr SqlStatement kPutToken{
    "INSERT INTO cluster_identity_tokens(id, tenant, secret_sha256, record) VALUES(?1, ?2, ?3, ?4) ON CONFLICT(id) DO "
    "UPDATE SET tenant = excluded.tenant, secret_sha256 = excluded.secret_sha256, record = excluded.record"};
constexpr SqlStatement kDropToken{"DELETE FROM cluster_identity_tokens WHERE id = ?1"};
constexpr SqlStatement kDropTokens{"DELETE FROM cluster_identity_tokens WHERE tenant = ?1"};

// TryLock's name for the transaction in which the tables are made.
constexpr int64_t kMigrationLock = 0x6870766d02;
constexpr int kTriesMax = 100;
constexpr std::chrono::milliseconds kBetweenTries{50};

Status Damaged(const std::string& what, const std::string& name) {
  return DataLoss("The " + what + " \"" + name + "\" in the cluster's database is damaged.");
}

StatusOr<int64_t> ReadVersion(SqlSession& session, const SqlStatement& statement) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, session.Run(statement));
  return rows.empty() ? StatusOr<int64_t>(DataLoss("The table cluster_identity has no version.")) : rows[0].Int(0);
}

StatusOr<v1::Tenant> TenantOf(const SqlRow& row) {
  v1::Tenant tenant;
  return tenant.ParseFromString(row.Blob(1)) && tenant.name() == row.Text(0) ? StatusOr<v1::Tenant>(std::move(tenant))
                                                                             : Damaged("tenant", row.Text(0));
}

StatusOr<StoredToken> TokenOf(const SqlRow& row) {
  StoredToken token;
  const std::optional<Sha256> hash = Sha256FromRaw(row.Blob(2));
  if (!hash.has_value() || !token.token.ParseFromString(row.Blob(3)) || token.token.id() != row.Text(0) ||
      token.token.tenant() != row.Text(1)) {
    return Damaged("token", row.Text(0));
  }
  token.secret_hash = *hash;
  return token;
}

}  // namespace

StatusOr<std::unique_ptr<SharedIdentity>> SharedIdentity::Open(Connect connect) {
  std::unique_ptr<SharedIdentity> identity(new SharedIdentity(std::move(connect)));
  HPVMD_RETURN_IF_ERROR(identity->Migrate());
  return identity;
}

// Several hosts may start at once: one of them makes the tables, and the others wait.
Status SharedIdentity::Migrate() {
  for (int tries = 1;; ++tries) {
    const Status made = Transact([](SqlSession& session) -> Status {
      HPVMD_ASSIGN_OR_RETURN(const bool exists, session.HasTable("cluster_identity"));
      if (exists) {
        return absl::OkStatus();
      }
      HPVMD_ASSIGN_OR_RETURN(const bool is_mine, session.TryLock(kMigrationLock));
      if (!is_mine) {
        return Aborted("Another daemon makes the tables of the cluster's tenants.");
      }
      HPVMD_ASSIGN_OR_RETURN(const bool was_made, session.HasTable("cluster_identity"));
      return was_made ? absl::OkStatus() : session.Execute(kTables);
    });
    if (!absl::IsAborted(made) || tries == kTriesMax) {
      return made;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

Status SharedIdentity::Transact(const Step& step) {
  if (session_ == nullptr || session_->is_broken()) {
    session_.reset();
    HPVMD_ASSIGN_OR_RETURN(session_, connect_());
  }
  Status done = session_->Begin();
  if (!done.ok()) {
    return done;
  }
  done = step(*session_);
  if (done.ok()) {
    return session_->Commit();
  }
  session_->Rollback();
  return done;
}

Status SharedIdentity::Change(const Step& step) {
  HPVMD_RETURN_IF_ERROR(Transact([&](SqlSession& session) -> Status {
    HPVMD_ASSIGN_OR_RETURN(const int64_t version, ReadVersion(session, kLockVersion));
    if (version != version_) {
      return Aborted("Another host has changed the cluster's tenants or tokens.");
    }
    HPVMD_RETURN_IF_ERROR(step(session));
    HPVMD_RETURN_IF_ERROR(session.Run(kNextVersion).status());
    return session.Notify(kIdentityChannel, "");
  }));
  ++version_;
  return absl::OkStatus();
}

StatusOr<IdentityContents> SharedIdentity::Load() {
  IdentityContents contents;
  int64_t version = -1;
  HPVMD_RETURN_IF_ERROR(Transact([&](SqlSession& session) -> Status {
    // The lock keeps the three reads from seeing different versions.
    HPVMD_ASSIGN_OR_RETURN(version, ReadVersion(session, kLockVersion));
    HPVMD_ASSIGN_OR_RETURN(const SqlRows tenants, session.Run(kTenants));
    for (const SqlRow& row : tenants) {
      HPVMD_ASSIGN_OR_RETURN(v1::Tenant tenant, TenantOf(row));
      contents.tenants.push_back(std::move(tenant));
    }
    HPVMD_ASSIGN_OR_RETURN(const SqlRows tokens, session.Run(kTokens));
    for (const SqlRow& row : tokens) {
      HPVMD_ASSIGN_OR_RETURN(StoredToken token, TokenOf(row));
      contents.tokens.push_back(std::move(token));
    }
    return absl::OkStatus();
  }));
  version_ = version;
  return contents;
}

StatusOr<bool> SharedIdentity::IsCurrent() {
  int64_t version = -1;
  HPVMD_RETURN_IF_ERROR(Transact([&](SqlSession& session) -> Status {
    HPVMD_ASSIGN_OR_RETURN(version, ReadVersion(session, kVersion));
    return absl::OkStatus();
  }));
  return version == version_;
}

Status SharedIdentity::Put(const v1::Tenant& tenant, bool without_tokens) {
  return Change([&](SqlSession& session) -> Status {
    if (without_tokens) {
      HPVMD_RETURN_IF_ERROR(session.Run(kDropTokens, {tenant.name()}).status());
    }
    return session.Run(kPutTenant, {tenant.name(), SqlBlob{tenant.SerializeAsString()}}).status();
  });
}

Status SharedIdentity::Forget(const std::string& tenant) {
  return Change([&](SqlSession& session) { return session.Run(kDropTenant, {tenant}).status(); });
}

Status SharedIdentity::Put(const StoredToken& token, const std::vector<std::string>& forget_ids) {
  return Change([&](SqlSession& session) -> Status {
    for (const std::string& id : forget_ids) {
      HPVMD_RETURN_IF_ERROR(session.Run(kDropToken, {id}).status());
    }
    return session
        .Run(kPutToken, {token.token.id(), token.token.tenant(), SqlBlob{std::string(Raw(token.secret_hash))},
                         SqlBlob{token.token.SerializeAsString()}})
        .status();
  });
}

OpenIdentityStore SharedIdentityOf(const Config& config) {
  // An agent's user of the database reads no tokens.
  if (config.cluster_database.empty() || config.cluster_role == "agent") {
    return nullptr;
  }
  return [connect = ConnectTo(config)]() -> StatusOr<std::unique_ptr<IdentityStore>> {
    return SharedIdentity::Open(connect);
  };
}

}  // namespace hpvm::server
