// SPDX-License-Identifier: Apache-2.0
// The first position of `value` in a row of a matrix, or -1; returns from inside two loops. Surplus instances return at
// once.
#include "hpvm.h"

HPVM_KERNEL void find(const int* matrix, int* where, int rows, int columns, int value) {
  int row = hpvm_instance_id(0);
  if (row >= rows) {
    return;
  }
  where[row] = -1;
  for (int block = 0; block < columns; block += 8) {
    for (int i = block; i < block + 8 && i < columns; ++i) {
      int found = matrix[row * columns + i];
      if (found == value) {
        where[row] = i;
        return;
      }
      if (found < 0) {
        break;  // The rest of this block is skipped.
      }
    }
  }
}
