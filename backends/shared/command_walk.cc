// SPDX-License-Identifier: Apache-2.0
#include "backends/shared/command_walk.h"

namespace hpvm::backends {

void CommandWalk::Report(const Command& command) const {
  if (submission_.failure != nullptr) {
    const auto* dispatch = std::get_if<DispatchCommand>(&command);
    *submission_.failure = {dispatch == nullptr ? 0xffffffffu : dispatch->node, record_.trap};
  }
}

Status CommandTarget::RunList(const Submission& submission) {
  CommandWalk walk(*this, submission, ProcessTicks());
  for (const Command& command : submission.commands->commands) {
    Status status = walk.Run(command);
    if (!status.ok()) [[unlikely]] {
      walk.Report(command);
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm::backends
