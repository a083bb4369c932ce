// SPDX-License-Identifier: Apache-2.0
// What memory a client may register as a buffer.
#ifndef HPVMD_SERVER_MEMORY_CLIENT_MEMORY_H_
#define HPVMD_SERVER_MEMORY_CLIENT_MEMORY_H_

#include <cstdint>

#include "base/status.h"

namespace hpvm::server {

// The size of a client's memory and whether it can only be read, for good: a memfd in ordinary pages whose size is
// sealed, and whose other seals are sealed now, too. kInvalidArgument says what is missing.
struct ClientMemory {
  uint64_t bytes = 0;
  bool read_only = false;
};
StatusOr<ClientMemory> CheckClientMemory(int fd);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_MEMORY_CLIENT_MEMORY_H_
