// SPDX-License-Identifier: Apache-2.0
#include "backends/opencl/traps.h"

#include <algorithm>
#include <bit>

namespace hpvm::opencl {
namespace {

constexpr uint32_t kRecordsMin = 128;  // 4 KiB.
// The number of submissions in flight.
constexpr size_t kIdleMax = 4;

Status Zero(cl_command_queue queue, cl_mem memory, uint64_t bytes) {
  const uint32_t zero = 0;
  return FromCl(clEnqueueFillBuffer(queue, memory, &zero, sizeof(zero), 0, bytes, 0, nullptr, nullptr),
                "Clearing trap records");
}

}  // namespace

StatusOr<std::unique_ptr<TrapMemory>> TrapPool::Take(uint32_t count) {
  const uint64_t bytes = uint64_t{std::bit_ceil(std::max(count, kRecordsMin))} * sizeof(GpuTrapRecord);
  {
    std::lock_guard lock(mutex_);
    const auto fits = [&](const std::unique_ptr<TrapMemory>& memory) { return memory->host.bytes() >= bytes; };
    const auto found = std::find_if(idle_.begin(), idle_.end(), fits);
    if (found != idle_.end()) {
      std::unique_ptr<TrapMemory> memory = std::move(*found);
      idle_.erase(found);
      if (memory->is_dirty) {
        HPVMD_RETURN_IF_ERROR(Zero(main_, memory->device.get(), memory->host.bytes()));
        memory->is_dirty = false;
      }
      return memory;
    }
  }
  auto memory = std::make_unique<TrapMemory>();
  cl_int error = CL_SUCCESS;
  memory->device = Memory(clCreateBuffer(context_, CL_MEM_READ_WRITE, bytes, nullptr, &error));
  HPVMD_RETURN_IF_ERROR(FromCl(error, "Allocating trap records"));
  memory->serial = NextSerial();
  HPVMD_ASSIGN_OR_RETURN(memory->host, Pinned::Allocate(context_, setup_, bytes));
  HPVMD_RETURN_IF_ERROR(Zero(main_, memory->device.get(), bytes));
  return memory;
}

void TrapPool::Give(std::unique_ptr<TrapMemory> memory) {
  std::lock_guard lock(mutex_);
  if (idle_.size() >= kIdleMax) {
    idle_.erase(idle_.begin());  // It is often too small for later submissions.
  }
  idle_.push_back(std::move(memory));
}

}  // namespace hpvm::opencl
