// SPDX-License-Identifier: Apache-2.0
// The daemon's own secret, in its state folder: what tags tenants' compiled kernels and seals the tokens of pages come
// from it.
#ifndef HPVMD_SERVER_PROCESS_LOCAL_SECRET_H_
#define HPVMD_SERVER_PROCESS_LOCAL_SECRET_H_

#include <array>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace hpvm::server {

// Read from `folder`, or made there, readable by the daemon's user alone.
StatusOr<std::array<uint8_t, 32>> LoadSecret(const std::string& folder);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_LOCAL_SECRET_H_
