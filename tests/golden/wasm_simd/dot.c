// SPDX-License-Identifier: Apache-2.0
// Dot products of shares of two vectors: floats and doubles, which may be added in any order, by clang's
// vectorizer; of 16-bit integers with the intrinsics.
#include <wasm_simd128.h>

#include "hpvm.h"

HPVM_KERNEL void dot_f32(const float* x, const float* y, float* out, int share) {
#pragma clang fp reassociate(on)
  int begin = hpvm_instance_id(0) * share;
  float sum = 0;
  for (int i = begin; i < begin + share; i++) {
    sum += x[i] * y[i];
  }
  out[hpvm_instance_id(0)] = sum;
}

HPVM_KERNEL void dot_f64(const double* x, const double* y, double* out, int share) {
#pragma clang fp reassociate(on)
  int begin = hpvm_instance_id(0) * share;
  double sum = 0;
  for (int i = begin; i < begin + share; i++) {
    sum += x[i] * y[i];
  }
  out[hpvm_instance_id(0)] = sum;
}

// The share is a multiple of eight.
HPVM_KERNEL void dot_i16(const int16_t* x, const int16_t* y, int32_t* out, int share) {
  int begin = hpvm_instance_id(0) * share;
  v128_t sums = wasm_i32x4_const_splat(0);
  for (int i = begin; i < begin + share; i += 8) {
    sums = wasm_i32x4_add(sums, wasm_i32x4_dot_i16x8(wasm_v128_load(x + i), wasm_v128_load(y + i)));
  }
  sums = wasm_i32x4_add(sums, wasm_i32x4_shuffle(sums, sums, 2, 3, 0, 1));
  out[hpvm_instance_id(0)] = wasm_i32x4_extract_lane(sums, 0) + wasm_i32x4_extract_lane(sums, 1);
}
