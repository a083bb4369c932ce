// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_SERVER_JOBS_ROWS_JOB_STATE_NAME_H_
#define HPVMD_SERVER_JOBS_ROWS_JOB_STATE_NAME_H_

#include <string>
#include <string_view>

#include "hpvm/v1/job.pb.h"

namespace hpvm::server {

// Returns for example "SUCCEEDED", as logs, metrics, errors and hpvmctl write it.
inline std::string StateName(v1::JobState state) {
  constexpr std::string_view kPrefix = "JOB_STATE_";
  const std::string& name = v1::JobState_Name(state);  // Empty for a state that this release does not know.
  return name.size() > kPrefix.size() ? name.substr(kPrefix.size()) : std::to_string(static_cast<int>(state));
}

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_ROWS_JOB_STATE_NAME_H_
