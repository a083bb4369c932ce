/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels as naive leaves: one instance is one turn of the innermost parallel loop. */
#include "others.h"
#include "parboil.h"
#include "prk.h"
#include "small_arrays.h"

HPVM_KERNEL void nstream(double* a, const double* b, const double* c, double scalar) {
  nstream_at(a, b, c, scalar, hpvm_x());
}

HPVM_KERNEL void transpose(double* a, double* b, int order) { transpose_at(a, b, order, hpvm_y(), hpvm_x()); }

HPVM_KERNEL void star(const double* in, const double* weights, double* out, int order) {
  star_at(in, weights, out, order, hpvm_y(), hpvm_x());
}

HPVM_KERNEL void dgemm(const double* a, const double* b, double* c, int n, int k) {
  dgemm_at(a, b, c, n, k, hpvm_y(), hpvm_x());
}

HPVM_KERNEL void sparse(const double* matrix, const int* columns, const double* vector, double* result, int per_row) {
  sparse_at(matrix, columns, vector, result, per_row, hpvm_x());
}

HPVM_KERNEL void reduce(const double* vectors, double* sum, int count, int length) {
  reduce_at(vectors, sum, count, length, hpvm_x());
}

HPVM_KERNEL void pic(const double* charges, double* particles, int cells, double step) {
  pic_at(charges, particles, cells, step, hpvm_x());
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

HPVM_KERNEL void lbm(const float* source, const int* flags, float* target, float omega, int nx, int ny, int cells) {
  lbm_at(source, flags, target, omega, nx, ny, cells, hpvm_x(), hpvm_y(), hpvm_z());
}

HPVM_KERNEL void mri_q(const float* xs, const float* ys, const float* zs, const float* samples, float* real,
                       float* imaginary, int count) {
  mri_q_at(xs, ys, zs, samples, real, imaginary, count, hpvm_x());
}

HPVM_KERNEL void cutcp(const float* atoms, const int* starts, float* potential, float spacing, float cutoff, int bins_x,
                       int bins_y, int nx, int ny) {
  cutcp_at(atoms, starts, potential, spacing, cutoff, bins_x, bins_y, nx, ny, hpvm_x(), hpvm_y(), hpvm_z());
}

HPVM_KERNEL void mandelbrot(int* counts, float left, float top, float step, int width, int limit) {
  mandelbrot_at(counts, left, top, step, width, limit, hpvm_x(), hpvm_y());
}

HPVM_KERNEL void black_scholes(const float* prices, const float* strikes, const float* years, float* calls, float* puts,
                               float rate, float volatility) {
  black_scholes_at(prices, strikes, years, calls, puts, rate, volatility, hpvm_x());
}

HPVM_KERNEL void n_body(const float* bodies, float* accelerations, float softening, int count) {
  n_body_at(bodies, accelerations, softening, count, hpvm_x());
}

HPVM_KERNEL void histogram(const int* values, int* counts, int bins) { histogram_at(values, counts, bins, hpvm_x()); }

HPVM_KERNEL void tiled_matmul(const float* a, const float* b, float* c, int n, int k) {
  float* tile_a = hpvm_local_alloc(TILE * TILE * sizeof(float));
  float* tile_b = hpvm_local_alloc(TILE * TILE * sizeof(float));
  tiled_matmul_at(a, b, c, tile_a, tile_b, n, k, hpvm_y(), hpvm_x(), hpvm_local_id(1), hpvm_local_id(0));
}

HPVM_KERNEL void tree_sum(const float* values, float* sums) {
  float* leaves = hpvm_local_alloc(LEAVES * sizeof(float));
  tree_sum_at(values, sums, leaves, hpvm_group_id(0), hpvm_local_id(0));
}

HPVM_KERNEL void complex_product(const float* a, const float* b, float* c) { complex_product_at(a, b, c, hpvm_x()); }

HPVM_KERNEL void complex_matrices(const float* a, const float* b, float* c) { complex_matrices_at(a, b, c, hpvm_x()); }

HPVM_KERNEL void xtea(const int* key, int* blocks, int rounds) { xtea_at(key, blocks, rounds, hpvm_x()); }

HPVM_KERNEL void sha256(const int* messages, const int* constants, int* hashes) {
  sha256_at(messages, constants, hashes, hpvm_x());
}

HPVM_KERNEL void binomial(const float* prices, const float* strikes, float* puts, float up, float up_weight,
                          float down_weight) {
  binomial_at(prices, strikes, puts, up, up_weight, down_weight, hpvm_x());
}

HPVM_KERNEL void sort_rows(float* values) { sort_rows_at(values, hpvm_x()); }

HPVM_KERNEL void docking(const float* ligand, const float* protein, const float* poses, float* scores, float reach,
                         int atoms) {
  docking_at(ligand, protein, poses, scores, reach, atoms, hpvm_x());
}

HPVM_KERNEL void stencil27(const float* in, float* out, float own, float others, int width, int height, int depth) {
  stencil27_at(in, out, own, others, width, height, depth, hpvm_x(), hpvm_y(), hpvm_z());
}

__attribute__((target("simd128"))) HPVM_KERNEL void unit_vectors(const float* in, float* out) {
  unit_vectors_at(in, out, hpvm_x());
}
