// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/cuda_api.h"

#include <dlfcn.h>

#include <string>

namespace hpvm::bench {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

StatusOr<CudaApi> FindCuda() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable(dlerror());
  }
  CudaApi cuda{};
  const bool all = Find(library, "cuInit", cuda.init) && Find(library, "cuDeviceGet", cuda.get_device) &&
                   Find(library, "cuDevicePrimaryCtxRetain", cuda.retain_context) &&
                   Find(library, "cuCtxSetCurrent", cuda.set_context) &&
                   Find(library, "cuModuleLoad", cuda.load_module) &&
                   Find(library, "cuModuleGetFunction", cuda.get_function) &&
                   Find(library, "cuMemAlloc_v2", cuda.allocate) && Find(library, "cuMemFree_v2", cuda.release) &&
                   Find(library, "cuMemcpyHtoD_v2", cuda.write) && Find(library, "cuMemcpyDtoH_v2", cuda.read) &&
                   Find(library, "cuLaunchKernel", cuda.launch) && Find(library, "cuCtxSynchronize", cuda.wait);
  return all ? StatusOr<CudaApi>(cuda) : Unavailable("libcuda.so.1 lacks functions of CUDA 12.");
}

StatusOr<CublasApi> FindCublas() {
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so",
                           "/usr/local/cuda/lib64/libcublas.so.13", "/usr/local/cuda/lib64/libcublas.so"}) {
    if (library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) {
      break;
    }
  }
  CublasApi cublas{};
  const bool all = library != nullptr && Find(library, "cublasCreate_v2", cublas.create) &&
                   Find(library, "cublasSgemm_v2", cublas.sgemm);
  return all ? StatusOr<CublasApi>(cublas) : Unavailable("There is no cuBLAS.");
}

}  // namespace

StatusOr<const CudaApi*> LoadCuda() {
  static const StatusOr<CudaApi> cuda = FindCuda();
  return cuda.ok() ? StatusOr<const CudaApi*>(&*cuda) : cuda.status();
}

StatusOr<const CublasApi*> LoadCublas() {
  static const StatusOr<CublasApi> cublas = FindCublas();
  return cublas.ok() ? StatusOr<const CublasApi*>(&*cublas) : cublas.status();
}

Status CudaFailed(const char* what, CudaApi::Result code) {
  return Internal(std::string(what) + " failed with CUDA's code " + std::to_string(code) + ".");
}

}  // namespace hpvm::bench
