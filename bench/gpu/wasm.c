/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels as naive leaves: one instance is one turn of the innermost parallel loop. */
#include "others.h"
#include "parboil.h"
#include "streams.h"

HPVM_KERNEL void nstream(float* a, const float* b, const float* c, float scalar) {
  nstream_at(a, b, c, scalar, hpvm_x());
}

HPVM_KERNEL void transpose(const float* a, float* b, int order) { transpose_at(a, b, order, hpvm_y(), hpvm_x()); }

HPVM_KERNEL void reduce(const float* vectors, float* sum, int count, int length) {
  reduce_at(vectors, sum, count, length, hpvm_x());
}

HPVM_KERNEL void row_sums(const float* values, float* sums, int length) {
  row_sums_at(values, sums, length, hpvm_x());
}

HPVM_KERNEL void histogram_f32(const int* values, const float* weights, float* sums, int bins) {
  histogram_f32_at(values, weights, sums, bins, hpvm_x());
}

HPVM_KERNEL void sgemm(const float* a, const float* b, float* c, int n, int k) {
  sgemm_at(a, b, c, n, k, hpvm_y(), hpvm_x());
}

HPVM_KERNEL void spmv(const int* starts, const int* columns, const float* values, const float* x, float* y) {
  spmv_at(starts, columns, values, x, y, hpvm_x());
}

HPVM_KERNEL void heat(const float* in, float* out, float c0, float c1, int nx, int ny) {
  heat_at(in, out, c0, c1, nx, ny, hpvm_x(), hpvm_y(), hpvm_z());
}

HPVM_KERNEL void mri_q(const float* xs, const float* ys, const float* zs, const float* samples, float* real,
                       float* imaginary, int count) {
  mri_q_at(xs, ys, zs, samples, real, imaginary, count, hpvm_x());
}

HPVM_KERNEL void cutcp(const float* atoms, const int* starts, float* potential, float spacing, float cutoff, int bins_x,
                       int bins_y, int nx, int ny) {
  cutcp_at(atoms, starts, potential, spacing, cutoff, bins_x, bins_y, nx, ny, hpvm_x(), hpvm_y(), hpvm_z());
}

HPVM_KERNEL void black_scholes(const float* prices, const float* strikes, const float* years, float* calls, float* puts,
                               float rate, float volatility) {
  black_scholes_at(prices, strikes, years, calls, puts, rate, volatility, hpvm_x());
}

HPVM_KERNEL void n_body(const float* bodies, float* accelerations, float softening, int count) {
  n_body_at(bodies, accelerations, softening, count, hpvm_x());
}

/* A part of n_body, for splits by hand. */
HPVM_KERNEL void n_body_rows(const float* bodies, float* accelerations, float softening, int count, int first) {
  n_body_rows_at(bodies, accelerations, softening, count, first, hpvm_x());
}

HPVM_KERNEL void tree_sum(const float* values, float* sums) {
  float* leaves = hpvm_local_alloc(LEAVES * sizeof(float));
  tree_sum_at(values, sums, leaves, hpvm_group_id(0), hpvm_local_id(0));
}

/* A tiny one, for the cost of launches: node after node on the same data. */
HPVM_KERNEL void step(unsigned* data) {
  for (int i = 0; i < 16; ++i) {
    data[i] = data[i] * 3 + 1;
  }
}
