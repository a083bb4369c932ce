// SPDX-License-Identifier: Apache-2.0
// Loops over bytes: the count of each value (the comparison and its count become i8x16 and wider), and the edges of
// an image by Sobel's operator, which mixes i8x16, i16x8 and narrowing.
#include "hpvm.h"

HPVM_KERNEL void occurs(const uint8_t* restrict bytes, int32_t* restrict bins, int count) {
  uint8_t value = (uint8_t)hpvm_instance_id(0);
  int32_t found = 0;
  for (int i = 0; i < count; i++) {
    found += bytes[i] == value;
  }
  bins[hpvm_instance_id(0)] = found;
}

HPVM_KERNEL void sobel(const uint8_t* restrict image, uint8_t* restrict out, int width, int height) {
  int y = hpvm_instance_id(0) + 1;
  if (y >= height - 1) {
    return;
  }
  const uint8_t* above = image + (y - 1) * width;
  const uint8_t* here = above + width;
  const uint8_t* below = here + width;
  uint8_t* row = out + y * width;
  for (int x = 1; x < width - 1; x++) {
    int across = above[x + 1] + 2 * here[x + 1] + below[x + 1] - above[x - 1] - 2 * here[x - 1] - below[x - 1];
    int down = below[x - 1] + 2 * below[x] + below[x + 1] - above[x - 1] - 2 * above[x] - above[x + 1];
    int sum = (across < 0 ? -across : across) + (down < 0 ? -down : down);
    row[x] = (uint8_t)(sum > 255 ? 255 : sum);
  }
}
