/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of `hpvm-bench gpu` as one writes them by hand, one element an instance, in three languages: as Wasm
 * leaves (wasm.c), and for the peers in OpenCL C (opencl.cl) and CUDA C++ (cuda.cu). */
#ifndef HPVMD_BENCH_GPU_KERNELS_H_
#define HPVMD_BENCH_GPU_KERNELS_H_

#include "arrays.h"
#include "groups.h"
#include "others.h"
#include "parboil.h"
#include "small_arrays.h"
#include "streams.h"

/* SIMD: for Wasm with 16-byte vector instructions. POINTER(t): to elements of a buffer that no other parameter reaches.
 * CUDA's compiler needs to be told at the kernel, the others see it in the bodies. LOCAL_ARRAY(t, name, count): of the
 * group. */
#if defined(__OPENCL_VERSION__)
#define KERNEL kernel void
#define SIMD
#define POINTER(type) global type*
#define LOCAL_ARRAY(type, name, count) local type name[count]
#define X get_global_id(0)
#define Y get_global_id(1)
#define Z get_global_id(2)
#define GROUP get_group_id(0)
#define LOCAL_X get_local_id(0)
#elif defined(__CUDACC__)
#define KERNEL extern "C" __global__ void
#define SIMD
#define POINTER(type) type* __restrict__
#define LOCAL_ARRAY(type, name, count) __shared__ type name[count]
#define X ((int)(blockIdx.x * blockDim.x + threadIdx.x))
#define Y ((int)(blockIdx.y * blockDim.y + threadIdx.y))
#define Z ((int)(blockIdx.z * blockDim.z + threadIdx.z))
#define GROUP ((int)blockIdx.x)
#define LOCAL_X ((int)threadIdx.x)
#else
#define KERNEL HPVM_KERNEL void
#define SIMD __attribute__((target("simd128")))
#define POINTER(type) type*
#define LOCAL_ARRAY(type, name, count) type* name = hpvm_local_alloc((count) * sizeof(type))
#define X hpvm_x()
#define Y hpvm_y()
#define Z hpvm_z()
#define GROUP hpvm_group_id(0)
#define LOCAL_X hpvm_local_id(0)
#endif

/* A tiny one, for the cost of launches: launch after launch on the same data. */
KERNEL step(POINTER(unsigned) data) {
  for (int i = 0; i < 16; ++i) {
    data[i] = data[i] * 3 + 1;
  }
}

/* Streams. */

KERNEL nstream(POINTER(float) a, POINTER(const float) b, POINTER(const float) c, float scalar) {
  nstream_at(a, b, c, scalar, X);
}

KERNEL transpose(POINTER(const float) a, POINTER(float) b, int order) { transpose_at(a, b, order, Y, X); }

KERNEL reduce(POINTER(const float) vectors, POINTER(float) sum, int count, int length) {
  reduce_at(vectors, sum, count, length, X);
}

KERNEL column_sums(POINTER(const float) vectors, POINTER(float) sum, int count, int length) {
  reduce_at(vectors, sum, count, length, X);
}

KERNEL row_products(POINTER(const float) matrix, POINTER(const float) x, POINTER(float) y, int width) {
  row_products_at(matrix, x, y, width, X);
}

KERNEL nearest(POINTER(const float) points, POINTER(const float) others, POINTER(float) squares, int count) {
  nearest_at(points, others, squares, count, X);
}

KERNEL row_sums(POINTER(const float) values, POINTER(float) sums, int length) { row_sums_at(values, sums, length, X); }

KERNEL dot_product(POINTER(const float) a, POINTER(const float) b, POINTER(float) sum) { dot_at(a, b, sum, X); }

KERNEL histogram_f32(POINTER(const int) values, POINTER(const float) weights, POINTER(float) sums, int bins) {
  histogram_f32_at(values, weights, sums, bins, X);
}

KERNEL kmeans(POINTER(const float) points, POINTER(const float) centres, POINTER(float) sums) {
  kmeans_at(points, centres, sums, X);
}

/* Kernels of suites. */

KERNEL sgemm(POINTER(const float) a, POINTER(const float) b, POINTER(float) c, int n, int k) {
  sgemm_at(a, b, c, n, k, Y, X);
}

KERNEL spmv(POINTER(const int) starts, POINTER(const int) columns, POINTER(const float) values, POINTER(const float) x,
            POINTER(float) y) {
  spmv_at(starts, columns, values, x, y, X);
}

