// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/cuda_api.h"

#include <string>

#include "bench/gpu/library.h"

namespace hpvm::bench {
namespace {

StatusOr<CudaApi> FindCuda() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable(dlerror());
  }
  CudaApi cuda{};
  const bool all =
      FindFunction(library, "cuInit", cuda.init) && FindFunction(library, "cuDeviceGet", cuda.get_device) &&
      FindFunction(library, "cuDevicePrimaryCtxRetain", cuda.retain_context) &&
      FindFunction(library, "cuCtxSetCurrent", cuda.set_context) &&
      FindFunction(library, "cuModuleLoad", cuda.load_module) &&
      FindFunction(library, "cuModuleGetFunction", cuda.get_function) &&
      FindFunction(library, "cuMemAlloc_v2", cuda.allocate) && FindFunction(library, "cuMemFree_v2", cuda.release) &&
      FindFunction(library, "cuMemcpyHtoD_v2", cuda.write) && FindFunction(library, "cuMemcpyDtoH_v2", cuda.read) &&
      FindFunction(library, "cuLaunchKernel", cuda.launch) && FindFunction(library, "cuCtxSynchronize", cuda.wait);
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
  const bool all = library != nullptr && FindFunction(library, "cublasCreate_v2", cublas.create) &&
                   FindFunction(library, "cublasSgemm_v2", cublas.sgemm);
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
