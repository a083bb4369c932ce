// SPDX-License-Identifier: Apache-2.0
// The peers "cuda", "cuda_exact" and "cublas": the same kernel bodies through nvcc (bench/gpu/cuda.cu), and the
// library's product.
#include <unistd.h>

#include <functional>
#include <utility>

#include "bench/gpu/cuda_api.h"
#include "bench/gpu/gpu_native.h"
#include "bench/processes.h"

namespace hpvm::bench {
namespace {

class CudaContender : public NativeGpuContender {
 public:
  CudaContender(std::string name, const CpuCase& problem, const CudaApi& cuda)
      : NativeGpuContender(std::move(name), problem, /*may_leave_open=*/false), cuda_(cuda) {}
  ~CudaContender() override {
    cuda_.wait();
    for (const CudaApi::Address buffer : buffers_) {
      cuda_.release(buffer);
    }
  }

  Status Init() {
    for (size_t i = 0; i < problem().arrays.size(); ++i) {
      CudaApi::Address buffer = 0;
      RETURN_IF_CUDA_ERROR("cuMemAlloc", cuda_.allocate(&buffer, BytesOf(i)));
      buffers_.push_back(buffer);
    }
    return Upload(/*all=*/true);
  }

 protected:
  Status Write(size_t array, const uint8_t* from, uint64_t bytes) override {
    RETURN_IF_CUDA_ERROR("cuMemcpyHtoD", cuda_.write(buffers_[array], from, bytes));
    return absl::OkStatus();
  }
  Status Read(size_t array, uint8_t* to, uint64_t bytes) override {
    RETURN_IF_CUDA_ERROR("cuMemcpyDtoH", cuda_.read(to, buffers_[array], bytes));
    return absl::OkStatus();
  }
  // Calls `enqueue` for one launch after the other on the default stream.
  StatusOr<double> Repeat(uint32_t launches, const std::function<int()>& enqueue) const {
    int code = 0;
    const double seconds = SecondsEach(
        launches, [&](uint32_t) { code = code == 0 ? enqueue() : code; },
        [&] {
          const int end = cuda_.wait();
          code = code == 0 ? end : code;
        });
    RETURN_IF_CUDA_ERROR("A launch", code);
    return seconds;
  }
  CudaApi::Address buffer(size_t array) const { return buffers_[array]; }
  const CudaApi& cuda() const { return cuda_; }

 private:
  const CudaApi& cuda_;
  std::vector<CudaApi::Address> buffers_;  // Indexed by array.
};

class KernelContender final : public CudaContender {
 public:
  KernelContender(std::string name, const CpuCase& problem, const CudaApi& cuda, void* kernel)
      : CudaContender(std::move(name), problem, cuda), kernel_(kernel) {}

 private:
  StatusOr<double> Enqueue(const GroupSize& size, uint32_t launches) override {
    std::vector<CudaApi::Address> addresses;
    for (size_t i = 0; i < problem().arrays.size(); ++i) {
      addresses.push_back(buffer(i));
    }
    std::vector<CpuScalar> scalars = problem().scalars;
    std::vector<void*> arguments;
    for (CudaApi::Address& address : addresses) {
      arguments.push_back(&address);
    }
    for (CpuScalar& scalar : scalars) {
      arguments.push_back(std::visit([](auto& value) -> void* { return &value; }, scalar));
    }
    unsigned grid[3], block[3];
    for (size_t d = 0; d < 3; ++d) {
      block[d] = static_cast<unsigned>(size[d] == 0 ? 1 : size[d]);
      grid[d] = static_cast<unsigned>(problem().extent[d]) / block[d];
    }
    return Repeat(launches, [&] {
      return cuda().launch(kernel_, grid[0], grid[1], grid[2], block[0], block[1], block[2], 0, nullptr,
                           arguments.data(), nullptr);
    });
  }

  void* const kernel_;
};

class CublasContender final : public CudaContender {
 public:
  CublasContender(const CpuCase& problem, const CudaApi& cuda, const CublasApi& cublas, void* handle)
      : CudaContender("cublas", problem, cuda), cublas_(cublas), handle_(handle) {}
  std::string chosen() const override { return "cublasSgemm"; }
  bool is_library() const override { return true; }

