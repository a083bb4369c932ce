// SPDX-License-Identifier: Apache-2.0
// Fills memory of any size. Drivers may count filled bytes in 32 bits (docs/GPU.md), so large buffers are filled in
// pieces, and ranges far from a buffer's beginning through views.
#ifndef HPVMD_BACKENDS_OPENCL_FILL_H_
#define HPVMD_BACKENDS_OPENCL_FILL_H_

#include <cstdint>
#include <span>

#include "backends/opencl/cl.h"

namespace hpvm::opencl {

struct FillRange {
  cl_mem memory = nullptr;         // Not itself a view.
  uint64_t offset = 0, bytes = 0;  // Multiples of the pattern's size.
  uint32_t view_alignment = 1;     // Found::view_alignment.
};

// Enqueues fills with a repeated pattern of 1, 2, 4, 8 or 16 bytes. `done` (may be null) receives the last one's event;
// the queue is in order.
cl_int EnqueueFill(cl_command_queue queue, const FillRange& range, std::span<const uint8_t> pattern, Event* done);

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_FILL_H_
