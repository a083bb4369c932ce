/* SPDX-License-Identifier: Apache-2.0 */
/* The exports of math.wasm for nodes with "math": "fast": see fast.def and device.def. */
#include "fast_f64.h"

/* Calls of these become operations of the kernel IR (compiler/front/wasm/lower/math.cc). */
#define DEVICE_FUNCTION(name, operation) \
  __attribute__((import_module("device"), import_name(operation), const)) float name(float x);
DEVICE_FUNCTION(ApproxSin, "approx_sin")
DEVICE_FUNCTION(ApproxCos, "approx_cos")
DEVICE_FUNCTION(ApproxExp2, "approx_exp2")
DEVICE_FUNCTION(ApproxLog2, "approx_log2")

/* One operation on devices, whose code contracts it. */
static inline float ProductPlus(float a, float b, float c) { return a * b + c; }
/* No compiler moves it past a branch. */
static inline float InPlace(float x) {
  __asm__ volatile("" : "+r"(x));
  return x;
}

#include "compiler/math/device_f32.h"

#define PARAMS_1(type) type x
#define PARAMS_2(type) type x, type y
#define HPVM_FAST_F32(count, name, form)                                     \
  __attribute__((export_name(#name "_f32.fast"))) float fast_##name##_f32(PARAMS_##count(float)) { return form; }
#define HPVM_FAST_F64(count, name, form)                                     \
  __attribute__((export_name(#name "_f64.fast"))) double fast_##name##_f64(PARAMS_##count(double)) { return form; }
#include "fast.def"
#define HPVM_DEVICE_F32(name, form) \
  __attribute__((export_name(#name "_f32.device"))) float device_##name##_f32(float x) { return form; }
#include "device.def"
