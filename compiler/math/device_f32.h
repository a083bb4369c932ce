/* SPDX-License-Identifier: Apache-2.0 */
/* Forms of f32 functions that use a device's own functions, for devices with GpuTarget::device_math.
 * The file that includes this one defines:
 *   ApproxSin(x), ApproxCos(x)    error 2^-20.5 for -pi <= x <= pi; slightly outside suffices, as they are periodic
 *   ApproxExp2(x)                 relative error 2^-22; 0 for results below 2^-126
 *   ApproxLog2(x)                 error 2^-22 for x from 1/2 to 2, elsewhere a relative error of 2^-22
 *   ProductPlus(a, b, c)          a * b + c, rounded once
 *   InPlace(x)                    x, computed at this position and not only in branches that use it
 * with infinities, NaNs and zeros as in C; denormal numbers may count as zeros. The bounds are those that NVIDIA states
 * for sin.approx, cos.approx, ex2.approx and lg2.approx ("Floating Point Instructions" of the PTX ISA).
 *
 * Rounding to integers uses only sums and products, because a device's rounding runs at the rate of its special
 * functions. */
#ifndef HPVMD_COMPILER_MATH_DEVICE_F32_H_
#define HPVMD_COMPILER_MATH_DEVICE_F32_H_

#include "compiler/math/fast_f32.h"

/* c - a * b, rounded once. */
static inline float MinusProduct(float c, float a, float b) { return ProductPlus(-a, b, c); }

/* ---- sin, cos. */

/* Returns x reduced to an angle approximately between -pi and pi. Accurate for |x| <= 2^20, above which the quotient is
 * off by a quarter of a turn or more. There is no branch for such x: with NVIDIA's compiler it slows every loop with a
 * sine, by 45 % of mri_q's time. Infinity gives a NaN. Adding 1.5 * 2^23 rounds to an integer. The first MinusProduct
 * is exact, since its result is a multiple of 2^-22 below 4 in magnitude; only the second one rounds. Not inlined, so
 * that the front end can merge the calls where a kernel computes sine and cosine of one angle. */
__attribute__((noinline)) static float device_angle(float x) {
  const float turns = ProductPlus(x, 0x1.45f306p-3f, 0x1.8p+23f) - 0x1.8p+23f;
  return MinusProduct(MinusProduct(x, turns, 0x1.921fb6p+2f), turns, -0x1.777a5cp-23f);
}

static inline float DeviceSin(float x) { return ApproxSin(device_angle(x)); }
static inline float DeviceCos(float x) { return ApproxCos(device_angle(x)); }

/* ---- exp, exp10. */

/* b^x = 2^n * 2^(r * log2_b) with x = n / log2_b + r, and 1 / log2_b = high + low where n * high is exact. |n| is at
 * most 126, beyond which the device's function reaches infinity and 0. The sum's lowest bits are n + 127. */
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

/* 1 - 2 / (e^2a + 1), with the quotient as a power of two instead of a division. Near 0 it is a + a z q(z). */
static inline float DeviceTanh(float x) {
  const float a = __builtin_fabsf(x), z = a * a;
  const float far = InPlace(1 - ApproxExp2(1 - ApproxLog2(ApproxExp2(a * (2 * kLog2E)) + 1)));
  const float q = -0x1.5552bap-2f + z * (0x1.108ce8p-3f + z * (-0x1.a988f8p-5f + z * 0x1.f1c818p-7f));
  const float near = InPlace(a + a * z * q); /* Computes both, so that the choice is a select. */
  return __builtin_copysignf(a < 0.625f ? near : far, x);
}

#endif /* HPVMD_COMPILER_MATH_DEVICE_F32_H_ */
