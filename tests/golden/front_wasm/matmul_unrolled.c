// SPDX-License-Identifier: Apache-2.0
// C = A * B, four columns an instance, the inner loop unrolled by four. k is a multiple of 4.
#include "hpvm.h"

HPVM_KERNEL void matmul(const float* a, const float* b, float* c, int n, int k) {
  int column = 4 * hpvm_instance_id(0);
  int row = hpvm_instance_id(1);
  float sum[4] = {0, 0, 0, 0};
#pragma clang loop unroll_count(4)
  for (int i = 0; i < k; ++i) {
    float left = a[row * k + i];
    for (int j = 0; j < 4; ++j) {
      sum[j] += left * b[i * n + column + j];
    }
  }
  for (int j = 0; j < 4; ++j) {
    c[row * n + column + j] = sum[j];
  }
}
