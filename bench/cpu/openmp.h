/* SPDX-License-Identifier: Apache-2.0 */
/* How the benchmark calls the native kernels, which are in shared libraries: the same source built with different
 * flags. */
#ifndef HPVMD_BENCH_CPU_OPENMP_H_
#define HPVMD_BENCH_CPU_OPENMP_H_

enum { kNativeBuffersMax = 8, kNativeScalarsMax = 8 };

/* Arguments in the order of the kernel's parameters: buffers, then scalars. */
struct NativeLaunch {
  void* buffers[kNativeBuffersMax];
  union {
    int i32;
    float f32;
    double f64;
  } scalars[kNativeScalarsMax];
  int extent[3]; /* x, y, z */
};

/* Each kernel is exported as "native_" and its name. */
typedef void NativeKernel(const struct NativeLaunch* launch);

#endif /* HPVMD_BENCH_CPU_OPENMP_H_ */
