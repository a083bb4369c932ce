/* SPDX-License-Identifier: Apache-2.0 */
/* The peer's kernels: OpenCL C as one writes it by hand; parameters as in wasm.c. -DEXACT builds them without
 * contraction, as ours are. */
#ifdef EXACT
#pragma OPENCL FP_CONTRACT OFF
#endif
#include "others.h"
#include "parboil.h"
#include "streams.h"

#define X get_global_id(0)
#define Y get_global_id(1)
#define Z get_global_id(2)

kernel void nstream(global float* a, global const float* b, global const float* c, float scalar) {
  nstream_at(a, b, c, scalar, X);
}

kernel void transpose(global const float* a, global float* b, int order) { transpose_at(a, b, order, Y, X); }

kernel void reduce(global const float* vectors, global float* sum, int count, int length) {
  reduce_at(vectors, sum, count, length, X);
}

kernel void row_sums(global const float* values, global float* sums, int length) {
  row_sums_at(values, sums, length, X);
}

kernel void histogram_f32(global const int* values, global const float* weights, global float* sums, int bins) {
  histogram_f32_at(values, weights, sums, bins, X);
}

kernel void sgemm(global const float* a, global const float* b, global float* c, int n, int k) {
  sgemm_at(a, b, c, n, k, Y, X);
}

kernel void spmv(global const int* starts, global const int* columns, global const float* values,
                 global const float* x, global float* y) {
  spmv_at(starts, columns, values, x, y, X);
}

kernel void heat(global const float* in, global float* out, float c0, float c1, int nx, int ny) {
  heat_at(in, out, c0, c1, nx, ny, X, Y, Z);
}

kernel void mri_q(global const float* xs, global const float* ys, global const float* zs, global const float* samples,
                  global float* real, global float* imaginary, int count) {
  mri_q_at(xs, ys, zs, samples, real, imaginary, count, X);
}

kernel void cutcp(global const float* atoms, global const int* starts, global float* potential, float spacing,
                  float cutoff, int bins_x, int bins_y, int nx, int ny) {
  cutcp_at(atoms, starts, potential, spacing, cutoff, bins_x, bins_y, nx, ny, X, Y, Z);
}

kernel void black_scholes(global const float* prices, global const float* strikes, global const float* years,
                          global float* calls, global float* puts, float rate, float volatility) {
  black_scholes_at(prices, strikes, years, calls, puts, rate, volatility, X);
}

kernel void n_body(global const float* bodies, global float* accelerations, float softening, int count) {
  n_body_at(bodies, accelerations, softening, count, X);
}

kernel void tree_sum(global const float* values, global float* sums) {
  local float leaves[LEAVES];
  tree_sum_at(values, sums, leaves, get_group_id(0), get_local_id(0));
}

/* A tiny one, for the cost of launches. */
kernel void advance(global uint* data) {
  for (int i = 0; i < 16; ++i) {
    data[i] = data[i] * 3 + 1;
  }
}
