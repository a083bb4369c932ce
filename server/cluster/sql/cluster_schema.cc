// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/sql/cluster_schema.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

namespace hpvm::server::cluster {
namespace {

// Times are nanoseconds of the store's clock (cluster_transaction.h). States are the numbers of JobState, which are
// never given another meaning. A tenant's row is locked by whoever changes the tenant's jobs, needs, waits or events.
//
// cluster_needs: one row for each different Needs of a tenant's live jobs, so that a claim compares a host with a few
//   rows and not with each waiting job. `waiting` and `live` count the jobs.
// cluster_jobs.ready: 1 for a waiting job that has no pending dependencies, no delay and no hold; claims read only
// these. cluster_waits: a job (`waiter`) that comes after another one (`job`) that has not ended. cluster_ended: jobs
// that have ended and whose dependents do not know it yet.
constexpr char kVersion1[] = R"sql(
CREATE TABLE cluster_meta(name TEXT PRIMARY KEY, value BIGINT NOT NULL);
INSERT INTO cluster_meta(name, value) VALUES('version', 1), ('least_version', 1), ('incarnation', 0),
  ('clock_offset', 0), ('clock_last', 0);
CREATE TABLE cluster_tenants(
  tenant TEXT PRIMARY KEY,
  weight BIGINT NOT NULL,
  waiting_max BIGINT NOT NULL,
  running_max BIGINT NOT NULL,
  disabled BIGINT NOT NULL,
  clock DOUBLE PRECISION NOT NULL,
  waiting BIGINT NOT NULL,
  running BIGINT NOT NULL,
  events BIGINT NOT NULL);
CREATE INDEX cluster_tenants_waiting ON cluster_tenants(clock, tenant) WHERE waiting > 0;
CREATE INDEX cluster_tenants_running ON cluster_tenants(clock) WHERE running > 0;
CREATE TABLE cluster_hosts(
  host TEXT PRIMARY KEY,
  process TEXT NOT NULL,
  joins BIGINT NOT NULL,
  has TEXT NOT NULL,
  memory BIGINT NOT NULL,
  incarnation BIGINT NOT NULL,
  lease_end BIGINT NOT NULL,
  intake BIGINT NOT NULL,
  has_left BIGINT NOT NULL,
  last_claim BIGINT NOT NULL,
  settled BIGINT NOT NULL,
  has_number BIGINT NOT NULL);
CREATE TABLE cluster_needs(
  id BIGSERIAL PRIMARY KEY,
  tenant TEXT NOT NULL,
  needs TEXT NOT NULL,
  waiting BIGINT NOT NULL,
  live BIGINT NOT NULL,
  UNIQUE(tenant, needs));
CREATE TABLE cluster_jobs(
  sequence BIGSERIAL PRIMARY KEY,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  state BIGINT NOT NULL,
  ready BIGINT NOT NULL,
  held BIGINT NOT NULL,
  attempts BIGINT NOT NULL,
  attempts_max BIGINT NOT NULL,
  lost BIGINT NOT NULL,
  fence BIGINT NOT NULL,
  host TEXT NOT NULL,
  incarnation BIGINT NOT NULL,
  claim BIGINT NOT NULL,
  ended_fence BIGINT NOT NULL,
  cancel_requested BIGINT NOT NULL,
  pending BIGINT NOT NULL,
  dependents BIGINT NOT NULL,
  priority BIGINT NOT NULL,
  memory BIGINT NOT NULL,
  needs BIGINT NOT NULL,
  submitted BIGINT NOT NULL,
  started BIGINT NOT NULL,
  ended BIGINT NOT NULL,
  not_before BIGINT NOT NULL,
  deadline BIGINT NOT NULL,
  hold BYTEA NOT NULL,
  record BYTEA NOT NULL,
  request_hash BYTEA NOT NULL,
  request BYTEA NOT NULL,
  result BYTEA NOT NULL,
  UNIQUE(tenant, id),
  UNIQUE(tenant, idempotency_key));
CREATE INDEX cluster_jobs_ready ON cluster_jobs(tenant, needs, priority DESC, sequence) WHERE state = 0 AND ready = 1;
CREATE INDEX cluster_jobs_delayed ON cluster_jobs(tenant, not_before)
  WHERE state = 0 AND ready = 0 AND pending = 0 AND held = 0;
CREATE INDEX cluster_jobs_running ON cluster_jobs(host, incarnation) WHERE state = 1;
CREATE INDEX cluster_jobs_deadline ON cluster_jobs(deadline) WHERE state = 0 AND deadline < 9223372036854775807;
CREATE INDEX cluster_jobs_listed ON cluster_jobs(tenant, sequence);
CREATE INDEX cluster_jobs_in_state ON cluster_jobs(tenant, state, sequence);
CREATE INDEX cluster_jobs_ended ON cluster_jobs(ended) WHERE state >= 2;
CREATE TABLE cluster_waits(
  id BIGSERIAL PRIMARY KEY,
  tenant TEXT NOT NULL,
  job TEXT NOT NULL,
  waiter TEXT NOT NULL,
  condition BIGINT NOT NULL);
CREATE INDEX cluster_waits_job ON cluster_waits(tenant, job);
CREATE TABLE cluster_ended(tenant TEXT NOT NULL, job TEXT NOT NULL, PRIMARY KEY(tenant, job));
CREATE TABLE cluster_events(
  tenant TEXT NOT NULL,
  number BIGINT NOT NULL,
  id TEXT NOT NULL,
  state BIGINT NOT NULL,
  fence BIGINT NOT NULL,
  PRIMARY KEY(tenant, number));
)sql";

// A stolen agent's password reaches the requests and results of jobs, can claim and end them wrongly, and can cancel
// and forget them. It cannot submit jobs, raise a tenant's limits, or release held jobs.
constexpr char kAgentGrants[] = R"sql(
GRANT SELECT, UPDATE ON cluster_meta TO ROLE;
GRANT SELECT, INSERT, UPDATE ON cluster_hosts TO ROLE;
GRANT SELECT, UPDATE(clock, waiting, running, events) ON cluster_tenants TO ROLE;
GRANT SELECT, UPDATE, DELETE ON cluster_needs TO ROLE;
GRANT SELECT, DELETE ON cluster_jobs TO ROLE;
GRANT UPDATE(state, ready, attempts, lost, fence, host, incarnation, claim, ended_fence, cancel_requested,
  pending, dependents, started, ended, not_before, record, result) ON cluster_jobs TO ROLE;
GRANT SELECT, DELETE ON cluster_waits TO ROLE;
GRANT SELECT, INSERT, DELETE ON cluster_ended TO ROLE;
GRANT SELECT, INSERT, DELETE ON cluster_events TO ROLE;
)sql";

