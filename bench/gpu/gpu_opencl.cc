// SPDX-License-Identifier: Apache-2.0
// The peer "opencl": the same bodies as hand-written OpenCL C, through plain OpenCL calls.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "bench/gpu/gpu_contender.h"
#include "bench/gpu/opencl_api.h"

namespace hpvm::bench {
namespace {

using LocalSize = std::array<uint64_t, 3>;  // 0: the driver chooses.

// Whole groups only, as OpenCL 1.2 wants them; 0 where none is near what is wanted.
uint64_t Divisor(uint64_t n, uint64_t wanted) {
  for (uint64_t d = wanted; d >= std::max<uint64_t>(1, wanted / 2); --d) {
    if (n % d == 0) {
      return d;
    }
  }
  return 0;
}

std::vector<LocalSize> LocalSizes(const CpuCase& problem) {
  if (problem.group[0] != 0) {
    return {problem.group};
  }
  std::vector<LocalSize> sizes = {{0, 0, 0}};
  const std::pair<uint64_t, uint64_t> shapes[] = {{64, 1},  {128, 1}, {256, 1}, {512, 1},
                                                  {16, 16}, {32, 8},  {32, 32}, {8, 8}};
  for (const auto& [x, y] : shapes) {
    const LocalSize size = {Divisor(problem.extent[0], x), Divisor(problem.extent[1], y), 1};
    if (size[0] != 0 && size[1] != 0 && std::find(sizes.begin(), sizes.end(), size) == sizes.end()) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

struct Session {
  const OpenClApi& api;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
};

class PeerContender final : public GpuContender {
 public:
  PeerContender(const std::string& name, const CpuCase& problem, const Session& cl)
      : GpuContender(name, problem), cl_(cl), sizes_(LocalSizes(problem)), size_(sizes_[0]) {}
  ~PeerContender() override {
    cl_.api.finish(cl_.queue);
    for (cl_mem buffer : buffers_) {
      cl_.api.release_buffer(buffer);
    }
    if (kernel_ != nullptr) {
      cl_.api.release_kernel(kernel_);
    }
  }

  Status Init(cl_program program) {
    cl_int code = CL_SUCCESS;
    kernel_ = cl_.api.create_kernel(program, problem().name.c_str(), &code);
    RETURN_IF_CL_ERROR("clCreateKernel", code);
    cl_uint argument = 0;
    for (const CpuArray& array : problem().arrays) {
      cl_mem buffer =
          cl_.api.create_buffer(cl_.context, array.access == Access::kIn ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE,
                                array.count * ElementBytes(array.type), nullptr, &code);
      RETURN_IF_CL_ERROR("clCreateBuffer", code);
      buffers_.push_back(buffer);
      RETURN_IF_CL_ERROR("clSetKernelArg", cl_.api.set_argument(kernel_, argument++, sizeof(buffer), &buffer));
    }
    for (const CpuScalar& scalar : problem().scalars) {
      code = std::visit([&](auto value) { return cl_.api.set_argument(kernel_, argument++, sizeof(value), &value); },
                        scalar);
      RETURN_IF_CL_ERROR("clSetKernelArg", code);
    }
    return Upload(/*all=*/true);
  }

  std::string chosen() const override {
    return size_[0] == 0 ? "local size left to the driver"
                         : "local size " + std::to_string(size_[0]) + " x " + std::to_string(size_[1]);
  }

  // The quickest local size of those that the device takes.
  Status Settle(double seconds) override {
    LocalSize best_size = sizes_[0];
    double best = 0;
    for (const LocalSize& size : sizes_) {
      size_ = size;
      StatusOr<double> once = Batch(2);
      if (!once.ok()) {
        continue;  // Larger than the device has.
      }
      const auto launches =
          static_cast<uint32_t>(std::clamp(seconds / static_cast<double>(sizes_.size()) / *once, 1.0, 20.0));
      HPVMD_ASSIGN_OR_RETURN(const double again, Batch(launches));
      const double quickest = std::min(*once, again);
      if (best == 0 || quickest < best) {
        best = quickest;
        best_size = size;
      }
    }
    size_ = best_size;
    return absl::OkStatus();
  }

  StatusOr<double> Batch(uint32_t launches) override {
    size_t global[3], local[3];
    for (size_t i = 0; i < 3; ++i) {
      global[i] = problem().extent[i];
      local[i] = size_[i];
    }
    cl_int code = CL_SUCCESS;
    const double seconds = Seconds([&] {
      for (uint32_t i = 0; i < launches && code == CL_SUCCESS; ++i) {
        code = cl_.api.enqueue(cl_.queue, kernel_, 3, nullptr, global, size_[0] == 0 ? nullptr : local, 0, nullptr,
                               nullptr);
      }
      const cl_int end = cl_.api.finish(cl_.queue);
      code = code == CL_SUCCESS ? end : code;
    });
    RETURN_IF_CL_ERROR("clEnqueueNDRangeKernel", code);
    return seconds / launches;
  }

 private:
  StatusOr<double> Launch() override {
    HPVMD_RETURN_IF_ERROR(Upload(/*all=*/false));
    HPVMD_ASSIGN_OR_RETURN(const double seconds, Batch(1));
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const CpuArray& array = problem().arrays[i];
      if (array.access != Access::kIn) {
        RETURN_IF_CL_ERROR("clEnqueueReadBuffer",
                           cl_.api.read(cl_.queue, buffers_[i], CL_TRUE, 0, array.count * ElementBytes(array.type),
                                        data(i), 0, nullptr, nullptr));
      }
    }
    return seconds;
  }

  Status Upload(bool all) {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const CpuArray& array = problem().arrays[i];
      if (array.access == Access::kInOut || all) {
        const uint8_t* from = array.access == Access::kOut ? data(i) : array.initial.data();  // Zeros, as ours are.
        RETURN_IF_CL_ERROR("clEnqueueWriteBuffer",
                           cl_.api.write(cl_.queue, buffers_[i], CL_TRUE, 0, array.count * ElementBytes(array.type),
                                         from, 0, nullptr, nullptr));
      }
    }
    return absl::OkStatus();
  }

  const Session& cl_;
  std::vector<LocalSize> sizes_;
  LocalSize size_;
  cl_kernel kernel_ = nullptr;
  std::vector<cl_mem> buffers_;
};

class Peer final : public OpenClPeer {
 public:
  Peer(Session cl, cl_program exact, cl_program fast) : cl_(cl), exact_(exact), fast_(fast) {}

