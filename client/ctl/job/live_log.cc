// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/job/live_log.h"

#include <algorithm>

namespace hpvm::ctl {

void LiveLog::Add(const v1::RunLog& shown) {
  for (const v1::LogLine& line : shown.lines()) {
    ++shown_[line.SerializeAsString()];
  }
}

void LiveLog::RemoveFrom(v1::RunLog* log) const {
  std::map<std::string, uint64_t> left = shown_;
  const auto was_shown = [&](const v1::LogLine& line) {
    const auto found = left.find(line.SerializeAsString());
    return found != left.end() && found->second > 0 && found->second-- > 0;
  };
  auto& lines = *log->mutable_lines();
  lines.erase(std::remove_if(lines.begin(), lines.end(), was_shown), lines.end());
}

}  // namespace hpvm::ctl
