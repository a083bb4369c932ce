// SPDX-License-Identifier: Apache-2.0
// Functions shared by the corpus's kernels.
#ifndef HPVMD_TESTS_GPU_GRAPHS_COMMON_H_
#define HPVMD_TESTS_GPU_GRAPHS_COMMON_H_

#include <stdint.h>

#define X ((int)hpvm_instance_id(0))
#define Y ((int)hpvm_instance_id(1))
#define Z ((int)hpvm_instance_id(2))

static inline uint64_t Mix64(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

static inline uint32_t Mix32(uint32_t x) {  // murmur3's end
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

static inline uint32_t Turn32(uint32_t x, int n) { return x << n | x >> (32 - n); }
static inline int Least(int a, int b) { return a < b ? a : b; }
static inline int Most(int a, int b) { return a > b ? a : b; }
static inline int Clamp(int x, int low, int high) { return Least(Most(x, low), high); }

#endif  // HPVMD_TESTS_GPU_GRAPHS_COMMON_H_
