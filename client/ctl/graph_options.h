// SPDX-License-Identifier: Apache-2.0
// Options shared by submit and run.
#ifndef HPVMD_CLIENT_CTL_GRAPH_OPTIONS_H_
#define HPVMD_CLIENT_CTL_GRAPH_OPTIONS_H_

#include <string>
#include <vector>

#include "client/ctl/graph_job.h"

#include "hpvm/client.h"

namespace CLI {
class App;
}

namespace hpvm::ctl {

struct GraphOptions {
  GraphArguments arguments;
  std::vector<std::string> labels;  // "key=value".
  std::string deadline;             // "10s", "500ms".
  int32_t priority = 0;
  std::string idempotency_key;
};

void AddGraphOptions(CLI::App& command, GraphOptions& options);

// Returns deadline, priority, labels and key as every request carries them; kInvalidArgument names the malformed
// value. Includes the trace context of the environment (TRACEPARENT, TRACESTATE) unchecked, because servers check it.
CallOptions TracedCall();
StatusOr<CallOptions> ToCallOptions(const GraphOptions& options);
StatusOr<RunOptions> ToRunOptions(const GraphOptions& options, const GraphJob& job);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_GRAPH_OPTIONS_H_
