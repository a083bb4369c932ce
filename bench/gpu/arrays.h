/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels whose instances keep an array of their own, beside those of bench/cpu/small_arrays.h; each for one instance.
 */
#ifndef HPVMD_BENCH_GPU_ARRAYS_H_
#define HPVMD_BENCH_GPU_ARRAYS_H_

#include "language.h"

/* SHA3-256 (FIPS 202) of messages of 64 bytes: 16 little-endian words in, 8 out. `constants`: a low and a high word for
 * each round. */
#define KECCAK_WORDS 25
#define KECCAK_ROUNDS 24
BODY u64 turned(u64 word, int bits) { return bits == 0 ? word : word << bits | word >> (64 - bits); }
BODY u64 joined(GLOBAL const int* restrict words, int at) {
  return (unsigned)words[2 * at] | (u64)(unsigned)words[2 * at + 1] << 32;
}
BODY void keccak_at(GLOBAL const int* restrict messages, GLOBAL const int* restrict constants,
                    GLOBAL int* restrict hashes, int i) {
  u64 state[KECCAK_WORDS];
  for (int k = 0; k < KECCAK_WORDS; ++k) {
    state[k] = k < 8 ? joined(messages, 8 * i + k) : 0;
  }
  state[8] = 6;
  state[16] = (u64)1 << 63;
  for (int round = 0; round < KECCAK_ROUNDS; ++round) {
    u64 columns[5];
    for (int x = 0; x < 5; ++x) {
      columns[x] = state[x] ^ state[x + 5] ^ state[x + 10] ^ state[x + 15] ^ state[x + 20];
    }
    for (int x = 0; x < 5; ++x) {
      const u64 both = columns[(x + 4) % 5] ^ turned(columns[(x + 1) % 5], 1);
      for (int y = 0; y < 5; ++y) {
        state[x + 5 * y] ^= both;
      }
    }
    u64 moved = state[1];
    for (int t = 0, x = 1, y = 0; t < KECCAK_WORDS - 1; ++t) {
      const int next = (2 * x + 3 * y) % 5;
      x = y;
      y = next;
      const u64 here = state[x + 5 * y];
      state[x + 5 * y] = turned(moved, (t + 1) * (t + 2) / 2 % 64);
      moved = here;
    }
    for (int y = 0; y < 5; ++y) {
      u64 row[5];
      for (int x = 0; x < 5; ++x) {
        row[x] = state[x + 5 * y];
      }
      for (int x = 0; x < 5; ++x) {
        state[x + 5 * y] = row[x] ^ (~row[(x + 1) % 5] & row[(x + 2) % 5]);
      }
    }
    state[0] ^= joined(constants, round);
  }
  for (int k = 0; k < 4; ++k) {
    hashes[8 * i + 2 * k] = (int)(unsigned)state[k];
    hashes[8 * i + 2 * k + 1] = (int)(unsigned)(state[k] >> 32);
  }
}

/* How far a random price falls at most, from one of PATH_STEPS steps to a later one. */
#define PATH_STEPS 80
BODY void paths_at(GLOBAL const int* restrict seeds, GLOBAL float* restrict falls, float drift, float spread, int i) {
  float path[PATH_STEPS], price = 1;
  unsigned state = (unsigned)seeds[i];
  for (int k = 0; k < PATH_STEPS; ++k) {
    state = state * 1664525u + 1013904223u;
    const float shock = (float)(int)(state >> 8) * (1.0f / 8388608) - 1.0f;
    price *= drift + spread * shock;
    path[k] = price;
  }
  float lowest = price, fall = 0;
  for (int k = PATH_STEPS - 2; k >= 0; --k) {
    lowest = path[k] < lowest ? path[k] : lowest;
    fall = path[k] - lowest > fall ? path[k] - lowest : fall;
  }
  falls[i] = fall;
}

/* A step of a lattice Boltzmann fluid in two dimensions (D2Q9), periodic: nine arrays of nx * ny numbers, pulled from
 * the neighbours and relaxed by `omega`. */
#define DIRECTIONS 9
BODY void lattice_at(GLOBAL const float* restrict source, GLOBAL float* restrict target, float omega, int nx, int ny,
                     int x, int y) {
  const int dx[DIRECTIONS] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, dy[DIRECTIONS] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
  const float weights[DIRECTIONS] = {4.0f / 9,  1.0f / 9,  1.0f / 9,  1.0f / 9, 1.0f / 9,
                                     1.0f / 36, 1.0f / 36, 1.0f / 36, 1.0f / 36};
  float f[DIRECTIONS], density = 0, along_x = 0, along_y = 0;
  for (int d = 0; d < DIRECTIONS; ++d) {
    const int from_x = (x - dx[d] + nx) % nx, from_y = (y - dy[d] + ny) % ny;
    f[d] = source[(d * ny + from_y) * nx + from_x];
    density += f[d];
    along_x += (float)dx[d] * f[d];
    along_y += (float)dy[d] * f[d];
  }
  along_x /= density;
  along_y /= density;
  const float square = 1.5f * (along_x * along_x + along_y * along_y);
  for (int d = 0; d < DIRECTIONS; ++d) {
    const float along = 3.0f * ((float)dx[d] * along_x + (float)dy[d] * along_y);
    const float rest = weights[d] * density * (1.0f + along + 0.5f * along * along - square);
    target[(d * ny + y) * nx + x] = f[d] + omega * (rest - f[d]);
  }
}

#endif /* HPVMD_BENCH_GPU_ARRAYS_H_ */
