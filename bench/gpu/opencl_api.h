// SPDX-License-Identifier: Apache-2.0
// OpenCL's functions, resolved at run time, so that the program starts without OpenCL.
#ifndef HPVMD_BENCH_GPU_OPENCL_API_H_
#define HPVMD_BENCH_GPU_OPENCL_API_H_

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <string>
#include <vector>

#include "base/status.h"

namespace hpvm::bench {

struct OpenClApi {
  decltype(&clGetPlatformIDs) get_platforms;
  decltype(&clGetPlatformInfo) get_platform_info;
  decltype(&clGetDeviceIDs) get_devices;
  decltype(&clGetDeviceInfo) get_device_info;
  decltype(&clCreateContext) create_context;
  decltype(&clCreateCommandQueue) create_queue;
  decltype(&clCreateProgramWithSource) create_program;
  decltype(&clBuildProgram) build_program;
  decltype(&clGetProgramBuildInfo) get_build_info;
  decltype(&clCreateKernel) create_kernel;
  decltype(&clReleaseKernel) release_kernel;
  decltype(&clCreateBuffer) create_buffer;
  decltype(&clReleaseMemObject) release_buffer;
  decltype(&clSetKernelArg) set_argument;
  decltype(&clEnqueueNDRangeKernel) enqueue;
  decltype(&clEnqueueReadBuffer) read;
  decltype(&clEnqueueWriteBuffer) write;
  decltype(&clEnqueueCopyBuffer) copy;
  decltype(&clEnqueueMapBuffer) map;
  decltype(&clFinish) finish;
};
// Returns the loader's functions, which stay loaded; kUnavailable without a loader.
StatusOr<const OpenClApi*> LoadOpenCl();

Status OpenClFailed(const char* what, cl_int code);
#define RETURN_IF_CL_ERROR(what, code)                          \
  do {                                                          \
    if (const cl_int cl_code = (code); cl_code != CL_SUCCESS) { \
      return OpenClFailed(what, cl_code);                       \
    }                                                           \
  } while (false)

struct OpenClDevice {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  std::string platform_name;
  bool is_processor = false;
};
// In hpvmd's numbering: GPUs, accelerators, processors; within each kind the loader's order.
std::vector<OpenClDevice> OpenClDevices(const OpenClApi& cl);

// Builds a program from the file bin/`folder`/opencl.cl, with the files that it includes from there. The build log is
// in the status.
StatusOr<cl_program> BuildOpenCl(const OpenClApi& cl, cl_context context, cl_device_id device,
                                 const std::string& folder, const std::string& options);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_GPU_OPENCL_API_H_
