// SPDX-License-Identifier: Apache-2.0
// The peer "pocl": the same bodies in OpenCL C, on PoCL's CPU device if it is installed.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "bench/cpu_contender.h"
#include "bench/processes.h"

namespace hpvm::bench {
namespace {

// The loader's functions, found when the program runs, so that it starts where there is no OpenCL.
struct OpenCl {
  decltype(&clGetPlatformIDs) get_platforms;
  decltype(&clGetPlatformInfo) get_platform_info;
  decltype(&clGetDeviceIDs) get_devices;
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
  decltype(&clFinish) finish;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
  cl_program program = nullptr;
};

Status Failed(const char* what, cl_int code) {
  return Internal(std::string(what) + " failed with OpenCL's code " + std::to_string(code) + ".");
}
#define RETURN_IF_CL_ERROR(what, code)                          \
  do {                                                          \
    if (const cl_int cl_code = (code); cl_code != CL_SUCCESS) { \
      return Failed(what, cl_code);                             \
    }                                                           \
  } while (false)

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Status FindFunctions(OpenCl& cl) {
  void* library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable(dlerror());
  }
  const bool all =
      Find(library, "clGetPlatformIDs", cl.get_platforms) && Find(library, "clGetPlatformInfo", cl.get_platform_info) &&
      Find(library, "clGetDeviceIDs", cl.get_devices) && Find(library, "clCreateContext", cl.create_context) &&
      Find(library, "clCreateCommandQueue", cl.create_queue) &&
      Find(library, "clCreateProgramWithSource", cl.create_program) &&
      Find(library, "clBuildProgram", cl.build_program) && Find(library, "clGetProgramBuildInfo", cl.get_build_info) &&
      Find(library, "clCreateKernel", cl.create_kernel) && Find(library, "clReleaseKernel", cl.release_kernel) &&
      Find(library, "clCreateBuffer", cl.create_buffer) && Find(library, "clReleaseMemObject", cl.release_buffer) &&
      Find(library, "clSetKernelArg", cl.set_argument) && Find(library, "clEnqueueNDRangeKernel", cl.enqueue) &&
      Find(library, "clFinish", cl.finish);
  return all ? absl::OkStatus() : Unavailable("libOpenCL.so.1 lacks functions of OpenCL 1.2.");
}

StatusOr<cl_platform_id> FindPocl(const OpenCl& cl) {
  cl_platform_id platforms[16];
  cl_uint count = 0;
  if (cl.get_platforms(16, platforms, &count) != CL_SUCCESS) {
    count = 0;
  }
  for (cl_uint i = 0; i < std::min(count, 16u); ++i) {
    char name[256] = {};
    cl.get_platform_info(platforms[i], CL_PLATFORM_NAME, sizeof(name) - 1, name, nullptr);
    if (std::string(name).find("Portable Computing Language") != std::string::npos) {
      return platforms[i];
    }
  }
  return Unavailable("Of the OpenCL platforms (" + std::to_string(count) + ") none is PoCL.");
}

Status BuildProgram(OpenCl& cl, cl_device_id device) {
  const std::string folder = ProgramFolder() + "/bench_cpu";
  std::ifstream file(folder + "/opencl.cl");
  const std::string source{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const char* text = source.c_str();
  const size_t size = source.size();
  cl_int code = CL_SUCCESS;
  cl.program = cl.create_program(cl.context, 1, &text, &size, &code);
  RETURN_IF_CL_ERROR("clCreateProgramWithSource", code);
  code = cl.build_program(cl.program, 1, &device, ("-cl-std=CL1.2 -I" + folder).c_str(), nullptr, nullptr);
  if (code != CL_SUCCESS) {
    std::string log(16'384, '\0');
    cl.get_build_info(cl.program, device, CL_PROGRAM_BUILD_LOG, log.size(), log.data(), nullptr);
    return Internal("PoCL does not build " + folder + "/opencl.cl: " + log.c_str());
  }
  return absl::OkStatus();
}

// PoCL keeps compiled kernels in a folder; this one goes with the process, so that no run depends on an earlier one.
const std::string& CacheFolder() {
  static const TemporaryFolder folder;
  return folder.path();
}

StatusOr<OpenCl> Start() {
  setenv("POCL_CACHE_DIR", CacheFolder().c_str(), 0);
  OpenCl cl{};
  HPVMD_RETURN_IF_ERROR(FindFunctions(cl));
  HPVMD_ASSIGN_OR_RETURN(const cl_platform_id platform, FindPocl(cl));
  cl_device_id device = nullptr;
  RETURN_IF_CL_ERROR("clGetDeviceIDs", cl.get_devices(platform, CL_DEVICE_TYPE_CPU, 1, &device, nullptr));
  cl_int code = CL_SUCCESS;
  cl.context = cl.create_context(nullptr, 1, &device, nullptr, nullptr, &code);
  RETURN_IF_CL_ERROR("clCreateContext", code);
  cl.queue = cl.create_queue(cl.context, device, 0, &code);
  RETURN_IF_CL_ERROR("clCreateCommandQueue", code);
  HPVMD_RETURN_IF_ERROR(BuildProgram(cl, device));
  return cl;
}

// One a process, kept to its end.
StatusOr<const OpenCl*> Shared() {
  static const StatusOr<OpenCl> cl = Start();
  return cl.ok() ? StatusOr<const OpenCl*>(&*cl) : cl.status();
}

using LocalSize = std::array<uint64_t, 3>;  // 0: the runtime chooses.

// The largest divisor of n that is at most `limit`: OpenCL 1.2 wants whole groups.
uint64_t Divisor(uint64_t n, uint64_t limit) {
  uint64_t best = 1;
  for (uint64_t d = 1; d <= std::min(n, limit); ++d) {
    best = n % d == 0 ? d : best;
  }
  return best;
}

std::vector<LocalSize> LocalSizes(const CpuCase& problem, bool tries_sizes) {
  if (problem.group[0] != 0) {
    return {problem.group};
  }
  std::vector<LocalSize> sizes = {{0, 0, 0}};
  if (tries_sizes) {
    for (uint64_t x : {64, 256}) {
      const LocalSize size = {Divisor(problem.extent[0], x), 1, 1};
      if (size[0] > 1 && std::find(sizes.begin(), sizes.end(), size) == sizes.end()) {
        sizes.push_back(size);
      }
    }
    if (problem.extent[1] > 1) {
      sizes.push_back({Divisor(problem.extent[0], 16), Divisor(problem.extent[1], 16), 1});
    }
  }
  return sizes;
}

class PoclContender final : public CpuContender {
 public:
  PoclContender(const CpuCase& problem, const OpenCl& cl, bool tries_sizes)
      : CpuContender("pocl", problem), cl_(cl), sizes_(LocalSizes(problem, tries_sizes)), size_(sizes_[0]) {}
  ~PoclContender() override {
    for (cl_mem buffer : buffers_) {
      cl_.release_buffer(buffer);
    }
    if (kernel_ != nullptr) {
      cl_.release_kernel(kernel_);
    }
  }

  Status Init() {
    cl_int code = CL_SUCCESS;
    kernel_ = cl_.create_kernel(cl_.program, problem().name.c_str(), &code);
    RETURN_IF_CL_ERROR("clCreateKernel", code);
    cl_uint argument = 0;
    for (size_t i = 0; i < problem().arrays.size(); ++i) {
      const CpuArray& array = problem().arrays[i];
      const cl_mem_flags access = array.access == Access::kIn ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE;
      cl_mem buffer = cl_.create_buffer(cl_.context, access | CL_MEM_USE_HOST_PTR,
                                        array.count * ElementBytes(array.type), data(i), &code);
      RETURN_IF_CL_ERROR("clCreateBuffer", code);
      buffers_.push_back(buffer);
      RETURN_IF_CL_ERROR("clSetKernelArg", cl_.set_argument(kernel_, argument++, sizeof(buffer), &buffer));
    }
    for (const CpuScalar& scalar : problem().scalars) {
      code =
          std::visit([&](auto value) { return cl_.set_argument(kernel_, argument++, sizeof(value), &value); }, scalar);
      RETURN_IF_CL_ERROR("clSetKernelArg", code);
    }
    return absl::OkStatus();
  }

  std::string chosen() const override {
    return size_[0] == 0 ? "local size left to the runtime"
                         : "local size " + std::to_string(size_[0]) + " x " + std::to_string(size_[1]);
  }

  // The quickest local size of those tried; each is compiled by a run of its own.
  Status Settle(double seconds) override {
    LocalSize best_size = sizes_[0];
    double best = 0;
    for (const LocalSize& size : sizes_) {
      size_ = size;
      HPVMD_ASSIGN_OR_RETURN(double once, Run());
      for (int i = 0; i < 2 && once < seconds; ++i) {
        HPVMD_ASSIGN_OR_RETURN(const double again, Run());
        once = std::min(once, again);
      }
      if (best == 0 || once < best) {
        best = once;
        best_size = size;
      }
    }
    size_ = best_size;
    return absl::OkStatus();
  }

 private:
  StatusOr<double> Launch() override {
    size_t global[3], local[3];
    for (size_t i = 0; i < 3; ++i) {
      global[i] = problem().extent[i];
      local[i] = size_[i];
    }
    cl_int code = CL_SUCCESS;
    const double seconds = Seconds([&] {
      code = cl_.enqueue(cl_.queue, kernel_, 3, nullptr, global, size_[0] == 0 ? nullptr : local, 0, nullptr, nullptr);
      code = code == CL_SUCCESS ? cl_.finish(cl_.queue) : code;
    });
    RETURN_IF_CL_ERROR("clEnqueueNDRangeKernel", code);
    return seconds;
  }

  const OpenCl& cl_;
  std::vector<LocalSize> sizes_;
  LocalSize size_;
  cl_kernel kernel_ = nullptr;
  std::vector<cl_mem> buffers_;
};

}  // namespace

StatusOr<std::unique_ptr<CpuContender>> MakePocl(const CpuCase& problem, bool tries_sizes) {
  HPVMD_ASSIGN_OR_RETURN(const OpenCl* cl, Shared());
  auto contender = std::make_unique<PoclContender>(problem, *cl, tries_sizes);
  HPVMD_RETURN_IF_ERROR(contender->Init());
  return contender;
}

}  // namespace hpvm::bench