constexpr SqlStatement kFindTables{
    "SELECT name, value FROM cluster_meta WHERE name = 'version' OR name = 'least_version' ORDER BY name"};

// TryLock's name for the transaction in which tables are made.
constexpr int64_t kMigrationLock = 0x6870766d01;

// Tries that wait for another daemon, which makes the tables, and the time between two.
constexpr int kTriesMax = 100;
constexpr std::chrono::milliseconds kBetweenTries{50};

}  // namespace

StatusOr<ClusterSchema> ReadClusterSchema(SqlSession& session) {
  HPVMD_ASSIGN_OR_RETURN(const bool exists, session.HasTable("cluster_meta"));
  if (!exists) {
    return ClusterSchema();
  }
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, session.Run(kFindTables));
  if (rows.size() != 2) {
    return DataLoss("The table cluster_meta has no version; it was changed by hand, or is of another program.");
  }
  return ClusterSchema{.version = rows[1].Int(1), .least_version = rows[0].Int(1)};
}

namespace {

// Makes the tables in a transaction that excludes other daemons. kAborted: another one is at it.
Status Migrate(SqlSession& session) {
  HPVMD_ASSIGN_OR_RETURN(const bool is_mine, session.TryLock(kMigrationLock));
  if (!is_mine) {
    return Aborted("Another daemon makes the tables of the cluster's store.");
  }
  HPVMD_ASSIGN_OR_RETURN(const ClusterSchema schema, ReadClusterSchema(session));
  return schema.version == 0 ? session.Execute(kVersion1) : absl::OkStatus();
}

}  // namespace

Status MigrateClusterSchema(SqlSession& session) {
  for (int tries = 1;; ++tries) {
    HPVMD_ASSIGN_OR_RETURN(const ClusterSchema schema, ReadClusterSchema(session));
    if (schema.least_version > kClusterSchemaVersion) {
      return FailedPrecondition("The tables of the cluster's store have version " + std::to_string(schema.version) +
                                " and need a release that knows version " + std::to_string(schema.least_version) +
                                "; this one knows " + std::to_string(kClusterSchemaVersion) +
                                ". Start the later release.");
    }
    if (schema.version >= kClusterSchemaVersion) {
      return absl::OkStatus();
    }
    HPVMD_RETURN_IF_ERROR(session.Begin());
    Status done = Migrate(session);
    if (done.ok()) {
      done = session.Commit();
    } else {
      session.Rollback();
    }
    if (!absl::IsAborted(done) || tries == kTriesMax) {
      HPVMD_RETURN_IF_ERROR(done);
      continue;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

Status GrantToAgents(SqlSession& session, const std::string& role) {
  const bool is_name = !role.empty() && role.size() < 64 && std::ranges::all_of(role, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (!is_name) {
    return InvalidArgument("The role's name (\"" + role +
                           "\") is not made of up to 63 small letters, digits and underscores.");
  }
  std::string statements = kAgentGrants;
  for (size_t at = statements.find("ROLE"); at != std::string::npos; at = statements.find("ROLE", at)) {
    statements.replace(at, 4, "\"" + role + "\"");
  }
  return session.Execute(statements);
}

}  // namespace hpvm::server::cluster
