/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels whose instances keep small arrays of their own, or reach several neighbouring elements each: what compilers
 * for data-parallel languages find harder than one element an instance. Each for one instance. */
#ifndef HPVMD_BENCH_CPU_SMALL_ARRAYS_H_
#define HPVMD_BENCH_CPU_SMALL_ARRAYS_H_

#include "language.h"

/* c = a b, element by element; real and imaginary parts stand side by side. */
BODY void complex_product_at(GLOBAL const float* restrict a, GLOBAL const float* restrict b, GLOBAL float* restrict c,
                             int i) {
  c[2 * i] = a[2 * i] * b[2 * i] - a[2 * i + 1] * b[2 * i + 1];
  c[2 * i + 1] = a[2 * i] * b[2 * i + 1] + a[2 * i + 1] * b[2 * i];
}

/* Vectors of four numbers divided by their lengths; for Wasm with 16-byte vector instructions. */
#ifdef __wasm__
#include <wasm_simd128.h>
__attribute__((target("simd128"))) BODY void unit_vectors_at(const float* restrict in, float* restrict out, int i) {
  const v128_t v = wasm_v128_load(in + 4 * i), squares = wasm_f32x4_mul(v, v);
  const float square = wasm_f32x4_extract_lane(squares, 0) + wasm_f32x4_extract_lane(squares, 1) +
                       wasm_f32x4_extract_lane(squares, 2) + wasm_f32x4_extract_lane(squares, 3);
  wasm_v128_store(out + 4 * i, wasm_f32x4_div(v, wasm_f32x4_splat(SQRTF(square))));
}
#else
BODY void unit_vectors_at(GLOBAL const float* restrict in, GLOBAL float* restrict out, int i) {
  float square = in[4 * i] * in[4 * i];
  for (int k = 1; k < 4; ++k) {
    square += in[4 * i + k] * in[4 * i + k];
  }
  const float length = SQRTF(square);
  for (int k = 0; k < 4; ++k) {
    out[4 * i + k] = in[4 * i + k] / length;
  }
}
#endif

/* c = a b for 3 x 3 complex matrices, 18 numbers each, as in lattice quantum chromodynamics. */
#define MATRIX 18
BODY void complex_matrices_at(GLOBAL const float* restrict a, GLOBAL const float* restrict b, GLOBAL float* restrict c,
                              int i) {
  float left[MATRIX], right[MATRIX];
  for (int k = 0; k < MATRIX; ++k) {
    left[k] = a[MATRIX * i + k];
    right[k] = b[MATRIX * i + k];
  }
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) {
      float real = 0, imaginary = 0;
      for (int k = 0; k < 3; ++k) {
        const int l = 2 * (3 * row + k), r = 2 * (3 * k + column);
        real += left[l] * right[r] - left[l + 1] * right[r + 1];
        imaginary += left[l] * right[r + 1] + left[l + 1] * right[r];
      }
      c[MATRIX * i + 2 * (3 * row + column)] = real;
      c[MATRIX * i + 2 * (3 * row + column) + 1] = imaginary;
    }
  }
}

/* The block cipher XTEA (Needham and Wheeler, 1997), one block of two words an instance. */
BODY void xtea_at(GLOBAL const int* restrict key, GLOBAL int* restrict blocks, int rounds, int i) {
  unsigned words[4];
  for (int k = 0; k < 4; ++k) {
    words[k] = (unsigned)key[k];
  }
  unsigned left = (unsigned)blocks[2 * i], right = (unsigned)blocks[2 * i + 1], sum = 0;
  for (int round = 0; round < rounds; ++round) {
    left += (((right << 4) ^ (right >> 5)) + right) ^ (sum + words[sum & 3u]);
    sum += 0x9e3779b9u;
    right += (((left << 4) ^ (left >> 5)) + left) ^ (sum + words[(sum >> 11) & 3u]);
  }
  blocks[2 * i] = (int)left;
  blocks[2 * i + 1] = (int)right;
}

