// SPDX-License-Identifier: Apache-2.0
// Runs a graph once, for commands.
#ifndef HPVMD_CLIENT_CTL_RUN_H_
#define HPVMD_CLIENT_CTL_RUN_H_

#include <string>
#include <vector>

#include "client/ctl/graph_job.h"

#include "base/status.h"
#include "hpvm/client.h"

namespace hpvm::ctl {

struct LocalOutcome {
  RunOutcome run;
  v1::PrepareTiming prepare;
  std::string graph;
  std::vector<std::string> defects{};  // GraphSummary::defects; drivers are not probed for local runs.
};

// Runs on this machine in a separate process, without a server. Warnings go to standard error.
StatusOr<LocalOutcome> RunLocally(const GraphJob& job, const RunOptions& run, const PrepareOptions& prepare,
                                  const std::vector<std::string>& devices);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_RUN_H_
