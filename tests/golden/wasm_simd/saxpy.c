// SPDX-License-Identifier: Apache-2.0
// y = a x + y over a share of the elements per instance; clang vectorizes it with f32x4.
#include "hpvm.h"

HPVM_KERNEL void saxpy(const float* restrict x, float* restrict y, float a, int share) {
  int begin = hpvm_instance_id(0) * share;
  int count = (int)(hpvm_buffer_size(1) / 4);
  int end = begin + share < count ? begin + share : count;
  for (int i = begin; i < end; i++) {
    y[i] = a * x[i] + y[i];
  }
}
