// SPDX-License-Identifier: Apache-2.0
// C = A * B, one instance per element of C: x runs over columns, y over rows.
#include "hpvm.h"

HPVM_KERNEL void matmul(const float* a, const float* b, float* c, int n, int k) {
  int column = hpvm_instance_id(0);
  int row = hpvm_instance_id(1);
  float sum = 0;
  for (int i = 0; i < k; ++i) {
    sum += a[row * k + i] * b[i * n + column];
  }
  c[row * n + column] = sum;
}
