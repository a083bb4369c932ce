// SPDX-License-Identifier: Apache-2.0
// Checks of memory that a client registers as a buffer.
#ifndef HPVMD_SERVER_MEMORY_CLIENT_MEMORY_H_
#define HPVMD_SERVER_MEMORY_CLIENT_MEMORY_H_

#include <cstdint>

#include "base/status.h"

namespace hpvm::server {

// The size of a client's memory, and whether it is permanently read-only. The memory must be a memfd of ordinary
// pages with a sealed size; its other seals are sealed here. kInvalidArgument says what is missing.
struct ClientMemory {
  uint64_t bytes = 0;
  bool read_only = false;
};
StatusOr<ClientMemory> CheckClientMemory(int fd);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_MEMORY_CLIENT_MEMORY_H_
