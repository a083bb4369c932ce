// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "server/cluster/cluster_store.h"

namespace hpvm::server::cluster {

std::string_view Name(JobState state) {
  switch (state) {
    case JobState::kWaiting:
      return "WAITING";
    case JobState::kRunning:
      return "RUNNING";
    case JobState::kSucceeded:
      return "SUCCEEDED";
    case JobState::kFailed:
      return "FAILED";
    case JobState::kCancelled:
      return "CANCELLED";
    case JobState::kExpired:
      return "EXPIRED";
    case JobState::kDead:
      return "DEAD";
  }
  return "";
}

JobState StateFrom(int64_t number) {
  return number < 0 || number > static_cast<int64_t>(kLastJobState) ? JobState::kDead : static_cast<JobState>(number);
}

Duration RetryDelay(const ClusterStoreOptions& options, uint32_t lost) {
  constexpr Duration kMax = std::chrono::minutes(1);
  constexpr uint32_t kDoublesMax = 16;  // Enough for kMax from a millisecond.
  return lost < 2 ? Duration{0}
                  : std::min<Duration>(kMax, options.retry_after * (1u << std::min(lost - 2, kDoublesMax)));
}

bool IsMet(Dependency::Condition condition, JobState end) {
  return condition == Dependency::Condition::kEnded ||
         (condition == Dependency::Condition::kSucceeded) == (end == JobState::kSucceeded);
}

}  // namespace hpvm::server::cluster
