// SPDX-License-Identifier: Apache-2.0
// OpenCL's headers, owned handles, and errors as statuses. For .cc files of this folder, and headers that only they
// include.
#ifndef HPVMD_BACKENDS_OPENCL_CL_H_
#define HPVMD_BACKENDS_OPENCL_CL_H_

// For clCreateCommandQueue, which every driver has; the newer call exists only since 2.0.
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace hpvm::opencl {

// Handle owns one reference to an OpenCL object.
template <typename T, cl_int(CL_API_CALL* kRelease)(T)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T object) : object_(object) {}
  Handle(Handle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      Reset();
      object_ = std::exchange(other.object_, nullptr);
    }
    return *this;
  }
  ~Handle() { Reset(); }

  T get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  void Reset() {
    if (object_ != nullptr) {
      kRelease(std::exchange(object_, nullptr));
    }
  }
  // For calls that store a new object; releases the current object.
  T* out() {
    Reset();
    return &object_;
  }

 private:
  T object_ = nullptr;
};

using Context = Handle<cl_context, clReleaseContext>;
using Queue = Handle<cl_command_queue, clReleaseCommandQueue>;
using Memory = Handle<cl_mem, clReleaseMemObject>;
using Program = Handle<cl_program, clReleaseProgram>;
using Kernel = Handle<cl_kernel, clReleaseKernel>;
using Event = Handle<cl_event, clReleaseEvent>;

// Returns "CL_OUT_OF_RESOURCES (-5)".
std::string ErrorName(cl_int error);
// Returns OK for CL_SUCCESS, kResourceExhausted for memory and resources, otherwise kInternal. `doing`: "Creating a
// buffer of 16 bytes".
Status FromCl(cl_int error, std::string_view doing);

// Return properties of a device or platform; zero or empty when the driver does not know them.
template <typename T>
T DeviceValue(cl_device_id device, cl_device_info what) {
  T value{};
  return clGetDeviceInfo(device, what, sizeof(value), &value, nullptr) == CL_SUCCESS ? value : T{};
}
std::string DeviceText(cl_device_id device, cl_device_info what);
std::string PlatformText(cl_platform_id platform, cl_platform_info what);
// Returns true when a blank-separated list of names contains `name`.
bool HasWord(std::string_view list, std::string_view name);

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_CL_H_
