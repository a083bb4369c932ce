// SPDX-License-Identifier: Apache-2.0
// Kernels in wide groups: group memory, barriers in loops, branches between them.
#include "hpvm.h"

#define SORT(NAME, TYPE, COUNT)                                           \
  HPVM_KERNEL void NAME(const TYPE* restrict in, TYPE* restrict out) {    \
    TYPE* keys = hpvm_local_alloc(COUNT * sizeof(TYPE));                  \
    const int t = (int)hpvm_local_id(0), at = (int)hpvm_instance_id(0);   \
    keys[t] = in[at];                                                     \
    for (int size = 2; size <= COUNT; size *= 2) {                        \
      for (int step = size / 2; step > 0; step /= 2) {                    \
        hpvm_barrier();                                                   \
        const int other = t ^ step;                                       \
        if (other > t) {                                                  \
          const TYPE a = keys[t], b = keys[other];                        \
          if (((t & size) == 0) == (a > b)) {                             \
            keys[t] = b;                                                  \
            keys[other] = a;                                              \
          }                                                               \
        }                                                                 \
      }                                                                   \
    }                                                                     \
    hpvm_barrier();                                                       \
    out[at] = keys[t];                                                    \
  }

// Bitonic sorts of a group's keys, in 4 KiB of group memory each.
SORT(sort512, unsigned long long, 512)
SORT(sort1024, unsigned, 1024)

// The same with two keys for each instance, and barriers before each step.
HPVM_KERNEL void sort_pairs(const unsigned* restrict in, unsigned* restrict out) {
  const unsigned t = (unsigned)hpvm_local_id(0), block = (unsigned)hpvm_group_id(0) * 1024;
  unsigned* keys = hpvm_local_alloc(4096);
  keys[t] = in[block + t];
  keys[t + 512] = in[block + t + 512];
  for (unsigned size = 2; size <= 1024; size <<= 1) {
    for (unsigned stride = size / 2; stride > 0; stride >>= 1) {
      hpvm_barrier();
      const unsigned at = 2 * t - (t & (stride - 1));
      const unsigned a = keys[at], b = keys[at + stride];
      const int falls = (t & (size / 2)) != 0 && size < 1024;
      if ((a > b) != falls) {
        keys[at] = b;
        keys[at + stride] = a;
      }
    }
  }
  hpvm_barrier();
  out[block + t] = keys[t];
  out[block + t + 512] = keys[t + 512];
}

// Any group of up to 2,048; the last one may be partial.
HPVM_KERNEL void turn(const unsigned* restrict in, unsigned* restrict out, int n) {
  const int t = (int)hpvm_local_id(0), at = (int)hpvm_instance_id(0), size = (int)hpvm_group_size(0);
  unsigned* keys = hpvm_local_alloc(8192);
  keys[t] = in[at];
  hpvm_barrier();
  const int left = n - (at - t), here = left < size ? left : size;
  out[at] = keys[here - 1 - t];
}
