// SPDX-License-Identifier: Apache-2.0
#include "backends/opencl/fill.h"

#include <algorithm>

#include "base/limits.h"

namespace hpvm::opencl {
namespace {

// Fills that end below this offset need no view.
constexpr uint64_t kNearBytes = 2048 * limits::kMiB;
constexpr uint64_t kPieceBytes = 1024 * limits::kMiB;

}  // namespace

cl_int EnqueueFill(cl_command_queue queue, const FillRange& range, std::span<const uint8_t> pattern, Event* done) {
  const auto fill = [&](cl_mem memory, uint64_t offset, uint64_t bytes, bool is_last) {
    return clEnqueueFillBuffer(queue, memory, pattern.data(), pattern.size(), offset, bytes, 0, nullptr,
                               done == nullptr || !is_last ? nullptr : done->out());
  };
  if (range.offset + range.bytes <= kNearBytes) {
    return fill(range.memory, range.offset, range.bytes, true);
  }
  const uint64_t end = range.offset + range.bytes;
  // Alignment of views; also a multiple of every pattern's size.
  const uint64_t alignment = std::max<uint64_t>(range.view_alignment, 16);
  for (uint64_t at = range.offset; at < end;) {
    const uint64_t base = at / alignment * alignment;
    const uint64_t bytes = std::min(end - at, base + kPieceBytes - at);
    const cl_buffer_region region{base, at + bytes - base};
    cl_int error = CL_SUCCESS;
    // The fill holds a reference.
    const Memory view(
        clCreateSubBuffer(range.memory, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &error));
    if (error == CL_SUCCESS) {
      error = fill(view.get(), at - base, bytes, at + bytes == end);
    }
    if (error != CL_SUCCESS) {
      return error;
    }
    at += bytes;
  }
  return CL_SUCCESS;
}

}  // namespace hpvm::opencl
