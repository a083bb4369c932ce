// SPDX-License-Identifier: Apache-2.0
#include "backends/opencl/cl.h"

#include <algorithm>

namespace hpvm::opencl {
namespace {

std::string_view Word(cl_int error) {
  switch (error) {
#define HPVM_CL_ERROR(name) \
  case name:                \
    return #name;
    HPVM_CL_ERROR(CL_DEVICE_NOT_FOUND)
    HPVM_CL_ERROR(CL_DEVICE_NOT_AVAILABLE)
    HPVM_CL_ERROR(CL_COMPILER_NOT_AVAILABLE)
    HPVM_CL_ERROR(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    HPVM_CL_ERROR(CL_OUT_OF_RESOURCES)
    HPVM_CL_ERROR(CL_OUT_OF_HOST_MEMORY)
    HPVM_CL_ERROR(CL_PROFILING_INFO_NOT_AVAILABLE)
    HPVM_CL_ERROR(CL_MEM_COPY_OVERLAP)
    HPVM_CL_ERROR(CL_BUILD_PROGRAM_FAILURE)
    HPVM_CL_ERROR(CL_MISALIGNED_SUB_BUFFER_OFFSET)
    HPVM_CL_ERROR(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    HPVM_CL_ERROR(CL_COMPILE_PROGRAM_FAILURE)
    HPVM_CL_ERROR(CL_LINKER_NOT_AVAILABLE)
    HPVM_CL_ERROR(CL_LINK_PROGRAM_FAILURE)
    HPVM_CL_ERROR(CL_KERNEL_ARG_INFO_NOT_AVAILABLE)
    HPVM_CL_ERROR(CL_INVALID_VALUE)
    HPVM_CL_ERROR(CL_INVALID_PLATFORM)
    HPVM_CL_ERROR(CL_INVALID_DEVICE)
    HPVM_CL_ERROR(CL_INVALID_CONTEXT)
    HPVM_CL_ERROR(CL_INVALID_COMMAND_QUEUE)
    HPVM_CL_ERROR(CL_INVALID_MEM_OBJECT)
    HPVM_CL_ERROR(CL_INVALID_BINARY)
    HPVM_CL_ERROR(CL_INVALID_BUILD_OPTIONS)
    HPVM_CL_ERROR(CL_INVALID_PROGRAM)
    HPVM_CL_ERROR(CL_INVALID_PROGRAM_EXECUTABLE)
    HPVM_CL_ERROR(CL_INVALID_KERNEL_NAME)
    HPVM_CL_ERROR(CL_INVALID_KERNEL_DEFINITION)
    HPVM_CL_ERROR(CL_INVALID_KERNEL)
    HPVM_CL_ERROR(CL_INVALID_ARG_INDEX)
    HPVM_CL_ERROR(CL_INVALID_ARG_VALUE)
    HPVM_CL_ERROR(CL_INVALID_ARG_SIZE)
    HPVM_CL_ERROR(CL_INVALID_KERNEL_ARGS)
    HPVM_CL_ERROR(CL_INVALID_WORK_DIMENSION)
    HPVM_CL_ERROR(CL_INVALID_WORK_GROUP_SIZE)
    HPVM_CL_ERROR(CL_INVALID_WORK_ITEM_SIZE)
    HPVM_CL_ERROR(CL_INVALID_GLOBAL_OFFSET)
    HPVM_CL_ERROR(CL_INVALID_EVENT_WAIT_LIST)
    HPVM_CL_ERROR(CL_INVALID_EVENT)
    HPVM_CL_ERROR(CL_INVALID_OPERATION)
    HPVM_CL_ERROR(CL_INVALID_BUFFER_SIZE)
    HPVM_CL_ERROR(CL_INVALID_GLOBAL_WORK_SIZE)
    HPVM_CL_ERROR(CL_INVALID_PROPERTY)
    HPVM_CL_ERROR(CL_PLATFORM_NOT_FOUND_KHR)
#undef HPVM_CL_ERROR
    default:
      return "error";
  }
}

}  // namespace

std::string ErrorName(cl_int error) { return std::string(Word(error)) + " (" + std::to_string(error) + ")"; }

Status FromCl(cl_int error, std::string_view doing) {
  if (error == CL_SUCCESS) {
    return absl::OkStatus();
  }
  const std::string message = std::string(doing) + " fails with " + ErrorName(error) + ".";
  switch (error) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:
      return ResourceExhausted(message);
    default:
      return Internal(message);
  }
}

std::string DeviceText(cl_device_id device, cl_device_info what) {
  size_t bytes = 0;
  if (clGetDeviceInfo(device, what, 0, nullptr, &bytes) != CL_SUCCESS || bytes == 0) {
    return "";
  }
  std::string text(bytes, '\0');
  if (clGetDeviceInfo(device, what, bytes, text.data(), nullptr) != CL_SUCCESS) {
    return "";
  }
  return text.substr(0, std::min(text.find('\0'), text.size()));
}

std::string PlatformText(cl_platform_id platform, cl_platform_info what) {
  size_t bytes = 0;
  if (clGetPlatformInfo(platform, what, 0, nullptr, &bytes) != CL_SUCCESS || bytes == 0) {
    return "";
  }
  std::string text(bytes, '\0');
  if (clGetPlatformInfo(platform, what, bytes, text.data(), nullptr) != CL_SUCCESS) {
    return "";
  }
  return text.substr(0, std::min(text.find('\0'), text.size()));
}

bool HasWord(std::string_view list, std::string_view name) {
  size_t at = 0;
  while ((at = list.find(name, at)) != std::string_view::npos) {
    const size_t end = at + name.size();
    if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ')) {
      return true;
    }
    at = end;
  }
  return false;
}

}  // namespace hpvm::opencl
