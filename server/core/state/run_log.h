// SPDX-License-Identifier: Apache-2.0
// Helpers for the output that kernels of a run print, on its way from the executor to clients.
#ifndef HPVMD_SERVER_CORE_STATE_RUN_LOG_H_
#define HPVMD_SERVER_CORE_STATE_RUN_LOG_H_

#include <cstdint>

#include "hpvm/v1/record.pb.h"

namespace hpvm::server {

bool IsEmpty(const v1::RunLog& log);
// Removes the texts and keeps the counts.
void DropTexts(v1::RunLog& log);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_RUN_LOG_H_
