/* SPDX-License-Identifier: Apache-2.0 */
/* The exports of math.wasm for nodes with "math": "fast": see fast.def. */
#include "fast_f32.h"
#include "fast_f64.h"

#define PARAMS_1(type) type x
#define PARAMS_2(type) type x, type y
#define HPVM_FAST_F32(count, name, form)                                     \
  __attribute__((export_name(#name "_f32.fast"))) float fast_##name##_f32(PARAMS_##count(float)) { return form; }
#define HPVM_FAST_F64(count, name, form)                                     \
  __attribute__((export_name(#name "_f64.fast"))) double fast_##name##_f64(PARAMS_##count(double)) { return form; }
#include "fast.def"
