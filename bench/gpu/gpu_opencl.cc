// SPDX-License-Identifier: Apache-2.0
// The peer "opencl": the same kernel bodies as hand-written OpenCL C, through plain OpenCL calls.
#include <algorithm>
#include <cstring>
#include <utility>

#include "bench/gpu/gpu_native.h"
#include "bench/gpu/opencl_api.h"

namespace hpvm::bench {
namespace {

struct Session {
  const OpenClApi& api;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
};

class PeerContender final : public NativeGpuContender {
 public:
  PeerContender(const std::string& name, const CpuCase& problem, const Session& cl)
      : NativeGpuContender(name, problem, /*may_leave_open=*/true), cl_(cl) {}
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
    for (size_t i = 0; i < problem().arrays.size(); ++i) {
      const bool is_read = problem().arrays[i].access == Access::kIn;
      cl_mem buffer = cl_.api.create_buffer(cl_.context, is_read ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE, BytesOf(i),
                                            nullptr, &code);
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

 private:
  StatusOr<double> Enqueue(const GroupSize& size, uint32_t launches) override {
    size_t global[3], local[3];
    for (size_t i = 0; i < 3; ++i) {
      global[i] = problem().extent[i];
      local[i] = size[i];
    }
    cl_int code = CL_SUCCESS;
    const double seconds = SecondsEach(
        launches,
        [&](uint32_t) {
          const cl_int done = cl_.api.enqueue(cl_.queue, kernel_, 3, nullptr, global, size[0] == 0 ? nullptr : local, 0,
                                              nullptr, nullptr);
          code = code == CL_SUCCESS ? done : code;
        },
        [&] {
          const cl_int end = cl_.api.finish(cl_.queue);
          code = code == CL_SUCCESS ? end : code;
        });
    RETURN_IF_CL_ERROR("clEnqueueNDRangeKernel", code);
    return seconds;
  }
  Status Write(size_t array, const uint8_t* from, uint64_t bytes) override {
    RETURN_IF_CL_ERROR("clEnqueueWriteBuffer",
                       cl_.api.write(cl_.queue, buffers_[array], CL_TRUE, 0, bytes, from, 0, nullptr, nullptr));
    return absl::OkStatus();
  }
  Status Read(size_t array, uint8_t* to, uint64_t bytes) override {
    RETURN_IF_CL_ERROR("clEnqueueReadBuffer",
                       cl_.api.read(cl_.queue, buffers_[array], CL_TRUE, 0, bytes, to, 0, nullptr, nullptr));
    return absl::OkStatus();
  }

  const Session& cl_;
  cl_kernel kernel_ = nullptr;
  std::vector<cl_mem> buffers_;  // Indexed by array.
};

class Peer final : public GpuPeer {
 public:
  Peer(Session cl, cl_program exact, cl_program fast) : cl_(cl), exact_(exact), fast_(fast) {}

  std::string name() const override { return "opencl"; }

  StatusOr<std::unique_ptr<GpuContender>> Prepare(const CpuCase& problem, bool exact) override {
    auto contender = std::make_unique<PeerContender>(exact ? "opencl_exact" : "opencl", problem, cl_);
    HPVMD_RETURN_IF_ERROR(contender->Init(exact ? exact_ : fast_));
    return contender;
  }

  StatusOr<double> Launches(uint32_t count, bool dependent) override {
    cl_int code = CL_SUCCESS;
    cl_kernel kernel = cl_.api.create_kernel(fast_, "tiny_step", &code);
    RETURN_IF_CL_ERROR("clCreateKernel", code);
    std::vector<cl_mem> buffers(dependent ? 1 : kLaunchBuffers);
    const std::vector<uint8_t> zeros(kLaunchBytes);
    for (cl_mem& buffer : buffers) {
      buffer = cl_.api.create_buffer(cl_.context, CL_MEM_READ_WRITE, kLaunchBytes, nullptr, &code);
      RETURN_IF_CL_ERROR("clCreateBuffer", code);
      cl_.api.write(cl_.queue, buffer, CL_TRUE, 0, kLaunchBytes, zeros.data(), 0, nullptr, nullptr);
    }
    const size_t one = 1;
    const double seconds = SecondsEach(
        count,
        [&](uint32_t i) {
          cl_.api.set_argument(kernel, 0, sizeof(cl_mem), &buffers[i % buffers.size()]);
          const cl_int done = cl_.api.enqueue(cl_.queue, kernel, 1, nullptr, &one, &one, 0, nullptr, nullptr);
          code = code == CL_SUCCESS ? done : code;
        },
        [&] {
          const cl_int end = cl_.api.finish(cl_.queue);
          code = code == CL_SUCCESS ? end : code;
        });
    for (cl_mem buffer : buffers) {
      cl_.api.release_buffer(buffer);
    }
    cl_.api.release_kernel(kernel);
    RETURN_IF_CL_ERROR("clEnqueueNDRangeKernel", code);
    return seconds;
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

StatusOr<std::unique_ptr<GpuPeer>> StartOpenClPeer(const std::string& name) {
  HPVMD_ASSIGN_OR_RETURN(const OpenClApi* api, LoadOpenCl());
  const std::vector<OpenClDevice> devices = OpenClDevices(*api);
  const size_t index = NumberOf(name);
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
