// SPDX-License-Identifier: Apache-2.0
#include "backends/opencl/staging.h"

#include <utility>

namespace hpvm::opencl {

StatusOr<Pinned> Pinned::Allocate(cl_context context, cl_command_queue queue, uint64_t bytes) {
  Pinned pinned;
  pinned.queue_ = queue;
  pinned.bytes_ = bytes;
  cl_int error = CL_SUCCESS;
  const std::string doing = "Allocating " + std::to_string(bytes) + " bytes of pinned memory";
  pinned.memory_ = Memory(clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, nullptr, &error));
  HPVMD_RETURN_IF_ERROR(FromCl(error, doing));
  void* data = clEnqueueMapBuffer(queue, pinned.memory_.get(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0,
                                  nullptr, nullptr, &error);
  HPVMD_RETURN_IF_ERROR(FromCl(error, doing));
  pinned.data_ = static_cast<uint8_t*>(data);
  return pinned;
}

Pinned::Pinned(Pinned&& other) noexcept
    : queue_(other.queue_),
      memory_(std::move(other.memory_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Pinned& Pinned::operator=(Pinned&& other) noexcept {
  std::swap(queue_, other.queue_);
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Pinned::~Pinned() {
  if (data_ != nullptr) {
    clEnqueueUnmapMemObject(queue_, memory_.get(), data_, 0, nullptr, nullptr);
  }
}

StatusOr<uint8_t*> Staging::Grow(size_t index, uint64_t bytes) {
  HPVMD_ASSIGN_OR_RETURN(slots_[index].memory, Pinned::Allocate(parts_.context, parts_.setup, bytes));
  return slots_[index].memory.data();
}

bool Staging::IsOver(const gpu::StagingSlot& slot) {
  const Event& transfer = slots_[slot.index].transfer;
  cl_int state = CL_COMPLETE;
  // A failed transfer is also over; Await reports the failure.
  return !transfer ||
         clGetEventInfo(transfer.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state), &state, nullptr) !=
             CL_SUCCESS ||
         state <= CL_COMPLETE;
}

Status Staging::Await(const gpu::StagingSlot& slot) {
  const Event& transfer = slots_[slot.index].transfer;
  if (!transfer) {
    return absl::OkStatus();
  }
  const cl_event event = transfer.get();
  return parts_.health.Judge(clWaitForEvents(1, &event), parts_.queue, parts_.doing);
}

}  // namespace hpvm::opencl
