// SPDX-License-Identifier: Apache-2.0
// The median of 9 neighbours, sorted in a local array that the compiler keeps on the shadow stack in module memory.
#include "hpvm.h"

static __attribute__((noinline)) void sort(uint16_t* values, int count) {
  for (int i = 1; i < count; ++i) {
    uint16_t value = values[i];
    int j = i;
    for (; j > 0 && values[j - 1] > value; --j) {
      values[j] = values[j - 1];
    }
    values[j] = value;
  }
}

HPVM_KERNEL void median(const uint16_t* image, uint16_t* out, int width, int height) {
  int x = hpvm_instance_id(0), y = hpvm_instance_id(1);
  uint16_t values[9];
  int count = 0;
  for (int v = y - 1; v <= y + 1; ++v) {
    for (int u = x - 1; u <= x + 1; ++u) {
      if (u >= 0 && u < width && v >= 0 && v < height) {
        values[count++] = image[v * width + u];
      }
    }
  }
  sort(values, count);
  out[y * width + x] = values[count / 2];
}
