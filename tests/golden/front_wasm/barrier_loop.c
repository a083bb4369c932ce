// SPDX-License-Identifier: Apache-2.0
// The sum of a group's elements, as a tree in group memory with a barrier in the loop.
#include "hpvm.h"

HPVM_KERNEL void reduce(const double* in, double* out, int n) {
  int i = hpvm_instance_id(0), local = hpvm_local_id(0), size = hpvm_group_size(0);
  double* partial = hpvm_local_alloc(size * sizeof(double));
  partial[local] = i < n ? in[i] : 0;
  for (int half = size / 2; half > 0; half /= 2) {
    hpvm_barrier();
    if (local < half) {
      partial[local] += partial[local + half];
    }
  }
  if (local == 0) {
    out[hpvm_group_id(0)] = partial[0];
  }
}
