// SPDX-License-Identifier: Apache-2.0
#include "backends/opencl/health.h"

namespace hpvm::opencl {
namespace {

// Returns true for errors that concern the call's arguments and not the device. Driver-specific errors are below -1000.
bool TellsOfArguments(cl_int error) {
  if (error == CL_INVALID_CONTEXT || error == CL_INVALID_COMMAND_QUEUE) {
    return false;
  }
  return error <= CL_INVALID_VALUE && error > -1000;
}

}  // namespace

Status Health::Check() const {
  if (!is_lost_.load(std::memory_order_acquire)) [[likely]] {
    return absl::OkStatus();
  }
  return Unavailable("Device \"" + device_ + "\" (" + name_ + ") is lost.");
}

Status Health::Lose(cl_int error, std::string_view doing) {
  is_lost_.store(true, std::memory_order_release);
  return Unavailable("Device \"" + device_ + "\" (" + name_ + ") is lost: " + std::string(doing) + " fails with " +
                     ErrorName(error) + ".");
}

Status Health::Judge(cl_int error, cl_command_queue queue, std::string_view doing) {
  if (error == CL_SUCCESS) [[likely]] {
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(Check());
  if (TellsOfArguments(error)) {
    return FromCl(error, doing);
  }
  const cl_int finished = clFinish(queue);
  return finished == CL_SUCCESS ? FromCl(error, doing) : Lose(error, doing);
}

Status Health::JudgeEvent(cl_int error, std::string_view doing) {
  if (error >= CL_COMPLETE) {
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(Check());
  if (error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_HOST_MEMORY) {
    return FromCl(error, doing);
  }
  return Lose(error, doing);
}

}  // namespace hpvm::opencl
