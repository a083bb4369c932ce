// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_SERVER_JOB_STATE_NAME_H_
#define HPVMD_SERVER_JOB_STATE_NAME_H_

#include <string>
#include <string_view>

#include "hpvm/v1/job.pb.h"

namespace hpvm {

// "SUCCEEDED": as logs, metrics, errors and hpvmctl write it.
inline std::string StateName(v1::JobState state) {
  constexpr std::string_view kPrefix = "JOB_STATE_";
  return v1::JobState_Name(state).substr(kPrefix.size());
}

}  // namespace hpvm

#endif  // HPVMD_SERVER_JOB_STATE_NAME_H_
