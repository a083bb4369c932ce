// SPDX-License-Identifier: Apache-2.0
// Checks of the options that every request has.
#ifndef HPVMD_SERVER_CORE_STATE_REQUEST_OPTIONS_H_
#define HPVMD_SERVER_CORE_STATE_REQUEST_OPTIONS_H_

#include "base/status.h"
#include "hpvm/v1/common.pb.h"

namespace hpvm::server {

// Returns kInvalidArgument naming the field, the value and the limit, or kUnimplemented for an idempotency key where
// none is honoured.
Status CheckRequestOptions(const v1::RequestOptions& options, bool key_honoured);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_REQUEST_OPTIONS_H_
