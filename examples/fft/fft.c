// SPDX-License-Identifier: Apache-2.0
// The fast Fourier transform of each row of a matrix of complex numbers, by radix 2 in place. A row has 2^stages
// numbers.
#include "hpvm.h"

// Reorders each row by bit-reversed indices; one instance per number.
HPVM_KERNEL void reverse(const hpvm_f32x2* in, hpvm_f32x2* out, int width, int stages) {
  unsigned x = hpvm_instance_id(0), reversed = 0;
  for (int bit = 0; bit < stages; ++bit) {
    reversed |= (x >> bit & 1) << (stages - 1 - bit);
  }
  int row = hpvm_instance_id(1) * width;
  out[row + x] = in[row + reversed];
}

// One stage: pairs that are 2^stage apart become their sum and difference. One instance per pair.
HPVM_KERNEL void butterfly(hpvm_f32x2* data, int width, int stage, int direction) {
  int pair = hpvm_instance_id(0), half = 1 << stage, within = pair & (half - 1);
  int low = hpvm_instance_id(1) * width + 2 * pair - within, high = low + half;
  float angle = direction * -3.14159265358979f * within / half;
  float c = hpvm_cos_f32(angle), s = hpvm_sin_f32(angle);
  hpvm_f32x2 a = data[low], b = data[high];
  hpvm_f32x2 turned = {b.x * c - b.y * s, b.x * s + b.y * c};
  data[low] = a + turned;
  data[high] = a - turned;
}

HPVM_KERNEL void transpose(const hpvm_f32x2* in, hpvm_f32x2* out, int width, int height) {
  int x = hpvm_instance_id(0), y = hpvm_instance_id(1);
  out[x * height + y] = in[y * width + x];
}
