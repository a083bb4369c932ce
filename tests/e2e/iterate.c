// SPDX-License-Identifier: Apache-2.0
// Kernels of iterations and of extents that depend on data, for tests/e2e/iterate.py. Rebuilt by build.sh; the .wasm is
// committed.
#include "hpvm.h"

// One step of Newton's method towards the square root of `squares`.
HPVM_KERNEL void newton(const double* guess, const double* squares, double* better) {
  int i = hpvm_instance_id(0);
  better[i] = 0.5 * (guess[i] + squares[i] / guess[i]);
}

// Sets `done` when no element has changed by more than 1e-12.
HPVM_KERNEL void settled(const double* before, const double* after, unsigned* done, int count) {
  unsigned all = 1;
  for (int i = 0; i < count; ++i) {
    double change = after[i] - before[i];
    all &= change < 1e-12 && change > -1e-12;
  }
  done[0] = all;
}

// Writes the values that are not negative, one after the other, and their number plus `extra`.
HPVM_KERNEL void compact(const double* values, double* kept, unsigned* count, int size, int extra) {
  unsigned found = 0;
  for (int i = 0; i < size; ++i) {
    if (values[i] >= 0) {
      kept[found++] = values[i];
    }
  }
  count[0] = found + (unsigned)extra;
}

HPVM_KERNEL void plus_one(const unsigned* count, const double* kept, double* out) {
  int i = hpvm_instance_id(0);
  out[i] = kept[i] + 1;
}

HPVM_KERNEL void sum(const double* a, const double* b, double* out) {
  int i = hpvm_instance_id(0);
  out[i] = a[i] + b[i];
}
