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

/* y = M x, an instance a row. */
BODY void row_products_at(GLOBAL const float* restrict matrix, GLOBAL const float* restrict x, GLOBAL float* restrict y,
                          int width, int row) {
  float sum = 0;
  for (int k = 0; k < width; ++k) {
    sum += matrix[row * width + k] * x[k];
  }
  y[row] = sum;
}

/* The squared distance of a point to the nearest of `count` others, as in the Hausdorff distance of two sets. */
BODY void nearest_at(GLOBAL const float* restrict points, GLOBAL const float* restrict others,
                     GLOBAL float* restrict squares, int count, int i) {
  const float x = points[3 * i], y = points[3 * i + 1], z = points[3 * i + 2];
  float nearest = 3.4e38f;
  for (int k = 0; k < count; ++k) {
    const float dx = others[3 * k] - x, dy = others[3 * k + 1] - y, dz = others[3 * k + 2] - z;
    const float square = dx * dx + dy * dy + dz * dz;
    nearest = square < nearest ? square : nearest;
  }
  squares[i] = nearest;
}

/* One atomic sum. OpenCL C 1.2 has none; authors write NVIDIA's, or exchange until nobody came between. */
BODY void add_f32(GLOBAL float* at, float value) {
#if defined(__CUDACC__)
  atomicAdd(at, value);
#elif !defined(__OPENCL_VERSION__)
  hpvm_atomic_add_f32(at, value);
#elif defined(__NV_CL_C_VERSION)
  asm volatile("red.global.add.f32 [%0], %1;" : : "l"(at), "f"(value) : "memory");
#else
  volatile GLOBAL uint* word = (volatile GLOBAL uint*)at;
  uint seen = *word, old;
  do {
    old = seen;
    seen = atomic_cmpxchg(word, old, as_uint(as_float(old) + value));
  } while (seen != old);
#endif
}

/* Sums of rows, a term an instance: neighbours add to the same sum. */
BODY void row_sums_at(GLOBAL const float* restrict values, GLOBAL float* sums, int length, int i) {
  add_f32(&sums[i / length], values[i]);
}

/* A dot product: all add to one sum. */
BODY void dot_at(GLOBAL const float* restrict a, GLOBAL const float* restrict b, GLOBAL float* sum, int i) {
  add_f32(sum, a[i] * b[i]);
}

/* Weights by bin, of which there are many. `bins` is a power of two. */
BODY void histogram_f32_at(GLOBAL const int* restrict values, GLOBAL const float* restrict weights, GLOBAL float* sums,
                           int bins, int i) {
  add_f32(&sums[values[i] & (bins - 1)], weights[i]);
}

/* Adds a point (x, y) to the sums of the nearest of CENTRES: x, y and how many. */
#define CENTRES 16
BODY void kmeans_at(GLOBAL const float* restrict points, GLOBAL const float* restrict centres, GLOBAL float* sums,
                    int i) {
  const float x = points[2 * i], y = points[2 * i + 1];
  float least = 3.4e38f;
  int nearest = 0;
  for (int k = 0; k < CENTRES; ++k) {
    const float dx = centres[2 * k] - x, dy = centres[2 * k + 1] - y, square = dx * dx + dy * dy;
    nearest = square < least ? k : nearest;
    least = square < least ? square : least;
  }
  add_f32(&sums[3 * nearest], x);
  add_f32(&sums[3 * nearest + 1], y);
  add_f32(&sums[3 * nearest + 2], 1.0f);
}

#endif /* HPVMD_BENCH_GPU_STREAMS_H_ */
