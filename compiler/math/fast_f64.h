/* SPDX-License-Identifier: Apache-2.0 */
/* Fast forms of f64 functions, like fast_f32.h. Large arguments of sin and cos use musl's functions. */
#ifndef HPVMD_COMPILER_MATH_FAST_F64_H_
#define HPVMD_COMPILER_MATH_FAST_F64_H_

#include <math.h>
#include <stdint.h>

#include "compiler/math/bits.h"

#define INF_F64 __builtin_inf()
#define NAN_F64 __builtin_nan("")

static inline double ClampWide(double x, double low, double high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

static inline double ScaleWide(double value, int64_t n) {
  const int64_t half = n >> 1;
  return value * DoubleOf((uint64_t)(half + 1023) << 52) * DoubleOf((uint64_t)(n - half + 1023) << 52);
}

static const double kLn2HighWide = 0x1.62e42feep-1, kLn2LowWide = 0x1.a39ef35793c76p-33;

static inline double ExpWide(double x) {
  x = ClampWide(x, -747, 711);
  const double k = __builtin_rint(x * 0x1.71547652b82fep+0);
  const double r = (x - k * kLn2HighWide) - k * kLn2LowWide;
  const double z = r * r;
  /* Estrin's scheme: in Horner's each product would wait for the previous one. */
  const double q0 = 0x1.000000000000ap-1 + r * 0x1.55555555554e2p-3;
  const double q1 = 0x1.5555555550558p-5 + r * 0x1.111111112ddddp-7;
  const double q2 = 0x1.6c16c184f19c5p-10 + r * 0x1.a01a0109a00fdp-13;
  const double q3 = 0x1.a01997c1d645ep-16 + r * 0x1.71df697e1c61dp-19;
  const double q4 = 0x1.28afc720e4881p-22 + r * 0x1.ad21e05f0a759p-26;
  const double q = q0 + z * (q1 + z * (q2 + z * (q3 + z * q4)));
  return ScaleWide(1 + (r + z * q), (int64_t)k);
}

static inline double Exp2Wide(double x) {
  x = ClampWide(x, -1077, 1025);
  const double k = __builtin_rint(x);
  const double f = x - k;
  const double z = f * f;
  const double q0 = 0x1.62e42fefa39efp-1 + f * 0x1.ebfbdff82c58ep-3;
  const double q1 = 0x1.c6b08d704a1cdp-5 + f * 0x1.3b2ab6fba5295p-7;
  const double q2 = 0x1.5d87fe7876889p-10 + f * 0x1.430912f6b5bbfp-13;
  const double q3 = 0x1.ffcbfd3b9c9p-17 + f * 0x1.62c02b372d7fcp-20;
  const double q4 = 0x1.b52352b6ce016p-24 + f * 0x1.e4a6ee0919dcbp-28;
  const double q5 = 0x1.ec3952df0c02bp-32 + f * 0x1.0244802d92638p-35;
  const double q = q0 + z * (q1 + z * (q2 + z * (q3 + z * (q4 + z * q5))));
  return ScaleWide(1 + f * q, (int64_t)k);
}

static inline double LogWide(double x) {
  const int is_small = x < 0x1p-1022;
  const uint64_t first = 0x3fe6a09e00000000; /* sqrt(1/2), nearly. */
  const uint64_t bits = BitsOfWide(is_small ? x * 0x1p54 : x) - first;
  const double e = (double)((int32_t)((int64_t)bits >> 52) - (is_small ? 54 : 0));
  const double f = DoubleOf((bits & 0xfffffffffffff) + first) - 1;
  const double s = f / (2 + f);
  const double z = s * s;
  const double q =
      0x1.5555555555592p-1 +
      z * (0x1.999999997ff0ap-2 +
           z * (0x1.24924941e35c4p-2 +
                z * (0x1.c71c52119dfbfp-3 +
                     z * (0x1.74663db327339p-3 + z * (0x1.39a1cf4a546dep-3 + z * 0x1.2f04f1d20de78p-3)))));
  const double half = 0.5 * f * f;
  const double log = e * kLn2HighWide - ((half - (s * (half + z * q) + e * kLn2LowWide)) - f);
  const double other = x == 0 ? -INF_F64 : NAN_F64;
  const double positive = x < INF_F64 ? log : x;
  return x > 0 ? positive : other;
}

/* x - n * pi/2 for |x| < 1.6e6: 33 bits in each product except the last. */
static inline double ReduceTrigWide(double x, int32_t* quadrant) {
  const double n = __builtin_rint(x * 0x1.45f306dc9c883p-1);
  *quadrant = (int32_t)n;
  return ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
}

static inline double SinOrCosWide(double r, int32_t quadrant) {
  const double z = r * r;
  const double sine =
      r + r * z *
              (-0x1.5555555555548p-3 +
               z * (0x1.111111110f73p-7 +
                    z * (-0x1.a01a019be9208p-13 +
                         z * (0x1.71de355529a6cp-19 + z * (-0x1.ae5e4b81f4bc6p-26 + z * 0x1.5d8b54da35dc9p-33)))));
  const double cosine =
      1 - (0.5 * z - z * z *
                         (0x1.555555555554bp-5 +
                          z * (-0x1.6c16c16c15005p-10 +
                               z * (0x1.a01a019c8c7d9p-16 +
                                    z * (-0x1.27e4f7ef0d96dp-22 +
                                         z * (0x1.1ee9d9c6bac02p-29 + z * -0x1.8fa553a45f2d7p-37))))));
  const double value = (quadrant & 1) != 0 ? cosine : sine;
  return DoubleOf(BitsOfWide(value) ^ (uint64_t)(quadrant & 2) << 62);
}

static inline double SinWide(double x) {
  if (!(__builtin_fabs(x) < 1.6e6)) {
    return sin(x);
  }
  int32_t quadrant;
  const double sine = SinOrCosWide(ReduceTrigWide(x, &quadrant), quadrant);
  return x == 0 ? x : sine;
}

static inline double CosWide(double x) {
  if (!(__builtin_fabs(x) < 1.6e6)) {
    return cos(x);
  }
  int32_t quadrant;
  const double r = ReduceTrigWide(x, &quadrant);
  return SinOrCosWide(r, quadrant + 1);
}

#endif /* HPVMD_COMPILER_MATH_FAST_F64_H_ */