  StatusOr<std::unique_ptr<GpuContender>> Prepare(const CpuCase& problem, bool exact) override {
    auto contender = std::make_unique<PeerContender>(exact ? "opencl_exact" : "opencl", problem, cl_);
    HPVMD_RETURN_IF_ERROR(contender->Init(exact ? exact_ : fast_));
    return contender;
  }

  StatusOr<double> Launches(uint32_t count, bool dependent) override {
    constexpr size_t kBuffers = 250, kBytes = 64;
    cl_int code = CL_SUCCESS;
    cl_kernel kernel = cl_.api.create_kernel(fast_, "advance", &code);
    RETURN_IF_CL_ERROR("clCreateKernel", code);
    std::vector<cl_mem> buffers(dependent ? 1 : kBuffers);
    const std::vector<uint8_t> zeros(kBytes);
    for (cl_mem& buffer : buffers) {
      buffer = cl_.api.create_buffer(cl_.context, CL_MEM_READ_WRITE, kBytes, nullptr, &code);
      RETURN_IF_CL_ERROR("clCreateBuffer", code);
      cl_.api.write(cl_.queue, buffer, CL_TRUE, 0, kBytes, zeros.data(), 0, nullptr, nullptr);
    }
    const size_t one = 1;
    const double seconds = Seconds([&] {
      for (uint32_t i = 0; i < count && code == CL_SUCCESS; ++i) {
        cl_.api.set_argument(kernel, 0, sizeof(cl_mem), &buffers[i % buffers.size()]);
        code = cl_.api.enqueue(cl_.queue, kernel, 1, nullptr, &one, &one, 0, nullptr, nullptr);
      }
      const cl_int end = cl_.api.finish(cl_.queue);
      code = code == CL_SUCCESS ? end : code;
    });
    for (cl_mem buffer : buffers) {
      cl_.api.release_buffer(buffer);
    }
    cl_.api.release_kernel(kernel);
    RETURN_IF_CL_ERROR("clEnqueueNDRangeKernel", code);
    return seconds / count;
  }

