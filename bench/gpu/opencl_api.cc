// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/opencl_api.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>

#include "bench/gpu/library.h"
#include "bench/processes.h"

namespace hpvm::bench {
namespace {

StatusOr<OpenClApi> FindFunctions() {
  void* library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable(dlerror());
  }
  OpenClApi cl{};
  const bool all = FindFunction(library, "clGetPlatformIDs", cl.get_platforms) &&
                   FindFunction(library, "clGetPlatformInfo", cl.get_platform_info) &&
                   FindFunction(library, "clGetDeviceIDs", cl.get_devices) &&
                   FindFunction(library, "clGetDeviceInfo", cl.get_device_info) &&
                   FindFunction(library, "clCreateContext", cl.create_context) &&
                   FindFunction(library, "clCreateCommandQueue", cl.create_queue) &&
                   FindFunction(library, "clCreateProgramWithSource", cl.create_program) &&
                   FindFunction(library, "clBuildProgram", cl.build_program) &&
                   FindFunction(library, "clGetProgramBuildInfo", cl.get_build_info) &&
                   FindFunction(library, "clCreateKernel", cl.create_kernel) &&
                   FindFunction(library, "clReleaseKernel", cl.release_kernel) &&
                   FindFunction(library, "clCreateBuffer", cl.create_buffer) &&
                   FindFunction(library, "clReleaseMemObject", cl.release_buffer) &&
                   FindFunction(library, "clSetKernelArg", cl.set_argument) &&
                   FindFunction(library, "clEnqueueNDRangeKernel", cl.enqueue) &&
                   FindFunction(library, "clEnqueueReadBuffer", cl.read) &&
                   FindFunction(library, "clEnqueueWriteBuffer", cl.write) &&
                   FindFunction(library, "clEnqueueCopyBuffer", cl.copy) &&
                   FindFunction(library, "clEnqueueMapBuffer", cl.map) && FindFunction(library, "clFinish", cl.finish);
  return all ? StatusOr<OpenClApi>(cl) : Unavailable("libOpenCL.so.1 lacks functions of OpenCL 1.2.");
}

int Rank(cl_device_type type) {
  return (type & CL_DEVICE_TYPE_GPU) != 0 ? 0 : (type & CL_DEVICE_TYPE_ACCELERATOR) != 0 ? 1 : 2;
}

}  // namespace

StatusOr<const OpenClApi*> LoadOpenCl() {
  static const StatusOr<OpenClApi> cl = FindFunctions();
  return cl.ok() ? StatusOr<const OpenClApi*>(&*cl) : cl.status();
}

Status OpenClFailed(const char* what, cl_int code) {
  return Internal(std::string(what) + " failed with OpenCL's code " + std::to_string(code) + ".");
}

std::vector<OpenClDevice> OpenClDevices(const OpenClApi& cl) {
  std::array<cl_platform_id, 16> platforms{};
  cl_uint platform_count = 0;
  if (cl.get_platforms(static_cast<cl_uint>(platforms.size()), platforms.data(), &platform_count) != CL_SUCCESS) {
    return {};
  }
  std::vector<std::pair<int, OpenClDevice>> ranked;
  for (size_t p = 0; p < std::min<size_t>(platform_count, platforms.size()); ++p) {
    char name[256] = {};
    cl.get_platform_info(platforms[p], CL_PLATFORM_NAME, sizeof(name) - 1, name, nullptr);
    std::array<cl_device_id, 64> devices{};
    cl_uint count = 0;
    if (cl.get_devices(platforms[p], CL_DEVICE_TYPE_ALL, static_cast<cl_uint>(devices.size()), devices.data(),
                       &count) != CL_SUCCESS) {
      continue;
    }
    for (size_t d = 0; d < std::min<size_t>(count, devices.size()); ++d) {
      cl_device_type type = 0;
      cl.get_device_info(devices[d], CL_DEVICE_TYPE, sizeof(type), &type, nullptr);
      ranked.push_back({Rank(type), {platforms[p], devices[d], name, Rank(type) == 2}});
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<OpenClDevice> devices;
  for (auto& [rank, device] : ranked) {
    devices.push_back(std::move(device));
  }
  return devices;
}

StatusOr<cl_program> BuildOpenCl(const OpenClApi& cl, cl_context context, cl_device_id device,
                                 const std::string& folder, const std::string& options) {
  const std::string path = ProgramFolder() + "/" + folder;
  std::ifstream file(path + "/opencl.cl");
  const std::string source{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const char* text = source.c_str();
  const size_t size = source.size();
  cl_int code = CL_SUCCESS;
  cl_program program = cl.create_program(context, 1, &text, &size, &code);
  RETURN_IF_CL_ERROR("clCreateProgramWithSource", code);
  code = cl.build_program(program, 1, &device, (options + " -I" + path).c_str(), nullptr, nullptr);
  if (code != CL_SUCCESS) {
    std::string log(16'384, '\0');
    cl.get_build_info(program, device, CL_PROGRAM_BUILD_LOG, log.size(), log.data(), nullptr);
    return Internal("The driver does not build " + path + "/opencl.cl: " + log.c_str());
  }
  return program;
}

}  // namespace hpvm::bench
