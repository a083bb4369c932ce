// SPDX-License-Identifier: Apache-2.0
// A loop that clang vectorizes with -msimd128, and loops that it turns into the bulk operations memset and memcpy.
#include "client/kernel/hpvm.h"

HPVM_KERNEL void saxpy(const int* x, int* out, int count) {
  int row[64];
  __builtin_memset(row, 1, sizeof(row));
  const int n = count < 64 ? count : 64;
  for (int i = 0; i < n; ++i) {
    row[i] = 3 * x[i] + row[i];
  }
  if (hpvm_instance_id(0) == 0) {
    __builtin_memcpy(out, row, sizeof(int) * n);
  }
}
