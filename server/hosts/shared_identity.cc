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
CREATE TABLE cluster_identity(name TEXT PRIMARY KEY, value BIGINT NOT NULL, tag BIGINT NOT NULL);
INSERT INTO cluster_identity(name, value, tag) VALUES('version', 0, 0), ('least_format', 1, 0);
CREATE TABLE cluster_identity_tenants(tenant TEXT PRIMARY KEY, record BYTEA NOT NULL, sum BIGINT NOT NULL);
CREATE TABLE cluster_identity_tokens(
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  secret_sha256 BYTEA NOT NULL UNIQUE,
  record BYTEA NOT NULL,
  sum BIGINT NOT NULL);
)sql";

constexpr SqlStatement kLeastFormat{"SELECT value FROM cluster_identity WHERE name = 'least_format'"};
constexpr SqlStatement kVersion{"SELECT value, tag FROM cluster_identity WHERE name = 'version'"};
constexpr SqlStatement kLockVersion{"SELECT value, tag FROM cluster_identity WHERE name = 'version' FOR UPDATE"};
constexpr SqlStatement kSetVersion{"UPDATE cluster_identity SET value = ?1, tag = ?2 WHERE name = 'version'"};
constexpr SqlStatement kTenants{"SELECT tenant, record, sum FROM cluster_identity_tenants ORDER BY tenant"};
constexpr SqlStatement kTokens{
    "SELECT id, tenant, secret_sha256, record, sum FROM cluster_identity_tokens ORDER BY id"};
constexpr SqlStatement kPutTenant{
    "INSERT INTO cluster_identity_tenants(tenant, record, sum) VALUES(?1, ?2, ?3) ON CONFLICT(tenant) DO UPDATE SET "
    "record = excluded.record, sum = excluded.sum"};
constexpr SqlStatement kDropTenant{"DELETE FROM cluster_identity_tenants WHERE tenant = ?1"};
constexpr SqlStatement kPutToken{
    "INSERT INTO cluster_identity_tokens(id, tenant, secret_sha256, record, sum) VALUES(?1, ?2, ?3, ?4, ?5) ON "
    "CONFLICT(id) DO UPDATE SET tenant = excluded.tenant, secret_sha256 = excluded.secret_sha256, "
    "record = excluded.record, sum = excluded.sum"};
constexpr SqlStatement kDropToken{"DELETE FROM cluster_identity_tokens WHERE id = ?1"};
constexpr SqlStatement kDropTokens{"DELETE FROM cluster_identity_tokens WHERE tenant = ?1"};

// The format of the tables. A later release that this one cannot work with sets a larger least_format.
constexpr int64_t kFormat = 1;

// TryLock's name for the transaction in which the tables are made.
constexpr int64_t kMigrationLock = 0x6870766d02;
constexpr int kTriesMax = 100;
constexpr std::chrono::milliseconds kBetweenTries{50};

Status Damaged(const std::string& what, const std::string& name) {
  return DataLoss("The " + what + " \"" + name +
                  "\" in the cluster's database is damaged. Restore the database from a backup.");
}

StatusOr<IdentityVersion> ReadVersion(SqlSession& session, const SqlStatement& statement) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, session.Run(statement));
  if (rows.empty()) {
    return DataLoss("The table cluster_identity has no version; it was changed by hand, or is of another program.");
  }
  return IdentityVersion{.number = rows[0].Int(0), .tag = rows[0].Int(1)};
}

Status CheckFormat(SqlSession& session) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, session.Run(kLeastFormat));
  const int64_t least = rows.empty() ? 0 : rows[0].Int(0);
  if (least > kFormat) {
    return FailedPrecondition("The tables of the cluster's tenants need a release that knows format " +
                              std::to_string(least) + "; this one knows " + std::to_string(kFormat) +
                              ". Start the later release.");
  }
  return absl::OkStatus();
}

StatusOr<v1::Tenant> TenantOf(const SqlRow& row) {
  v1::Tenant tenant;
  const std::string &name = row.Text(0), &record = row.Blob(1);
  if (row.Int(2) != SumOfIdentityRow(name, "", record) || !tenant.ParseFromString(record) || tenant.name() != name) {
    return Damaged("tenant", name);
  }
  return tenant;
}

