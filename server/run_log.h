// SPDX-License-Identifier: Apache-2.0
// What the kernels of a run said, on its way from the executor to clients.
#ifndef HPVMD_SERVER_RUN_LOG_H_
#define HPVMD_SERVER_RUN_LOG_H_

#include "hpvm/v1/job.pb.h"
#include "proto/internal/run_log_message.h"
#include "server/executor_process.h"

namespace hpvm {

bool IsEmpty(const ExecutorLog& log);
// What its message takes at most.
uint64_t MessageBytes(const ExecutorLog& log);
// Leaves the counts only.
void DropTexts(v1::RunLog& log);

}  // namespace hpvm

#endif  // HPVMD_SERVER_RUN_LOG_H_
