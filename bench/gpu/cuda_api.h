// SPDX-License-Identifier: Apache-2.0
// CUDA's driver functions and cuBLAS, resolved at run time, so that the program builds and starts without CUDA. Types
// and signatures are those of cuda.h and cublas_v2.h (CUDA 12 and later).
#ifndef HPVMD_BENCH_GPU_CUDA_API_H_
#define HPVMD_BENCH_GPU_CUDA_API_H_

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace hpvm::bench {

struct CudaApi {
  using Result = int;  // 0 for success.
  using Address = unsigned long long;

  Result (*init)(unsigned flags);
  Result (*get_device)(int* device, int ordinal);
  Result (*retain_context)(void** context, int device);
  Result (*set_context)(void* context);
  Result (*load_module)(void** module, const char* path);
  Result (*get_function)(void** function, void* module, const char* name);
  Result (*allocate)(Address* memory, size_t bytes);
  Result (*release)(Address memory);
  Result (*write)(Address to, const void* from, size_t bytes);
  Result (*read)(void* to, Address from, size_t bytes);
  Result (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** arguments,
                   void** extra);
  Result (*wait)();
};
// Returns the driver's functions, which stay loaded; kUnavailable without a driver.
StatusOr<const CudaApi*> LoadCuda();

Status CudaFailed(const char* what, CudaApi::Result code);
#define RETURN_IF_CUDA_ERROR(what, code)                            \
  do {                                                              \
    if (const CudaApi::Result cuda_code = (code); cuda_code != 0) { \
      return CudaFailed(what, cuda_code);                           \
    }                                                               \
  } while (false)

struct CublasApi {
  int (*create)(void** handle);
  // Column-major C = alpha op(A) op(B) + beta C; op 0 leaves a matrix as it is.
  int (*sgemm)(void* handle, int op_a, int op_b, int m, int n, int k, const float* alpha, const float* a, int lda,
               const float* b, int ldb, const float* beta, float* c, int ldc);
};
StatusOr<const CublasApi*> LoadCublas();

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_GPU_CUDA_API_H_
