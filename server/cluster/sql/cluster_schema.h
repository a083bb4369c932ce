// SPDX-License-Identifier: Apache-2.0
// The tables of the cluster's store, and their versions.
#ifndef HPVMD_SERVER_CLUSTER_SQL_CLUSTER_SCHEMA_H_
#define HPVMD_SERVER_CLUSTER_SQL_CLUSTER_SCHEMA_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "server/cluster/sql/sql_session.h"

namespace hpvm::server::cluster {

// A schema has two numbers, because daemons of two releases share a database while they are replaced one by one.
// `version` grows with each change. `least_version` is that of the oldest release that may still use the tables: a
// change first adds what the new release needs (expand), and a later release removes what the old one used (contract).
struct ClusterSchema {
  int64_t version = 0;  // 0: there are no tables.
  int64_t least_version = 0;
};

inline constexpr int64_t kClusterSchemaVersion = 1;

// Reads the numbers from the database.
StatusOr<ClusterSchema> ReadClusterSchema(SqlSession& session);

// Makes the tables, or brings older ones to this release's version. Several daemons may call it at once.
// kFailedPrecondition: the tables are of a later release that this one cannot work with.
Status MigrateClusterSchema(SqlSession& session);

// Lets a role of PostgreSQL do what the agent of a host does (AgentStore), and no more: it claims and ends jobs, but
// adds none, and does not change limits. The role exists; `session` is its superior's. kInvalidArgument: the name is no
// name of a role as we write it: up to 63 small letters, digits and underscores.
Status GrantToAgents(SqlSession& session, const std::string& role);

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_SQL_CLUSTER_SCHEMA_H_
