/* SPDX-License-Identifier: Apache-2.0 */
/* The exports of math.wasm: see functions.def. build.sh compiles and links this with musl's libm. */
#define _GNU_SOURCE
#include <math.h>

#include "exp_log.h"
#include "trig.h"

/* Exact enough for float: the error of the product, at most 2^-45 of the result, is far below float's 2^-24. */
static double EXP10_NEAR(double x) { return exp2(x * 0x1.a934f0979a371p+1); }

/* musl's gives some number below 1. */
static double ACOSH(double x) { return x < 1 ? (x - x) / (x - x) : acosh(x); }

/* musl's lgamma stores the sign in a variable; a kernel has no use for it. */
static double LGAMMA(double x) {
  int sign;
  return lgamma_r(x, &sign);
}

#define PARAMS_1(type) type x
#define PARAMS_2(type) type x, type y
#define PARAMS_3(type) type x, type y, type z
#define HPVM_MATH(count, name, f32, f64)                                                                        \
  __attribute__((export_name(#name "_f32"))) float hpvm_##name##_f32(PARAMS_##count(float)) { return f32; }     \
  __attribute__((export_name(#name "_f64"))) double hpvm_##name##_f64(PARAMS_##count(double)) { return f64; }
#include "functions.def"
