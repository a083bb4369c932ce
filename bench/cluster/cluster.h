// SPDX-License-Identifier: Apache-2.0
// `hpvm-bench cluster`: the store of jobs that hosts share, on a PostgreSQL server of its own and on SQLite.
//
//   jobs/postgres   tiny jobs through three daemons' stores, beside a raw loop with the same rows and batches
//   jobs/sqlite     the same on a file of SQLite with one daemon
//   failover        from the loss of a host to the start of its job on another one
//   first_job       from the start of a fresh host to the start of its first job
//   watch           from the change of a job to the moment at which a watcher on another daemon has it
#ifndef HPVMD_BENCH_CLUSTER_CLUSTER_H_
#define HPVMD_BENCH_CLUSTER_CLUSTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/registry.h"
#include "server/cluster/cluster_store.h"
#include "server/cluster/postgres/postgres_session.h"

namespace hpvm::bench {

struct ClusterOptions {
  bool json = false;
  bool quick = false;  // Few jobs: checks correctness; its figures mean nothing.
  std::vector<std::string> filters;
};

// Jobs of one submit, and the most that a host claims at once.
inline constexpr uint32_t kClusterBatch = 64;
inline constexpr uint32_t kClusterTenants = 4;
inline constexpr uint32_t kClusterHosts = 3;

// Returns jobs that do nothing, spread over the tenants.
std::vector<server::cluster::NewJob> TinyJobs(uint64_t first, uint64_t count);

// Runs so many jobs through the tables by hand-written loops, one thread a host and one that submits, and returns jobs
// a second. The database has the store's tables and nothing in them.
StatusOr<double> RunRawQueue(const server::cluster::PostgresOptions& database, uint64_t jobs);

void AddClusterCases(std::vector<Case>& cases, const ClusterOptions& options);

// Returns the exit code: 0 when every case was measured and verified, 1 otherwise, 2 when no case has a filter in its
// name.
int RunCluster(const ClusterOptions& options, const std::string& command);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_CLUSTER_CLUSTER_H_