KERNEL heat(POINTER(const float) in, POINTER(float) out, float c0, float c1, int nx, int ny) {
  heat_at(in, out, c0, c1, nx, ny, X, Y, Z);
}

KERNEL mri_q(POINTER(const float) xs, POINTER(const float) ys, POINTER(const float) zs, POINTER(const float) samples,
             POINTER(float) real, POINTER(float) imaginary, int count) {
  mri_q_at(xs, ys, zs, samples, real, imaginary, count, X);
}

KERNEL cutcp(POINTER(const float) atoms, POINTER(const int) starts, POINTER(float) potential, float spacing,
             float cutoff, int bins_x, int bins_y, int nx, int ny) {
  cutcp_at(atoms, starts, potential, spacing, cutoff, bins_x, bins_y, nx, ny, X, Y, Z);
}

KERNEL black_scholes(POINTER(const float) prices, POINTER(const float) strikes, POINTER(const float) years,
                     POINTER(float) calls, POINTER(float) puts, float rate, float volatility) {
  black_scholes_at(prices, strikes, years, calls, puts, rate, volatility, X);
}

KERNEL n_body(POINTER(const float) bodies, POINTER(float) accelerations, float softening, int count) {
  n_body_at(bodies, accelerations, softening, count, X);
}

/* A part of n_body, for splits by hand. */
KERNEL n_body_rows(POINTER(const float) bodies, POINTER(float) accelerations, float softening, int count, int first) {
  n_body_rows_at(bodies, accelerations, softening, count, first, X);
}

/* Arrays of an instance's own. */

KERNEL complex_product(POINTER(const float) a, POINTER(const float) b, POINTER(float) c) {
  complex_product_at(a, b, c, X);
}

SIMD KERNEL unit_vectors(POINTER(const float) in, POINTER(float) out) { unit_vectors_at(in, out, X); }

KERNEL complex_matrices(POINTER(const float) a, POINTER(const float) b, POINTER(float) c) {
  complex_matrices_at(a, b, c, X);
}

KERNEL xtea(POINTER(const int) key, POINTER(int) blocks, int rounds) { xtea_at(key, blocks, rounds, X); }

KERNEL sha256(POINTER(const int) messages, POINTER(const int) constants, POINTER(int) hashes) {
  sha256_at(messages, constants, hashes, X);
}

KERNEL keccak(POINTER(const int) messages, POINTER(const int) constants, POINTER(int) hashes) {
  keccak_at(messages, constants, hashes, X);
}

KERNEL binomial(POINTER(const float) prices, POINTER(const float) strikes, POINTER(float) puts, float up,
                float up_weight, float down_weight) {
  binomial_at(prices, strikes, puts, up, up_weight, down_weight, X);
}

KERNEL paths(POINTER(const int) seeds, POINTER(float) falls, float drift, float spread) {
  paths_at(seeds, falls, drift, spread, X);
}

KERNEL lattice(POINTER(const float) source, POINTER(float) target, float omega, int nx, int ny) {
  lattice_at(source, target, omega, nx, ny, X, Y);
}

KERNEL sort_rows(POINTER(float) values) { sort_rows_at(values, X); }

KERNEL docking(POINTER(const float) ligand, POINTER(const float) protein, POINTER(const float) poses,
               POINTER(float) scores, float reach, int atoms) {
  docking_at(ligand, protein, poses, scores, reach, atoms, X);
}

KERNEL stencil27(POINTER(const float) in, POINTER(float) out, float own, float others, int nx, int ny, int nz) {
  stencil27_at(in, out, own, others, nx, ny, nz, X, Y, Z);
}

/* Groups. */

KERNEL tree_sum(POINTER(const float) values, POINTER(float) sums) {
  LOCAL_ARRAY(float, leaves, LEAVES);
  tree_sum_at(values, sums, leaves, GROUP, LOCAL_X);
}

KERNEL layer_norm(POINTER(const float) in, POINTER(float) out) {
  LOCAL_ARRAY(float, sums, NORM_GROUP);
  layer_norm_at(in, out, sums, GROUP, LOCAL_X);
}

KERNEL bitonic_sort(POINTER(int) values) {
  LOCAL_ARRAY(int, block, SORT_BLOCK);
  bitonic_sort_at(values, block, GROUP, LOCAL_X);
}

#endif /* HPVMD_BENCH_GPU_KERNELS_H_ */
