// SPDX-License-Identifier: Apache-2.0
// What a run tells of its kernels and nodes, from the executor's form to the clients'.
#ifndef HPVMD_SUPERVISOR_RUN_LOG_MESSAGE_H_
#define HPVMD_SUPERVISOR_RUN_LOG_MESSAGE_H_

#include "hpvm/v1/job.pb.h"
#include "supervisor/executor_link.h"

namespace hpvm {

v1::RunLog ToMessage(const ExecutorLog& log);
v1::NodePlacement ToMessage(const ExecutorNodeRecord& node);

}  // namespace hpvm

#endif  // HPVMD_SUPERVISOR_RUN_LOG_MESSAGE_H_
