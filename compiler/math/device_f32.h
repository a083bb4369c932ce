/* SPDX-License-Identifier: Apache-2.0 */
/* The forms of f32 functions on top of what a device computes by itself, for devices with GpuTarget::device_math.
 * Whoever includes this has defined what stands below:
 *   ApproxSin(x), ApproxCos(x)    off by 2^-20.5 for -pi <= x <= pi; near there is near enough, as they are periodic
 *   ApproxExp2(x)                 relative error 2^-22; 0 for what is below 2^-126
 *   ApproxLog2(x)                 off by 2^-22 for x from 1/2 to 2, elsewhere a relative error of 2^-22
 *   ProductPlus(a, b, c)          a * b + c, rounded once
 *   InPlace(x)                    x, computed where this stands and not only in branches that use it
 * with infinities, NaNs and zeros as in C; denormal numbers may count as zeros. The bounds are those that NVIDIA states
 * for sin.approx, cos.approx, ex2.approx and lg2.approx ("Floating Point Instructions" of the PTX ISA).
 *
 * Only sums and products are used for rounding to integers: a device rounds at the rate of its special functions. */
#ifndef HPVMD_COMPILER_MATH_DEVICE_F32_H_
#define HPVMD_COMPILER_MATH_DEVICE_F32_H_

#include "compiler/math/fast_f32.h"

/* c - a * b, rounded once. */
static inline float MinusProduct(float c, float a, float b) { return ProductPlus(-a, b, c); }

/* ---- sin, cos. */

/* The angle between -pi and pi, nearly, that x stands for: right for |x| <= 2^20, above which the quotient is a quarter
 * of a turn off and more. There is no branch for such x: NVIDIA's compiler pays for one in every loop with a sine, 45 %
 * of mri_q's time. Infinity gives a NaN. Adding 1.5 * 2^23 rounds to an integer. The first MinusProduct is exact, since
 * its result is a multiple of 2^-22 below 4 in magnitude; only the second one rounds. A function of its own, of which
 * the front end makes one call where a kernel asks for sine and cosine of an angle. */
__attribute__((noinline)) static float device_angle(float x) {
  const float turns = ProductPlus(x, 0x1.45f306p-3f, 0x1.8p+23f) - 0x1.8p+23f;
  return MinusProduct(MinusProduct(x, turns, 0x1.921fb6p+2f), turns, -0x1.777a5cp-23f);
}

static inline float DeviceSin(float x) { return ApproxSin(device_angle(x)); }
static inline float DeviceCos(float x) { return ApproxCos(device_angle(x)); }

/* ---- exp, exp10. */

/* b^x = 2^n * 2^(r * log2_b) with x = n / log2_b + r, and 1 / log2_b = high + low where n * high is exact. n ends at
 * 126, from which the device's function goes on to infinity and to 0. The sum's lowest bits are n + 127. */
static inline float DevicePower(float x, float log2_b, float high, float low) {
  const float sum = Clamp(x * log2_b, -126, 126) + 0x1.8000fep+23f;
  const float n = sum - 0x1.8000fep+23f;
  const float r = MinusProduct(MinusProduct(x, n, high), n, low);
  return ApproxExp2(r * log2_b) * FloatOf(BitsOf(sum) << 23);
}

static inline float DeviceExp(float x) { return DevicePower(x, kLog2E, kLn2High, kLn2Low); }
static inline float DeviceExp10(float x) { return DevicePower(x, 0x1.a934fp+1f, 0x1.344p-2f, 0x1.3509f8p-18f); }

/* ---- log, log10. */

static inline float DeviceLog(float x) { return ApproxLog2(x) * kLn2; }
static inline float DeviceLog10(float x) { return ApproxLog2(x) * 0x1.344136p-2f; }

/* ---- tanh. */

/* 1 - 2 / (e^2a + 1), whose quotient is a power of two: no division. Near 0 it is a + a z q(z). */
static inline float DeviceTanh(float x) {
  const float a = __builtin_fabsf(x), z = a * a;
  const float far = InPlace(1 - ApproxExp2(1 - ApproxLog2(ApproxExp2(a * (2 * kLog2E)) + 1)));
  const float q = -0x1.5552bap-2f + z * (0x1.108ce8p-3f + z * (-0x1.a988f8p-5f + z * 0x1.f1c818p-7f));
  const float near = InPlace(a + a * z * q); /* Both, so that it is a select. */
  return __builtin_copysignf(a < 0.625f ? near : far, x);
}

#endif /* HPVMD_COMPILER_MATH_DEVICE_F32_H_ */
