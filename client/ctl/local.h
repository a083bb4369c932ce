// SPDX-License-Identifier: Apache-2.0
// Runs a graph without a daemon: starts `hpvm-executor --standalone`, which ends with this process.
#ifndef HPVMD_CLIENT_CTL_LOCAL_H_
#define HPVMD_CLIENT_CTL_LOCAL_H_

#include <array>
#include <optional>
#include <string>

#include "client/client.h"
#include "client/ctl/graph_job.h"

#include "base/status.h"

namespace hpvm::ctl {

// Where local runs keep compiled kernels and what was learnt of them.
struct LocalCache {
  std::string folder;
  std::array<uint8_t, 32> key{};  // Tags what lies there.
};
// Makes it if it is not there; nothing when there is no place for it.
std::optional<LocalCache> OpenLocalCache();

// $HPVM_EXECUTOR, else beside this program.
StatusOr<std::string> ExecutorProgram();

struct LocalOutcome {
  RunOutcome run;
  v1::PrepareTiming prepare;
  std::string graph;
  std::vector<std::string> defects{};  // GraphSummary::defects; drivers are not tried out for local runs.
};

// What is left of a run's deadline, if it has one, after preparing took so long of it: at least a nanosecond.
RunOptions WithinDeadline(RunOptions options, Duration taken);

// Compiled kernels are kept in $XDG_CACHE_HOME/hpvm (or ~/.cache/hpvm), for this user only. Errors as the daemon would
// give them.
StatusOr<LocalOutcome> RunLocally(const GraphJob& job, const RunOptions& options, const PrepareOptions& prepare = {});

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_LOCAL_H_