 private:
  // Row-major C = A B is column-major C^T = B^T A^T. The case's scalars are n and k.
  StatusOr<double> Enqueue(const GroupSize&, uint32_t launches) override {
    const int n = std::get<int32_t>(problem().scalars[0]), k = std::get<int32_t>(problem().scalars[1]);
    const auto m = static_cast<int>(problem().extent[1]);
    const float one = 1, zero = 0;
    // Safe because they are addresses of the device, which only the library reads.
    const auto at = [&](size_t array) { return reinterpret_cast<float*>(buffer(array)); };
    return Repeat(launches,
                  [&] { return cublas_.sgemm(handle_, 0, 0, n, m, k, &one, at(1), n, at(0), k, &zero, at(2), n); });
  }

  const CublasApi& cublas_;
  void* const handle_;
};

class Peer final : public GpuPeer {
 public:
  Peer(const CudaApi& cuda, void* exact, void* fast) : cuda_(cuda), exact_(exact), fast_(fast) {
    if (const StatusOr<const CublasApi*> cublas = LoadCublas(); cublas.ok() && (*cublas)->create(&handle_) == 0) {
      cublas_ = *cublas;
    }
  }

  std::string name() const override { return "cuda"; }

  StatusOr<std::unique_ptr<GpuContender>> Prepare(const CpuCase& problem, bool exact) override {
    void* kernel = nullptr;
    RETURN_IF_CUDA_ERROR("cuModuleGetFunction",
                         cuda_.get_function(&kernel, exact ? exact_ : fast_, problem.name.c_str()));
    return Ready(std::make_unique<KernelContender>(exact ? "cuda_exact" : "cuda", problem, cuda_, kernel));
  }

  StatusOr<std::unique_ptr<GpuContender>> PrepareLibrary(const CpuCase& problem) override {
    if (!problem.is_matmul || cublas_ == nullptr) {
      return Unavailable("There is no cuBLAS, or it has nothing like this case.");
    }
    return Ready(std::make_unique<CublasContender>(problem, cuda_, *cublas_, handle_));
  }

  StatusOr<double> Launches(uint32_t count, bool dependent) override {
    void* kernel = nullptr;
    RETURN_IF_CUDA_ERROR("cuModuleGetFunction", cuda_.get_function(&kernel, fast_, "step"));
    std::vector<CudaApi::Address> buffers(dependent ? 1 : kLaunchBuffers);
    for (CudaApi::Address& buffer : buffers) {
      RETURN_IF_CUDA_ERROR("cuMemAlloc", cuda_.allocate(&buffer, kLaunchBytes));
    }
    int code = 0;
    const double seconds = SecondsEach(
        count,
        [&](uint32_t i) {
          void* arguments[] = {&buffers[i % buffers.size()]};
          const int done = cuda_.launch(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
          code = code == 0 ? done : code;
        },
        [&] { cuda_.wait(); });
    for (const CudaApi::Address buffer : buffers) {
      cuda_.release(buffer);
    }
    RETURN_IF_CUDA_ERROR("A launch", code);
    return seconds;
  }

 private:
  template <typename Contender>
  static StatusOr<std::unique_ptr<GpuContender>> Ready(std::unique_ptr<Contender> contender) {
    HPVMD_RETURN_IF_ERROR(contender->Init());
    return contender;
  }

  const CudaApi& cuda_;
  void *const exact_, *const fast_;
  const CublasApi* cublas_ = nullptr;
  void* handle_ = nullptr;  // Kept to the process's end, like the context.
};

}  // namespace

StatusOr<std::unique_ptr<GpuPeer>> StartCudaPeer(const std::string& name) {
  const std::string folder = ProgramFolder() + "/bench_gpu/";
  if (access((folder + "cuda_exact.fatbin").c_str(), R_OK) != 0) {
    return Unavailable("This build had no nvcc, so that there are no CUDA kernels.");
  }
  HPVMD_ASSIGN_OR_RETURN(const CudaApi* cuda, LoadCuda());
  int device = 0;
  void *context = nullptr, *exact = nullptr, *fast = nullptr;
  RETURN_IF_CUDA_ERROR("cuInit", cuda->init(0));
  RETURN_IF_CUDA_ERROR("cuDeviceGet", cuda->get_device(&device, static_cast<int>(NumberOf(name))));
  RETURN_IF_CUDA_ERROR("cuDevicePrimaryCtxRetain", cuda->retain_context(&context, device));
  RETURN_IF_CUDA_ERROR("cuCtxSetCurrent", cuda->set_context(context));
  RETURN_IF_CUDA_ERROR("cuModuleLoad", cuda->load_module(&exact, (folder + "cuda_exact.fatbin").c_str()));
  RETURN_IF_CUDA_ERROR("cuModuleLoad", cuda->load_module(&fast, (folder + "cuda_fast.fatbin").c_str()));
  return std::make_unique<Peer>(*cuda, exact, fast);
}

}  // namespace hpvm::bench
