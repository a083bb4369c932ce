// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/run_log.h"

namespace hpvm::server {

bool IsEmpty(const v1::RunLog& log) {
  return log.lines().empty() && log.findings().empty() && log.lines_dropped() == 0 && log.findings_dropped() == 0;
}

void DropTexts(v1::RunLog& log) {
  log.set_lines_dropped(log.lines_dropped() + static_cast<uint64_t>(log.lines_size()));
  log.clear_lines();
  log.set_findings_dropped(log.findings_dropped() + static_cast<uint64_t>(log.findings_size()));
  log.clear_findings();
}

}  // namespace hpvm::server