/* SHA-256 (FIPS 180-4) of messages of 52 bytes, which fill one block: 13 big-endian words in, 8 out. */
#define MESSAGE_WORDS 13
#define ROTATE(x, n) (((x) >> (n)) | ((x) << (32 - (n))))
BODY unsigned sha256_constant(GLOBAL const int* restrict constants, int round) { return (unsigned)constants[round]; }
BODY void sha256_at(GLOBAL const int* restrict messages, GLOBAL const int* restrict constants,
                    GLOBAL int* restrict hashes, int i) {
  unsigned w[16], state[8];
  for (int k = 0; k < MESSAGE_WORDS; ++k) {
    w[k] = (unsigned)messages[MESSAGE_WORDS * i + k];
  }
  w[MESSAGE_WORDS] = 0x80000000u;
  w[14] = 0;
  w[15] = MESSAGE_WORDS * 32;
  for (int k = 0; k < 8; ++k) { /* Behind the 64 constants of the rounds stands the first state. */
    state[k] = sha256_constant(constants, 64 + k);
  }
  unsigned a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6],
           h = state[7];
  for (int round = 0; round < 64; ++round) {
    unsigned word = w[round & 15];
    if (round >= 16) {
      const unsigned before15 = w[(round + 1) & 15], before2 = w[(round + 14) & 15];
      word += (ROTATE(before15, 7) ^ ROTATE(before15, 18) ^ (before15 >> 3)) + w[(round + 9) & 15] +
              (ROTATE(before2, 17) ^ ROTATE(before2, 19) ^ (before2 >> 10));
      w[round & 15] = word;
    }
    const unsigned t1 = h + (ROTATE(e, 6) ^ ROTATE(e, 11) ^ ROTATE(e, 25)) + ((e & f) ^ (~e & g)) +
                        sha256_constant(constants, round) + word;
    const unsigned t2 = (ROTATE(a, 2) ^ ROTATE(a, 13) ^ ROTATE(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const unsigned end[8] = {a, b, c, d, e, f, g, h};
  for (int k = 0; k < 8; ++k) {
    hashes[8 * i + k] = (int)(state[k] + end[k]);
  }
}

/* An American put by a binomial lattice (Cox, Ross and Rubinstein, 1979) of LATTICE steps. */
#define LATTICE 64
BODY void binomial_at(GLOBAL const float* restrict prices, GLOBAL const float* restrict strikes,
                      GLOBAL float* restrict puts, float up, float up_weight, float down_weight, int i) {
  float values[LATTICE + 1];
  const float strike = strikes[i], down = 1.0f / up;
  float lowest = prices[i];
  for (int k = 0; k < LATTICE; ++k) {
    lowest *= down;
  }
  float price = lowest;
  for (int k = 0; k <= LATTICE; ++k) {
    values[k] = strike > price ? strike - price : 0.0f;
    price *= up * up;
  }
  for (int step = LATTICE - 1; step >= 0; --step) {
    lowest *= up;
    price = lowest;
    for (int k = 0; k <= step; ++k) {
      const float held = up_weight * values[k + 1] + down_weight * values[k], now = strike - price;
      values[k] = now > held ? now : held;
      price *= up * up;
    }
  }
  puts[i] = values[0];
}

/* Sorts rows of SORTED numbers by exchanging neighbours, odd and even places in turn. */
#define SORTED 8
BODY void sort_rows_at(GLOBAL float* restrict values, int i) {
  float row[SORTED];
  for (int k = 0; k < SORTED; ++k) {
    row[k] = values[SORTED * i + k];
  }
  for (int pass = 0; pass < SORTED; ++pass) {
    for (int k = pass & 1; k + 1 < SORTED; k += 2) {
      const float a = row[k], b = row[k + 1];
      row[k] = a < b ? a : b;
      row[k + 1] = a < b ? b : a;
    }
  }
  for (int k = 0; k < SORTED; ++k) {
    values[SORTED * i + k] = row[k];
  }
}

/* A docking score: how a small molecule, turned about z and moved, fits to a large one. Atoms are x, y, z, charge. */
#define LIGAND 16
BODY void docking_at(GLOBAL const float* restrict ligand, GLOBAL const float* restrict protein,
                     GLOBAL const float* restrict poses, GLOBAL float* restrict scores, float reach, int atoms, int i) {
  float x[LIGAND], y[LIGAND], z[LIGAND];
  const float sine = SINF(poses[4 * i]), cosine = COSF(poses[4 * i]);
  for (int k = 0; k < LIGAND; ++k) {
    x[k] = cosine * ligand[4 * k] - sine * ligand[4 * k + 1] + poses[4 * i + 1];
    y[k] = sine * ligand[4 * k] + cosine * ligand[4 * k + 1] + poses[4 * i + 2];
    z[k] = ligand[4 * k + 2] + poses[4 * i + 3];
  }
  float score = 0;
  for (int p = 0; p < atoms; ++p) {
    for (int k = 0; k < LIGAND; ++k) {
      const float dx = x[k] - protein[4 * p], dy = y[k] - protein[4 * p + 1], dz = z[k] - protein[4 * p + 2];
      const float distance = SQRTF(dx * dx + dy * dy + dz * dz);
      const float near = distance < reach ? 1.0f - distance / reach : 0.0f;
      score += ligand[4 * k + 3] * protein[4 * p + 3] * near;
    }
  }
  scores[i] = score;
}

/* A mean of 27 neighbours; beyond the border stands the border's element again. */
BODY int clamped_index(int i, int count) { return i < 0 ? 0 : i >= count ? count - 1 : i; }
BODY void stencil27_at(GLOBAL const float* restrict in, GLOBAL float* restrict out, float own, float others, int nx,
                       int ny, int nz, int i, int j, int k) {
  float sum = 0;
  for (int dz = -1; dz <= 1; ++dz) {
    for (int dy = -1; dy <= 1; ++dy) {
      for (int dx = -1; dx <= 1; ++dx) {
        sum += in[(clamped_index(k + dz, nz) * ny + clamped_index(j + dy, ny)) * nx + clamped_index(i + dx, nx)];
      }
    }
  }
  const int at = (k * ny + j) * nx + i;
  out[at] = own * in[at] + others * sum;
}

#endif /* HPVMD_BENCH_CPU_SMALL_ARRAYS_H_ */
