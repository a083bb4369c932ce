// SPDX-License-Identifier: Apache-2.0
// The peer "pocl": the same bodies in OpenCL C, on PoCL's CPU device if it is installed.
#include <algorithm>
#include <utility>

#include "bench/cpu/cpu_contender.h"
#include "bench/gpu/opencl_api.h"
#include "bench/processes.h"

namespace hpvm::bench {
namespace {

// Folder where PoCL caches compiled kernels; deleted with the process, so that no run depends on an earlier one.
const std::string& CacheFolder() {
  static const TemporaryFolder folder;
  return folder.path();
}

struct OpenCl {
  const OpenClApi& api;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
  cl_program program = nullptr;
};

StatusOr<cl_device_id> FindPocl(const OpenClApi& cl) {
  for (const OpenClDevice& one : OpenClDevices(cl)) {
    if (one.is_processor && one.platform_name.find("Portable Computing Language") != std::string::npos) {
      return one.device;
    }
  }
  return Unavailable("None of the OpenCL platforms is PoCL.");
}

StatusOr<OpenCl> Start() {
  setenv("POCL_CACHE_DIR", CacheFolder().c_str(), 0);
  HPVMD_ASSIGN_OR_RETURN(const OpenClApi* api, LoadOpenCl());
  HPVMD_ASSIGN_OR_RETURN(const cl_device_id device, FindPocl(*api));
  OpenCl cl{.api = *api};
  cl_int code = CL_SUCCESS;
  cl.context = api->create_context(nullptr, 1, &device, nullptr, nullptr, &code);
  RETURN_IF_CL_ERROR("clCreateContext", code);
  cl.queue = api->create_queue(cl.context, device, 0, &code);
  RETURN_IF_CL_ERROR("clCreateCommandQueue", code);
  HPVMD_ASSIGN_OR_RETURN(cl.program, BuildOpenCl(*api, cl.context, device, "bench_cpu", "-cl-std=CL1.2"));
  return cl;
}

// One per process, kept to its end.
StatusOr<const OpenCl*> Shared() {
  static const StatusOr<OpenCl> cl = Start();
  return cl.ok() ? StatusOr<const OpenCl*>(&*cl) : cl.status();
}

using LocalSize = std::array<uint64_t, 3>;  // The runtime chooses when 0.

// Returns the largest divisor of n that is at most `limit`: OpenCL 1.2 requires whole groups.
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
      cl_.api.release_buffer(buffer);
    }
    if (kernel_ != nullptr) {
      cl_.api.release_kernel(kernel_);
    }
  }

  Status Init() {
    cl_int code = CL_SUCCESS;
    kernel_ = cl_.api.create_kernel(cl_.program, problem().name.c_str(), &code);
    RETURN_IF_CL_ERROR("clCreateKernel", code);
    cl_uint argument = 0;
    for (size_t i = 0; i < problem().arrays.size(); ++i) {
      const CpuArray& array = problem().arrays[i];
      const cl_mem_flags access = array.access == Access::kIn ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE;
      cl_mem buffer = cl_.api.create_buffer(cl_.context, access | CL_MEM_USE_HOST_PTR,
                                            array.count * ElementBytes(array.type), data(i), &code);
      RETURN_IF_CL_ERROR("clCreateBuffer", code);
      buffers_.push_back(buffer);
      RETURN_IF_CL_ERROR("clSetKernelArg", cl_.api.set_argument(kernel_, argument++, sizeof(buffer), &buffer));
    }
    for (const CpuScalar& scalar : problem().scalars) {
      code = std::visit([&](auto value) { return cl_.api.set_argument(kernel_, argument++, sizeof(value), &value); },
                        scalar);
      RETURN_IF_CL_ERROR("clSetKernelArg", code);
    }
    return absl::OkStatus();
  }

  std::string chosen() const override {
    return size_[0] == 0 ? "local size left to the runtime"
                         : "local size " + std::to_string(size_[0]) + " x " + std::to_string(size_[1]);
  }

  // Tries local sizes and keeps the fastest; a separate run compiles each.
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
      code =
          cl_.api.enqueue(cl_.queue, kernel_, 3, nullptr, global, size_[0] == 0 ? nullptr : local, 0, nullptr, nullptr);
      code = code == CL_SUCCESS ? cl_.api.finish(cl_.queue) : code;
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