  StatusOr<Copies> MeasureCopies(uint64_t bytes) override {
    cl_int code = CL_SUCCESS;
    cl_mem pinned =
        cl_.api.create_buffer(cl_.context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, nullptr, &code);
    RETURN_IF_CL_ERROR("clCreateBuffer", code);
    void* host =
        cl_.api.map(cl_.queue, pinned, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, nullptr, nullptr, &code);
    RETURN_IF_CL_ERROR("clEnqueueMapBuffer", code);
    std::memset(host, 1, bytes);
    cl_mem device[2];
    for (cl_mem& one : device) {
      one = cl_.api.create_buffer(cl_.context, CL_MEM_READ_WRITE, bytes, nullptr, &code);
      RETURN_IF_CL_ERROR("clCreateBuffer", code);
    }
    const auto rate = [&](const std::function<cl_int()>& copy) {
      double best = 0;
      for (int round = 0; round < 5; ++round) {
        const double seconds = Seconds([&] {
          const cl_int done = copy();
          code = code == CL_SUCCESS ? done : code;
          cl_.api.finish(cl_.queue);
        });
        best = std::max(best, static_cast<double>(bytes) / seconds);
      }
      return best;
    };
    Copies copies;
    copies.to_device =
        rate([&] { return cl_.api.write(cl_.queue, device[0], CL_TRUE, 0, bytes, host, 0, nullptr, nullptr); });
    copies.from_device =
        rate([&] { return cl_.api.read(cl_.queue, device[0], CL_TRUE, 0, bytes, host, 0, nullptr, nullptr); });
    copies.on_device =
        rate([&] { return cl_.api.copy(cl_.queue, device[0], device[1], 0, 0, bytes, 0, nullptr, nullptr); });
    for (cl_mem one : {pinned, device[0], device[1]}) {
      cl_.api.release_buffer(one);
    }
    RETURN_IF_CL_ERROR("A copy", code);
    return copies;
  }

 private:
  Session cl_;
  cl_program exact_, fast_;
};

}  // namespace

StatusOr<std::unique_ptr<OpenClPeer>> OpenClPeer::Start(const std::string& name) {
  HPVMD_ASSIGN_OR_RETURN(const OpenClApi* api, LoadOpenCl());
  const std::vector<OpenClDevice> devices = OpenClDevices(*api);
  size_t index = 0;
  if (const size_t colon = name.find(':'); colon != std::string::npos) {
    std::from_chars(name.data() + colon + 1, name.data() + name.size(), index);
  }
  if (index >= devices.size()) {
    return Unavailable("OpenCL has " + std::to_string(devices.size()) + " devices, not \"" + name + "\".");
  }
  const cl_device_id device = devices[index].device;
  Session cl{.api = *api};
  cl_int code = CL_SUCCESS;
  cl.context = api->create_context(nullptr, 1, &device, nullptr, nullptr, &code);
  RETURN_IF_CL_ERROR("clCreateContext", code);
  cl.queue = api->create_queue(cl.context, device, 0, &code);
  RETURN_IF_CL_ERROR("clCreateCommandQueue", code);
  const std::string common = "-cl-std=CL1.2";
  HPVMD_ASSIGN_OR_RETURN(const cl_program fast, BuildOpenCl(*api, cl.context, device, "bench_gpu", common));
  StatusOr<cl_program> exact =
      BuildOpenCl(*api, cl.context, device, "bench_gpu", common + " -DEXACT -cl-fp32-correctly-rounded-divide-sqrt");
  HPVMD_RETURN_IF_ERROR(exact.status());
  return std::make_unique<Peer>(cl, *exact, fast);
}

}  // namespace hpvm::bench