StatusOr<StoredToken> TokenOf(const SqlRow& row) {
  StoredToken token;
  const std::string &id = row.Text(0), &record = row.Blob(3);
  const std::optional<Sha256> hash = Sha256FromRaw(row.Blob(2));
  if (row.Int(4) != SumOfIdentityRow(id, row.Blob(2), record) || !hash.has_value() ||
      !token.token.ParseFromString(record) || token.token.id() != id || token.token.tenant() != row.Text(1)) {
    return Damaged("token", id);
  }
  token.secret_hash = *hash;
  return token;
}

}  // namespace

StatusOr<std::unique_ptr<SharedIdentity>> SharedIdentity::Open(Connect connect, Rng& rng) {
  std::unique_ptr<SharedIdentity> identity(new SharedIdentity(std::move(connect), rng));
  HPVMD_ASSIGN_OR_RETURN(identity->session_, identity->connect_());
  HPVMD_RETURN_IF_ERROR(identity->Migrate());
  return identity;
}

// Several hosts may start at once: one of them makes the tables, and the others wait.
Status SharedIdentity::Migrate() {
  for (int tries = 1;; ++tries) {
    const Status made = Transact([](SqlSession& session) -> Status {
      HPVMD_ASSIGN_OR_RETURN(const bool exists, session.HasTable("cluster_identity"));
      if (exists) {
        return CheckFormat(session);
      }
      HPVMD_ASSIGN_OR_RETURN(const bool is_mine, session.TryLock(kMigrationLock));
      if (!is_mine) {
        return Aborted("Another daemon makes the tables of the cluster's tenants.");
      }
      HPVMD_ASSIGN_OR_RETURN(const bool was_made, session.HasTable("cluster_identity"));
      return was_made ? CheckFormat(session) : session.Execute(kTables);
    });
    if (!absl::IsAborted(made) || tries == kTriesMax) {
      return made;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

Status SharedIdentity::Begin() {
  for (int tries = 1;; ++tries) {
    if (session_ == nullptr || session_->is_broken()) {
      session_ = nullptr;
      StatusOr<std::unique_ptr<SqlSession>> opened = connect_();
      if (!opened.ok()) {
        // Callers try again; that the password is wrong, say, may be mended meanwhile.
        return Unavailable("The database of the cluster is not available: " + Message(opened.status()));
      }
      session_ = *std::move(opened);
    }
    Status begun = session_->Begin();
    // The second try is for a connection that was lost while nobody used it.
    if (begun.ok() || !session_->is_broken() || tries == 2) {
      return begun;
    }
  }
}

Status SharedIdentity::Transact(const Step& step) {
  HPVMD_RETURN_IF_ERROR(Begin());
  Status done = step(*session_);
  if (done.ok()) {
    return session_->Commit();
  }
  session_->Rollback();
  return done;
}

Status SharedIdentity::Change(const Step& step) {
  const IdentityVersion next = {.number = version_.number + 1, .tag = static_cast<int64_t>(rng_.Next())};
  HPVMD_RETURN_IF_ERROR(Transact([&](SqlSession& session) -> Status {
    HPVMD_ASSIGN_OR_RETURN(const IdentityVersion version, ReadVersion(session, kLockVersion));
    if (version != version_) {
      return Aborted("Another host has changed the cluster's tenants or tokens.");
    }
    HPVMD_RETURN_IF_ERROR(step(session));
    HPVMD_RETURN_IF_ERROR(session.Run(kSetVersion, {next.number, next.tag}).status());
    return session.Notify(kIdentityChannel, "");
  }));
  version_ = next;
  return absl::OkStatus();
}

StatusOr<IdentityContents> SharedIdentity::Load() {
  IdentityContents contents;
  IdentityVersion version;
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
  IdentityVersion version;
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
    const std::string& name = tenant.name();
    const std::string record = tenant.SerializeAsString();
    return session.Run(kPutTenant, {name, SqlBlob{record}, SumOfIdentityRow(name, "", record)}).status();
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
    const std::string &id = token.token.id(), record = token.token.SerializeAsString();
    const std::string hash(Raw(token.secret_hash));
    return session
        .Run(kPutToken, {id, token.token.tenant(), SqlBlob{hash}, SqlBlob{record}, SumOfIdentityRow(id, hash, record)})
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
