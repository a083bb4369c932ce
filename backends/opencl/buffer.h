// SPDX-License-Identifier: Apache-2.0
// Memory of an OpenCL device.
#ifndef HPVMD_BACKENDS_OPENCL_BUFFER_H_
#define HPVMD_BACKENDS_OPENCL_BUFFER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backends/contract/device.h"
#include "backends/gpu/known_words.h"
#include "backends/opencl/cl.h"

namespace hpvm::opencl {

// A memory object as a kernel's argument. Serial numbers are never reused, unlike addresses of objects, so equal
// numbers mean the same memory.
struct MemoryRef {
  cl_mem memory = nullptr;
  uint64_t serial = 0;
};
uint64_t NextSerial();

// All methods but bytes() and host() belong to the submit threads: those with a lane to that lane's thread, the others
// to the kernels' thread.
class OpenClBuffer final : public gpu::GpuBuffer {
 public:
  // `cleared` is the event after which new memory reads as zero; empty for imported memory.
  OpenClBuffer(uint64_t bytes, Memory memory, Event cleared, bool is_imported)
      : bytes_(bytes),
        memory_(std::move(memory)),
        cleared_(std::move(cleared)),
        is_imported_(is_imported),
        serial_(NextSerial()) {}

  uint64_t bytes() const override { return bytes_; }
  bool is_shared() const override { return is_imported_; }

  MemoryRef whole() const { return {memory_.get(), serial_}; }
  cl_mem memory() const { return memory_.get(); }
  // Returns a view as a separate memory object, at a multiple of the device's alignment; kept for the next launch.
  StatusOr<MemoryRef> View(uint64_t offset, uint64_t bytes);
  // Returns the event that the lane's first command on the buffer waits for; null afterwards.
  cl_event TakeCleared(Lane lane) {
    return std::exchange(is_fresh_[static_cast<size_t>(lane)], false) ? cleared_.get() : nullptr;
  }
  bool is_imported() const { return is_imported_; }

 private:
  struct SubBuffer {
    uint64_t offset = 0, bytes = 0;
    Memory memory;
    uint64_t serial = 0;
  };

  const uint64_t bytes_;
  const Memory memory_;
  const Event cleared_;
  std::array<bool, kLanes> is_fresh_{true, true, true};  // Indexed by lane; each element belongs to its lane.
  const bool is_imported_;
  const uint64_t serial_;
  std::vector<SubBuffer> views_;  // At most kViewsMax, oldest first.
};

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_BUFFER_H_
