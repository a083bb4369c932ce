// SPDX-License-Identifier: Apache-2.0
// The peers "openmp", "openmp_contract", "openmp_ikj" and "openblas": native code in shared libraries.
#include <dlfcn.h>

#include <cstring>
#include <utility>

#include "bench/cpu/cpu_contender.h"
#include "bench/cpu/openmp.h"
#include "bench/processes.h"

namespace hpvm::bench {
namespace {

// The library stays loaded, because threads of its runtime may still run.
StatusOr<void*> FindSymbol(const std::string& library, const std::string& symbol) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* found = handle == nullptr ? nullptr : dlsym(handle, symbol.c_str());
  return found != nullptr ? StatusOr<void*>(found) : Unavailable(dlerror());
}

class NativeContender final : public CpuContender {
 public:
  NativeContender(std::string name, const CpuCase& problem, NativeKernel* kernel)
      : CpuContender(std::move(name), problem), kernel_(kernel) {
    HPVMD_CHECK(problem.arrays.size() <= kNativeBuffersMax && problem.scalars.size() <= kNativeScalarsMax);
    for (size_t i = 0; i < problem.arrays.size(); ++i) {
      launch_.buffers[i] = data(i);
    }
    for (size_t i = 0; i < problem.scalars.size(); ++i) {
      std::visit([&](auto value) { std::memcpy(&launch_.scalars[i], &value, sizeof(value)); }, problem.scalars[i]);
    }
    for (size_t i = 0; i < 3; ++i) {
      launch_.extent[i] = static_cast<int>(problem.extent[i]);
    }
  }
  bool spins() const override { return true; }

 private:
  StatusOr<double> Launch() override {
    return Seconds([this] { kernel_(&launch_); });
  }
  NativeKernel* kernel_;
  NativeLaunch launch_{};
};

// The part of CBLAS that is called here; its header is not needed at run time.
constexpr int kRowMajor = 101, kNoTranspose = 111;
using Sgemm = void(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a,
                   int lda, const float* b, int ldb, float beta, float* c, int ldc);
using Dgemm = void(int order, int transpose_a, int transpose_b, int m, int n, int k, double alpha, const double* a,
                   int lda, const double* b, int ldb, double beta, double* c, int ldc);

class OpenBlasContender final : public CpuContender {
 public:
  OpenBlasContender(const CpuCase& problem, void* function) : CpuContender("openblas", problem), function_(function) {}
  bool spins() const override { return true; }
  bool is_library() const override { return true; }

 private:
  StatusOr<double> Launch() override {
    const int m = static_cast<int>(problem().extent[1]), n = std::get<int32_t>(problem().scalars[0]),
              k = std::get<int32_t>(problem().scalars[1]);
    return Seconds([&] {
      if (problem().arrays[0].type == ElementType::kF64) {
        reinterpret_cast<Dgemm*>(function_)(
            kRowMajor, kNoTranspose, kNoTranspose, m, n, k, 1, reinterpret_cast<const double*>(data(0)), k,
            reinterpret_cast<const double*>(data(1)), n, 1, reinterpret_cast<double*>(data(2)), n);
      } else {
        reinterpret_cast<Sgemm*>(function_)(
            kRowMajor, kNoTranspose, kNoTranspose, m, n, k, 1, reinterpret_cast<const float*>(data(0)), k,
            reinterpret_cast<const float*>(data(1)), n, 0, reinterpret_cast<float*>(data(2)), n);
      }
    });
  }
  void* function_;
};

}  // namespace

StatusOr<std::unique_ptr<CpuContender>> MakeNative(const CpuCase& problem, const std::string& name,
                                                   const std::string& library, const std::string& kernel) {
  HPVMD_ASSIGN_OR_RETURN(void* symbol, FindSymbol(ProgramFolder() + "/bench_cpu/" + library, "native_" + kernel));
  return std::make_unique<NativeContender>(name, problem, reinterpret_cast<NativeKernel*>(symbol));
}

StatusOr<std::unique_ptr<CpuContender>> MakeOpenBlas(const CpuCase& problem, uint32_t threads) {
  constexpr const char* kLibrary = "libopenblas.so.0";
  HPVMD_ASSIGN_OR_RETURN(void* set_threads, FindSymbol(kLibrary, "openblas_set_num_threads"));
  HPVMD_ASSIGN_OR_RETURN(void* function, FindSymbol(kLibrary, "cblas_" + problem.name));
  reinterpret_cast<void (*)(int)>(set_threads)(static_cast<int>(threads));
  return std::make_unique<OpenBlasContender>(problem, function);
}

}  // namespace hpvm::bench
