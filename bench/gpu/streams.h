/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of kernels that only `hpvm-bench gpu` has, each for one instance. */
#ifndef HPVMD_BENCH_GPU_STREAMS_H_
#define HPVMD_BENCH_GPU_STREAMS_H_

#include "language.h"

/* A += B + scalar * C, in single precision. */
BODY void nstream_at(GLOBAL float* restrict a, GLOBAL const float* restrict b, GLOBAL const float* restrict c,
                     float scalar, int i) {
  a[i] += b[i] + scalar * c[i];
}

/* B = A transposed; both are `order` squared. */
BODY void transpose_at(GLOBAL const float* restrict a, GLOBAL float* restrict b, int order, int row, int column) {
  b[row * order + column] = a[column * order + row];
}

/* The element-wise sum of `count` vectors that lie one after the other. */
BODY void reduce_at(GLOBAL const float* restrict vectors, GLOBAL float* restrict sum, int count, int length, int i) {
  float total = vectors[i];
  for (int v = 1; v < count; ++v) {
    total += vectors[v * length + i];
  }
  sum[i] = total;
}

#endif /* HPVMD_BENCH_GPU_STREAMS_H_ */
