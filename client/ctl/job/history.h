// SPDX-License-Identifier: Apache-2.0
// The history of a job, as far as the server still has it.
#ifndef HPVMD_CLIENT_CTL_JOB_HISTORY_H_
#define HPVMD_CLIENT_CTL_JOB_HISTORY_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "hpvm/client.h"

namespace hpvm::ctl {

// Returns the retained events of a job, oldest first. The stream of a job that has not ended does not end either, so
// the server marks where the past ends; kUnimplemented when it is too old for that.
StatusOr<std::vector<v1::JobEvent>> ReadHistory(Client& client, const std::string& job_id);

// Accepts the id of one job; for an array, kInvalidArgument says how to find its elements.
Status CheckIsJob(const std::string& id);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_JOB_HISTORY_H_
