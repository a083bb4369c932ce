// SPDX-License-Identifier: Apache-2.0
// What the kernels of a run said, on its way from the executor to clients.
#ifndef HPVMD_SERVER_CORE_STATE_RUN_LOG_H_
#define HPVMD_SERVER_CORE_STATE_RUN_LOG_H_

#include <cstdint>

#include "hpvm/v1/record.pb.h"

namespace hpvm::server {

bool IsEmpty(const v1::RunLog& log);
// Leaves the counts only.
void DropTexts(v1::RunLog& log);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_RUN_LOG_H_
