// SPDX-License-Identifier: Apache-2.0
// Jacobi's method for Laplace's equation: each free point becomes the mean of its four neighbours, until no point
// changes.
#include "hpvm.h"

// One instance per point. Points at the edge and those of `fixed` keep their potential.
HPVM_KERNEL void sweep(const float* potential, const unsigned char* fixed, float* next, int width, int height) {
  int x = hpvm_instance_id(0), y = hpvm_instance_id(1), i = y * width + x;
  if (x == 0 || y == 0 || x == width - 1 || y == height - 1 || fixed[i]) {
    next[i] = potential[i];
    return;
  }
  next[i] = ((potential[i - 1] + potential[i + 1]) + (potential[i - width] + potential[i + width])) * 0.25f;
}

// The largest change of a sweep; one instance per row. Bits of nonnegative floats order as integers do.
HPVM_KERNEL void change(const float* before, const float* after, int* largest_bits, int width) {
  int row = hpvm_instance_id(0) * width;
  float largest = 0;
  for (int x = 0; x < width; ++x) {
    float difference = __builtin_fabsf(after[row + x] - before[row + x]);
    largest = difference > largest ? difference : largest;
  }
  int bits;
  __builtin_memcpy(&bits, &largest, sizeof(bits));
  hpvm_atomic_max_s_i32(largest_bits, bits);
}

HPVM_KERNEL void is_done(const float* largest, unsigned* done, float tolerance) { *done = *largest <= tolerance; }
