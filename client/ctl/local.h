// SPDX-License-Identifier: Apache-2.0
// Runs a graph without a daemon: starts `hpvm-executor --standalone`, which ends with this process.
#ifndef HPVMD_CLIENT_CTL_LOCAL_H_
#define HPVMD_CLIENT_CTL_LOCAL_H_

#include "client/client.h"
#include "client/ctl/graph_job.h"

#include "base/status.h"

namespace hpvm::ctl {

struct LocalOutcome {
  RunOutcome run;
  v1::PrepareTiming prepare;
  std::string graph;
};

// Compiled kernels are kept in $XDG_CACHE_HOME/hpvm (or ~/.cache/hpvm), for this user only. Errors as the daemon would
// give them.
StatusOr<LocalOutcome> RunLocally(const GraphJob& job, const RunOptions& options, const PrepareOptions& prepare = {});

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_LOCAL_H_
