// SPDX-License-Identifier: Apache-2.0
// Buffers of devices that work in host memory.
#ifndef HPVMD_BACKENDS_SHARED_HOST_BUFFER_H_
#define HPVMD_BACKENDS_SHARED_HOST_BUFFER_H_

#include <memory>

#include "backends/contract/device.h"

namespace hpvm::backends {

// Large allocations are mapped, so that the kernel zeroes a page at its first access; small ones come from the heap.
// Data is aligned to at least 64 bytes. Returns kResourceExhausted above `bytes_max` or when memory is short.
StatusOr<std::unique_ptr<Buffer>> AllocateHostBuffer(const BufferSpec& spec, uint64_t bytes_max);

}  // namespace hpvm::backends

#endif  // HPVMD_BACKENDS_SHARED_HOST_BUFFER_H_
