// SPDX-License-Identifier: Apache-2.0
// TrapPool provides device memory for the trap records of the submissions in flight.
#ifndef HPVMD_BACKENDS_OPENCL_TRAPS_H_
#define HPVMD_BACKENDS_OPENCL_TRAPS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backends/opencl/buffer.h"
#include "backends/opencl/staging.h"
#include "compiler/api/gpu_code.h"

namespace hpvm::opencl {

// Records on the device, and the host memory into which they are read. All zero on the device unless `is_dirty`.
struct TrapMemory {
  Memory device;
  uint64_t serial = 0;
  Pinned host;
  bool is_dirty = false;

  std::span<const GpuTrapRecord> records(uint32_t count) const {
    return {reinterpret_cast<const GpuTrapRecord*>(host.data()), count};
  }
};

class TrapPool {
 public:
  // All are borrowed for its life. `setup` is idle, so that mapping memory does not wait.
  TrapPool(cl_context context, cl_command_queue main, cl_command_queue setup)
      : context_(context), main_(main), setup_(setup) {}

  // Returns memory for `count` records, which are zero for later commands on `main`. Called on the submit thread.
  StatusOr<std::unique_ptr<TrapMemory>> Take(uint32_t count);
  // Thread-safe.
  void Give(std::unique_ptr<TrapMemory> memory);

 private:
  const cl_context context_;
  const cl_command_queue main_, setup_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<TrapMemory>> idle_;  // Guarded by mutex_.
};

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_TRAPS_H_
