// SPDX-License-Identifier: Apache-2.0
// Memory of the host's for plans: mapped, so that what is never touched costs nothing.
#ifndef HPVMD_ENGINE_HOST_MEMORY_H_
#define HPVMD_ENGINE_HOST_MEMORY_H_

#include <cstdint>
#include <memory>

#include "backends/device.h"
#include "base/status.h"

namespace hpvm {

// Anonymous memory, zero when first touched; pages are 4096 bytes at least, and so it is aligned.
class HostMemory {
 public:
  HostMemory() = default;
  // kResourceExhausted when the system has no more.
  static StatusOr<HostMemory> Map(uint64_t bytes);
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  ~HostMemory();
  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Host memory as a buffer for a device whose own buffers are not host memory: the other side of its copies. Borrows
// `data`.
std::unique_ptr<Buffer> MakeHostView(uint8_t* data, uint64_t bytes);

}  // namespace hpvm

#endif  // HPVMD_ENGINE_HOST_MEMORY_H_
