/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels in OpenCL C; parameters as in wasm.c. */
#include "others.h"
#include "parboil.h"
#include "prk.h"
#include "small_arrays.h"

#define X get_global_id(0)
#define Y get_global_id(1)
#define Z get_global_id(2)

kernel void nstream(global double* a, global const double* b, global const double* c, double scalar) {
  nstream_at(a, b, c, scalar, X);
}

kernel void transpose(global double* a, global double* b, int order) { transpose_at(a, b, order, Y, X); }

kernel void star(global const double* in, global const double* weights, global double* out, int order) {
  star_at(in, weights, out, order, Y, X);
}

kernel void dgemm(global const double* a, global const double* b, global double* c, int n, int k) {
  dgemm_at(a, b, c, n, k, Y, X);
}

kernel void sparse(global const double* matrix, global const int* columns, global const double* vector,
                   global double* result, int per_row) {
  sparse_at(matrix, columns, vector, result, per_row, X);
}

kernel void reduce(global const double* vectors, global double* sum, int count, int length) {
  reduce_at(vectors, sum, count, length, X);
}

kernel void pic(global const double* charges, global double* particles, int cells, double step) {
  pic_at(charges, particles, cells, step, X);
}

kernel void sgemm(global const float* a, global const float* b, global float* c, int n, int k) {
  sgemm_at(a, b, c, n, k, Y, X);
}

kernel void spmv(global const int* starts, global const int* columns, global const float* values, global const float* x,
                 global float* y) {
  spmv_at(starts, columns, values, x, y, X);
}

kernel void heat(global const float* in, global float* out, float c0, float c1, int nx, int ny) {
  heat_at(in, out, c0, c1, nx, ny, X, Y, Z);
}

kernel void lbm(global const float* source, global const int* flags, global float* target, float omega, int nx, int ny,
                int cells) {
  lbm_at(source, flags, target, omega, nx, ny, cells, X, Y, Z);
}

kernel void mri_q(global const float* xs, global const float* ys, global const float* zs, global const float* samples,
                  global float* real, global float* imaginary, int count) {
  mri_q_at(xs, ys, zs, samples, real, imaginary, count, X);
}

kernel void cutcp(global const float* atoms, global const int* starts, global float* potential, float spacing,
                  float cutoff, int bins_x, int bins_y, int nx, int ny) {
  cutcp_at(atoms, starts, potential, spacing, cutoff, bins_x, bins_y, nx, ny, X, Y, Z);
}

kernel void mandelbrot(global int* counts, float left, float top, float step, int width, int limit) {
  mandelbrot_at(counts, left, top, step, width, limit, X, Y);
}

kernel void black_scholes(global const float* prices, global const float* strikes, global const float* years,
                          global float* calls, global float* puts, float rate, float volatility) {
  black_scholes_at(prices, strikes, years, calls, puts, rate, volatility, X);
}

kernel void n_body(global const float* bodies, global float* accelerations, float softening, int count) {
  n_body_at(bodies, accelerations, softening, count, X);
}

kernel void histogram(global const int* values, global int* counts, int bins) { histogram_at(values, counts, bins, X); }

kernel void tiled_matmul(global const float* a, global const float* b, global float* c, int n, int k) {
  local float tile_a[TILE * TILE], tile_b[TILE * TILE];
  tiled_matmul_at(a, b, c, tile_a, tile_b, n, k, Y, X, get_local_id(1), get_local_id(0));
}

kernel void tree_sum(global const float* values, global float* sums) {
  local float leaves[LEAVES];
  tree_sum_at(values, sums, leaves, get_group_id(0), get_local_id(0));
}

kernel void complex_product(global const float* a, global const float* b, global float* c) {
  complex_product_at(a, b, c, X);
}

kernel void complex_matrices(global const float* a, global const float* b, global float* c) {
  complex_matrices_at(a, b, c, X);
}

kernel void xtea(global const int* key, global int* blocks, int rounds) { xtea_at(key, blocks, rounds, X); }

kernel void sha256(global const int* messages, global const int* constants, global int* hashes) {
  sha256_at(messages, constants, hashes, X);
}

kernel void binomial(global const float* prices, global const float* strikes, global float* puts, float up,
                     float up_weight, float down_weight) {
  binomial_at(prices, strikes, puts, up, up_weight, down_weight, X);
}

kernel void sort_rows(global float* values) { sort_rows_at(values, X); }

kernel void docking(global const float* ligand, global const float* protein, global const float* poses,
                    global float* scores, float reach, int atoms) {
  docking_at(ligand, protein, poses, scores, reach, atoms, X);
}

kernel void stencil27(global const float* in, global float* out, float own, float others, int width, int height,
                      int depth) {
  stencil27_at(in, out, own, others, width, height, depth, X, Y, Z);
}

kernel void unit_vectors(global const float* in, global float* out) { unit_vectors_at(in, out, X); }
