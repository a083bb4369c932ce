// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/run_log.h"

namespace hpvm {
bool IsEmpty(const ExecutorLog& log) {
  return log.lines.empty() && log.findings.empty() && log.lines_dropped == 0 && log.findings_dropped == 0;
}

uint64_t MessageBytes(const ExecutorLog& log) {
  constexpr uint64_t kRecordBytes = 96;  // Numbers, tags and lengths.
  uint64_t bytes = kRecordBytes;
  for (const ExecutorLog::Line& line : log.lines) {
    bytes += line.node.size() + line.text.size() + kRecordBytes;
  }
  for (const ExecutorLog::Finding& finding : log.findings) {
    bytes += finding.node.size() + finding.kind.size() + finding.message.size() + finding.buffer.size() +
             finding.place.size() + 2 * kRecordBytes;
  }
  return bytes;
}

void DropTexts(v1::RunLog& log) {
  log.set_lines_dropped(log.lines_dropped() + static_cast<uint64_t>(log.lines_size()));
  log.clear_lines();
  log.set_findings_dropped(log.findings_dropped() + static_cast<uint64_t>(log.findings_size()));
  log.clear_findings();
}

}  // namespace hpvm
