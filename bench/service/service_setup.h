// SPDX-License-Identifier: Apache-2.0
// Common parts of the service's cases: daemons configured for them, loads, and the minimal gRPC server.
#ifndef HPVMD_BENCH_SERVICE_SERVICE_SETUP_H_
#define HPVMD_BENCH_SERVICE_SERVICE_SETUP_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bench/service/service_daemon.h"
#include "bench/service/service_load.h"

namespace hpvm::bench {

// Size in bytes of the input and the output of the graph "copy".
inline constexpr uint32_t kCopyBytes = 256;

// Queues long enough for any case, one job of the tenant at a time, and a quick stop.
DaemonSettings RoomySettings();

LoadSpec CopyLoad(LoadKind kind, const std::string& endpoint, const std::string& handle, uint32_t connections);

// Starts a job that stays RUNNING at no cost, because its executor is stopped; with jobs.running_per_tenant_max = 1
// every other job then waits. Graphs that are to be submitted must be prepared before.
Status HoldJobsBack(ServiceDaemon& daemon);

// Returns the ids of the jobs in these states (all when empty), by ListJobs.
StatusOr<std::set<std::string>> ListIds(ServiceDaemon& daemon, const std::vector<v1::JobState>& states);
// Waits until no job waits or runs. kDeadlineExceeded after `within`.
Status AwaitAllEnded(ServiceDaemon& daemon, Duration within);
// Checks that every id is listed. An id that was acknowledged twice is an error too.
Status CheckListed(ServiceDaemon& daemon, const std::vector<std::string>& acknowledged);

// The minimal gRPC server, in a process of its own.
class EchoPeer {
 public:
  static StatusOr<std::unique_ptr<EchoPeer>> Start();
  StatusOr<std::unique_ptr<ServiceLoad>> Connect(size_t bytes, uint32_t connections) const;

 private:
  TemporaryFolder folder_;
  std::optional<Process> process_;
};

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SERVICE_SERVICE_SETUP_H_
