// SPDX-License-Identifier: Apache-2.0
// The past of a job, as far as a server still tells it.
#ifndef HPVMD_CLIENT_CTL_JOB_HISTORY_H_
#define HPVMD_CLIENT_CTL_JOB_HISTORY_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "hpvm/client.h"

namespace hpvm::ctl {

// The events of a job that WatchJob has kept, oldest first. Of a job that has not ended the stream does not end either,
// and nothing marks where the past does: it is taken to when nothing comes for a while.
StatusOr<std::vector<v1::JobEvent>> ReadHistory(Client& client, const std::string& job_id);

// One job, not an array: kInvalidArgument says how an array's elements are found.
Status CheckIsJob(const std::string& id);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_JOB_HISTORY_H_
