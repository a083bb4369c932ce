// SPDX-License-Identifier: Apache-2.0
#include "backends/opencl/buffer.h"

#include <atomic>

namespace hpvm::opencl {
namespace {

// Number of sub-buffers kept per buffer: graphs that cut a buffer into parts use the same ones each time.
constexpr size_t kViewsMax = 64;

}  // namespace

uint64_t NextSerial() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

StatusOr<MemoryRef> OpenClBuffer::View(uint64_t offset, uint64_t bytes) {
  for (const SubBuffer& view : views_) {
    if (view.offset == offset && view.bytes == bytes) {
      return MemoryRef{view.memory.get(), view.serial};
    }
  }
  const cl_buffer_region region{offset, bytes};
  cl_int error = CL_SUCCESS;
  Memory memory(clCreateSubBuffer(memory_.get(), CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &error));
  HPVMD_RETURN_IF_ERROR(FromCl(error, "Making a view of " + std::to_string(bytes) + " bytes at byte " +
                                          std::to_string(offset) + " of a buffer"));
  if (views_.size() >= kViewsMax) {
    views_.erase(views_.begin());  // Commands that use it hold a reference.
  }
  views_.push_back({offset, bytes, std::move(memory), NextSerial()});
  return MemoryRef{views_.back().memory.get(), views_.back().serial};
}

}  // namespace hpvm::opencl
