// SPDX-License-Identifier: Apache-2.0
// LiveLog remembers the lines of a job's log that were shown while it ran.
#ifndef HPVMD_CLIENT_CTL_JOB_LIVE_LOG_H_
#define HPVMD_CLIENT_CTL_JOB_LIVE_LOG_H_

#include <cstdint>
#include <map>
#include <string>

#include "hpvm/v1/record.pb.h"

namespace hpvm::ctl {

// Lines arrive in the order of printing, but the log is sorted by node and instance; so lines are matched by content
// and count.
class LiveLog {
 public:
  void Add(const v1::RunLog& shown);
  // Called when another attempt begins.
  void Clear() { shown_.clear(); }
  bool empty() const { return shown_.empty(); }
  // Removes the lines that were shown from `log` and keeps the order of the others; each shown line removes one equal
  // line.
  void RemoveFrom(v1::RunLog* log) const;

 private:
  std::map<std::string, uint64_t> shown_;  // Counts by serialised line.
};

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_JOB_LIVE_LOG_H_
