/* SPDX-License-Identifier: Apache-2.0 */
/* What C for Wasm, C for the machine (OpenMP), OpenCL C and CUDA C++ call differently, so that the four share the
 * kernels' bodies and cannot drift apart. */
#ifndef HPVMD_BENCH_CPU_LANGUAGE_H_
#define HPVMD_BENCH_CPU_LANGUAGE_H_

#if defined(__OPENCL_VERSION__)

#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define GLOBAL global
#define LOCAL local
#define BODY static inline
#define EXPF(x) exp(x)
#define LOGF(x) log(x)
#define SINF(x) sin(x)
#define COSF(x) cos(x)
#define SQRTF(x) sqrt(x)
#define SQRT(x) sqrt(x)
#define FMOD(x, y) fmod(x, y)
#define ATOMIC_INCREMENT(at) atomic_inc(at)
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
typedef ulong u64;

#elif defined(__CUDACC__)

#define restrict __restrict__
#define GLOBAL
#define LOCAL
#define BODY static __device__ __forceinline__
#define EXPF(x) expf(x)
#define LOGF(x) logf(x)
#define SINF(x) sinf(x)
#define COSF(x) cosf(x)
#define SQRTF(x) sqrtf(x)
#define SQRT(x) sqrt(x)
#define FMOD(x, y) fmod(x, y)
#define ATOMIC_INCREMENT(at) atomicAdd(at, 1)
#define BARRIER() __syncthreads()
typedef unsigned long long u64;

#else

#define GLOBAL
#define LOCAL
#define BODY static inline __attribute__((always_inline)) /* As README.md asks where there are barriers. */
typedef unsigned long long u64;

#if defined(__wasm__)
#include "hpvm.h"
#define EXPF(x) hpvm_exp_f32(x)
#define LOGF(x) hpvm_log_f32(x)
#define SINF(x) hpvm_sin_f32(x)
#define COSF(x) hpvm_cos_f32(x)
#define SQRTF(x) hpvm_sqrt_f32(x)
#define SQRT(x) hpvm_sqrt_f64(x)
#define FMOD(x, y) hpvm_fmod_f64(x, y)
#define ATOMIC_INCREMENT(at) hpvm_atomic_add_i32(at, 1)
#define BARRIER() hpvm_barrier()
#else
#include <math.h>
#define EXPF(x) expf(x)
#define LOGF(x) logf(x)
#define SINF(x) sinf(x)
#define COSF(x) cosf(x)
#define SQRTF(x) sqrtf(x)
#define SQRT(x) sqrt(x)
#define FMOD(x, y) fmod(x, y)
#define ATOMIC_INCREMENT(at) _Pragma("omp atomic")++*(at)
#endif

#endif

/* Languages of groups of instances: they have a body for one instance where there are barriers. */
#if defined(__OPENCL_VERSION__) || defined(__CUDACC__) || defined(__wasm__)
#define HAS_GROUPS
#endif

#endif /* HPVMD_BENCH_CPU_LANGUAGE_H_ */
