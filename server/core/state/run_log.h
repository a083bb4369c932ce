// SPDX-License-Identifier: Apache-2.0
// What the kernels of a run said, on its way from the executor to clients.
#ifndef HPVMD_SERVER_CORE_STATE_RUN_LOG_H_
#define HPVMD_SERVER_CORE_STATE_RUN_LOG_H_

#include "hpvm/v1/job.pb.h"
#include "server/executors/executor_process.h"
#include "supervisor/run_log_message.h"

namespace hpvm {

bool IsEmpty(const ExecutorLog& log);
// What its message takes at most.
uint64_t MessageBytes(const ExecutorLog& log);
// Leaves the counts only.
void DropTexts(v1::RunLog& log);

}  // namespace hpvm

#endif  // HPVMD_SERVER_CORE_STATE_RUN_LOG_H_
