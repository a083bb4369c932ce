/* SPDX-License-Identifier: Apache-2.0 */
/* Fast forms of f32 functions, for code that runs many instances in lockstep: they have no tables (which would be
 * gathers), no memory, and no branches except one for large arguments of sin, cos and tan. Special values are selected
 * at the end. Contracting a product and a sum makes results more accurate, never wrong; they must not be reassociated
 * (ir::Function::fast_math says so).
 *
 * fit.py finds the coefficients. */
#ifndef HPVMD_COMPILER_MATH_FAST_F32_H_
#define HPVMD_COMPILER_MATH_FAST_F32_H_

#include <stdint.h>

#include "compiler/math/bits.h"

#define INF_F32 __builtin_inff()
#define NAN_F32 __builtin_nanf("")

/* A NaN stays a NaN. */
static inline float Clamp(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

/* 2^n, -126 <= n <= 127. */
static inline float PowerOf2(int32_t n) { return FloatOf((uint32_t)(n + 127) << 23); }

/* value * 2^n in two steps, so that the result may be denormal or overflow; |n| < 252. */
static inline float Scale(float value, int32_t n) {
  const int32_t half = n >> 1;
  return value * PowerOf2(half) * PowerOf2(n - half);
}

static const float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f; /* 15 bits, so that n * kLn2High is exact. */
static const float kLog2E = 0x1.715476p+0f;

/* e^r for |r| <= ln(2) / 2. */
static inline float ExpNear0(float r) {
  const float q =
      0x1.fffffcp-2f + r * (0x1.55548cp-3f + r * (0x1.55585ap-5f + r * (0x1.123d5ep-7f + r * 0x1.6ab6eap-10f)));
  return 1 + (r + r * r * q);
}

/* e^r - 1. */
static inline float Expm1Near0(float r) {
  const float q =
      0.5f +
      r * (0x1.555554p-3f + r * (0x1.5554eap-5f + r * (0x1.1113acp-7f + r * (0x1.6d4cb2p-10f + r * 0x1.9c5ebep-13f))));
  return r + r * r * q;
}

/* x = n * ln(2) + r. */
static inline float ReduceExp(float x, int32_t* n) {
  const float k = __builtin_rintf(x * kLog2E);
  *n = (int32_t)k;
  return (x - k * kLn2High) - k * kLn2Low;
}

static inline float Exp(float x) {
  int32_t n;
  const float r = ReduceExp(Clamp(x, -105, 89), &n);
  return Scale(ExpNear0(r), n);
}

static inline float Exp2(float x) {
  x = Clamp(x, -152, 129);
  const float k = __builtin_rintf(x);
  const float f = x - k;
  const float q =
      0x1.62e43p-1f +
      f * (0x1.ebfbep-3f + f * (0x1.c6afdcp-5f + f * (0x1.3b2938p-7f + f * (0x1.5ee602p-10f + f * 0x1.46815p-13f))));
  return Scale(1 + f * q, (int32_t)k);
}

static inline float Exp10(float x) {
  x = Clamp(x, -46, 39);
  const float k = __builtin_rintf(x * 0x1.a934fp+1f);
  const float r = (x - k * 0x1.344p-2f) - k * 0x1.3509f8p-18f; /* log10(2) */
  return Scale(ExpNear0(r * 0x1.26bb1cp+1f), (int32_t)k);
}

/* Splits e^x: gives n, and returns e^r - 1; for -18 <= x. */
static inline float Expm1Parts(float x, int32_t* n) { return Expm1Near0(ReduceExp(Clamp(x, -18, 90), n)); }

static inline float Expm1Whole(float q, int32_t n) {
  const float lost = PowerOf2(-(n > 60 ? 60 : n)); /* From 60 on far below half an ulp of 1. */
  return Scale(q + (1 - lost), n);
}

static inline float Expm1(float x) {
  int32_t n;
  const float q = Expm1Parts(x, &n);
  return __builtin_copysignf(Expm1Whole(q, n), x);
}

/* x = 2^e * (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2); x > 0. */
static inline float Significand(float x, float* e) {
  const int is_small = x < 0x1p-126f;
  const uint32_t bits = BitsOf(is_small ? x * 0x1p25f : x) - 0x3f3504f3; /* sqrt(1/2). */
  *e = (float)(((int32_t)bits >> 23) - (is_small ? 25 : 0));
  return FloatOf((bits & 0x7fffff) + 0x3f3504f3) - 1;
}

/* log(1 + f) - f */
static inline float LogRest(float f) {
  const float z = f * f;
  const float q =
      0x1.555554p-2f +
      f * (-0x1.000228p-2f +
           f * (0x1.99a038p-3f +
                f * (-0x1.54721ap-3f +
                     f * (0x1.22d54ep-3f + f * (-0x1.0d8206p-3f + f * (0x1.057f7p-3f + f * -0x1.3926cep-4f))))));
  return f * z * q - 0.5f * z;
}

/* Selects the logarithm of 0, negative numbers, infinity and NaNs. */
static inline float LogSpecial(float x, float log) {
  const float other = x == 0 ? -INF_F32 : NAN_F32;
  return x > 0 ? (x < INF_F32 ? log : x) : other;
}

static inline float LogPositive(float x) {
  float e;
  const float f = Significand(x, &e);
  return (f + (LogRest(f) + e * kLn2Low)) + e * kLn2High;
}

static inline float Log(float x) { return LogSpecial(x, LogPositive(x)); }

static inline float Log2(float x) {
  float e;
  const float f = Significand(x, &e);
  const float rest = LogRest(f);
  const float more = 0x1.c551dap-2f; /* log2(e) - 1 */
  return LogSpecial(x, (((rest * more + f * more) + rest) + f) + e);
}

static inline float Log10(float x) {
  float e;
  const float f = Significand(x, &e);
  const float rest = LogRest(f);
  const float high = 0x1.bcp-2f, low = 0x1.6f62a4p-11f; /* log10(e) */
  const float small = (rest * low + f * low) + e * 0x1.3509f8p-18f;
  return LogSpecial(x, ((small + rest * high) + f * high) + e * 0x1.344p-2f);
}

static inline float Log1p(float x) {
  const float u = 1 + x;
  const float lost = (x - (u - 1)) / u;
  const float log = LogPositive(u) + (((u > 0) & (x < INF_F32)) ? lost : 0);
  return __builtin_copysignf(LogSpecial(u, log), x);
}

/* ---- pow. The logarithm is in double: y multiplies its error by up to 2^7. */

static inline double Log2Wide(float a) {
  float e;
  const double m = 1.0 + (double)Significand(a, &e);
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  const double c =
      0x1.71547652b82bep+1 +
      z * (0x1.ec709dc4f2596p-1 +
           z * (0x1.2776c2ca4919dp-1 +
                z * (0x1.a61a0da7c92eap-2 + z * (0x1.4799aefa825d0p-2 + z * 0x1.217bf13ed75fep-2))));
  return s * c + (double)e;
}

static inline float Pow(float x, float y) {
  const float a = __builtin_fabsf(x);
  double log = Log2Wide(a);
  log = a < INF_F32 ? log : (double)a;
  log = a == 0 ? -__builtin_inf() : log;
  double t = (double)y * log;
  t = t < -160 ? -160 : t;
  t = t > 160 ? 160 : t;
  const double k = __builtin_rint(t);
  const float f = (float)(t - k);
  const float q =
      0x1.62e43p-1f +
      f * (0x1.ebfbep-3f + f * (0x1.c6afdcp-5f + f * (0x1.3b2938p-7f + f * (0x1.5ee602p-10f + f * 0x1.46815p-13f))));
  float power = Scale(1 + f * q, (int32_t)k);
  /* Avoids && and ||, which are branches. */
  const int is_one = (y == 0) | (x == 1) | ((a == 1) & (__builtin_fabsf(y) == INF_F32));
  power = is_one ? 1 : power;
  const float half = y * 0.5f;
  const int is_integer = __builtin_rintf(y) == y;
  const int is_odd = is_integer & (__builtin_rintf(half) != half);
  power = ((x < 0) & (a < INF_F32) & !is_integer) ? NAN_F32 : power;
  return FloatOf(BitsOf(power) ^ (is_odd ? BitsOf(x) & 0x80000000 : 0));
}

/* ---- sin, cos, tan. */

/* Returns x modulo pi/2 for 2^13 < |x|, by integers: m * 2^e times a window of 2/pi. Bits above the window contribute
 * multiples of 4 to the quotient, and bits below it less than 2^-70. Selects choose the window. The quadrant is the
 * result's upper half, the remainder's bits the lower half, because a result through a pointer would need memory. Not
 * inlined, because few instances call it. */
__attribute__((noinline)) static uint64_t fast_reduce_far(float x) {
  const uint32_t bits = BitsOf(x) & 0x7fffffff;
  const uint64_t m = (bits & 0x7fffff) | 0x800000;
  const uint32_t skipped = (bits >> 23) - 150 + 30; /* Bits skipped of the words below: 32 zeros, then 2/pi. */
  const int skips4 = (skipped & 128) != 0, skips2 = (skipped & 64) != 0, skips1 = (skipped & 32) != 0;
  /* At most 4 words are skipped, so only the first four of the last words are needed. */
  const uint32_t a0 = skips4 ? 0xf534ddc0 : 0, a1 = skips4 ? 0xdb629599 : 0xa2f9836e;
  const uint32_t a2 = skips4 ? 0x3c439041 : 0x4e441529, a3 = skips4 ? 0xfe5163ab : 0xfc2757d1;
  const uint32_t a4 = 0xf534ddc0, a5 = 0xdb629599, a6 = 0x3c439041;
  const uint32_t b0 = skips2 ? a2 : a0, b1 = skips2 ? a3 : a1, b2 = skips2 ? a4 : a2, b3 = skips2 ? a5 : a3;
  const uint32_t b4 = skips2 ? a6 : a4;
  const uint32_t c0 = skips1 ? b1 : b0, c1 = skips1 ? b2 : b1, c2 = skips1 ? b3 : b2, c3 = skips1 ? b4 : b3;
  const uint32_t shift = skipped & 31;
  const uint64_t w0 = (((uint64_t)c0 << 32 | c1) << shift) >> 32;
  const uint64_t w1 = (((uint64_t)c1 << 32 | c2) << shift) >> 32;
  const uint64_t w2 = (((uint64_t)c2 << 32 | c3) << shift) >> 32;
  const uint64_t low = m * w2;
  const uint64_t middle = m * w1 + (low >> 32);
  const uint64_t high = (m * w0 << 32) + middle; /* The product's upper 64 of 96 bits. */
  const uint64_t fraction = high << 2 | (low & 0xffffffff) >> 30;
  const uint32_t quadrant = (uint32_t)((high >> 62) + (fraction >> 63));
  const float r = (float)((double)(int64_t)fraction * 0x1.921fb54442d18p-64); /* pi/2 */
  const int is_negative = (BitsOf(x) >> 31) != 0;
  /* The volatile store prevents inlining (trig.c). */
  volatile uint64_t result = (uint64_t)(is_negative ? -quadrant : quadrant) << 32 | BitsOf(is_negative ? -r : r);
  return result;
}

/* x - n * pi/2. */
__attribute__((always_inline)) static inline float ReduceTrig(float x, int32_t* quadrant) {
  if (__builtin_fabsf(x) > 12000) {
    const uint64_t far = fast_reduce_far(x);
    *quadrant = (int32_t)(far >> 32);
    return FloatOf((uint32_t)far) + (x - x); /* Infinity gives a NaN. */
  }
  const float n = __builtin_rintf(x * 0x1.45f306p-1f);
  *quadrant = (int32_t)n;
  /* 11 bits each except the last, so that products are exact. */
  return ((x - n * 0x1.92p+0f) - n * 0x1.fb4p-12f) - n * 0x1.444p-24f - n * 0x1.68c234p-39f;
}

static inline float SinNear0(float r) {
  const float z = r * r;
  return r + r * z * (-0x1.555546p-3f + z * (0x1.110774p-7f + z * -0x1.9951eap-13f));
}

static inline float CosNear0(float r) {
  const float z = r * r;
  return 1 - (0.5f * z - z * z * (0x1.55554ap-5f + z * (-0x1.6c0c28p-10f + z * 0x1.99e80cp-16f)));
}

static inline float SinOrCos(float r, int32_t quadrant) {
  const float cosine = CosNear0(r), sine = SinNear0(r); /* Computes both, so that the choice is a select. */
  const float value = (quadrant & 1) != 0 ? cosine : sine;
  return FloatOf(BitsOf(value) ^ ((uint32_t)quadrant & 2) << 30);
}

static inline float Sin(float x) {
  int32_t quadrant;
  const float sine = SinOrCos(ReduceTrig(x, &quadrant), quadrant);
  return x == 0 ? x : sine; /* Keeps the sign of a zero. */
}

static inline float Cos(float x) {
  int32_t quadrant;
  const float r = ReduceTrig(x, &quadrant);
  return SinOrCos(r, quadrant + 1);
}

static inline float Tan(float x) {
  int32_t quadrant;
  const float r = ReduceTrig(x, &quadrant);
  const float sine = SinNear0(r), cosine = CosNear0(r);
  const int is_odd = (quadrant & 1) != 0;
  const float tangent = (is_odd ? -cosine : sine) / (is_odd ? sine : cosine);
  return x == 0 ? x : tangent;
}

/* ---- asin, acos, atan. */

static const float kHalfPi = 0x1.921fb6p+0f, kHalfPiLow = -0x1.777a5cp-25f; /* pi/2 = kHalfPi + kHalfPiLow. */

/* asin(t) for 0 <= t <= 1/2, z = t^2. */
static inline float AsinNear0(float t, float z) {
  const float q =
      0x1.5555cap-3f + z * (0x1.33015ep-4f + z * (0x1.748cbap-5f + z * (0x1.8b8e34p-6f + z * 0x1.59f916p-5f)));
  return t + t * z * q;
}

static inline float Asin(float x) {
  const float a = __builtin_fabsf(x);
  const int is_far = a > 0.5f;
  const float z = is_far ? 0.5f * (1 - a) : a * a;
  const float p = AsinNear0(is_far ? __builtin_sqrtf(z) : a, z);
  return __builtin_copysignf(is_far ? kHalfPi - (2 * p - kHalfPiLow) : p, x);
}

static inline float Acos(float x) {
  const float a = __builtin_fabsf(x);
  const int is_far = a > 0.5f;
  const float z = is_far ? 0.5f * (1 - a) : a * a;
  const float p = AsinNear0(is_far ? __builtin_sqrtf(z) : a, z);
  const float far = x > 0 ? 2 * p : 2 * kHalfPi - (2 * p - 2 * kHalfPiLow);
  const float near = kHalfPi - (__builtin_copysignf(p, x) - kHalfPiLow);
  return is_far ? far : near;
}

/* base + atan(numerator / denominator) for a quotient of at most tan(pi/8). */
static inline float AtanNear0(float base, float numerator, float denominator) {
  const float t = numerator / denominator;
  const float z = t * t;
  const float q = -0x1.555452p-2f + z * (0x1.99243cp-3f + z * (-0x1.1c311ap-3f + z * 0x1.49b87p-4f));
  return base + (t + t * z * q);
}

static inline float Atan(float x) {
  const float a = __builtin_fabsf(x);
  const int is_far = a > 0x1.3504f4p+1f, is_middle = a > 0x1.a8279ap-2f; /* tan(3 pi/8), tan(pi/8) */
  const float base = is_far ? kHalfPi : is_middle ? 0.5f * kHalfPi : 0;
  const float numerator = is_far ? -1 : is_middle ? a - 1 : a;
  const float denominator = is_far ? a : is_middle ? a + 1 : 1;
  return __builtin_copysignf(AtanNear0(base, numerator, denominator), x);
}

static inline float Atan2(float y, float x) {
  float a = __builtin_fabsf(y), b = __builtin_fabsf(x);
  const int is_steep = a > b;
  float large = is_steep ? a : b, small = is_steep ? b : a;
  /* Scales so that the sum does not overflow, and a product with the smaller operand loses no bits. */
  const float scale = large > 0x1p125f ? 0.25f : large < 0x1p-100f ? 0x1p60f : 1;
  large *= scale;
  small *= scale;
  const int is_middle = (small > 0x1.a8279ap-2f * large) | (small == INF_F32);
  const float numerator = is_middle ? (small == large ? 0 : small - large) : small;
  const float denominator = is_middle ? small + large : large == 0 ? 1 : large;
  float angle = AtanNear0(is_middle ? 0.5f * kHalfPi : 0, numerator, denominator);
  angle = is_steep ? kHalfPi - (angle - kHalfPiLow) : angle;
  angle = (BitsOf(x) >> 31) != 0 ? 2 * kHalfPi - (angle - 2 * kHalfPiLow) : angle;
  angle = ((x != x) | (y != y)) ? NAN_F32 : angle;
  return __builtin_copysignf(angle, y);
}

/* ---- Hyperbolic functions. */

/* For a >= 0: gives e^a - 1, and returns e^a / 2, which overflows later. */
static inline float HalfExp(float a, float* expm1) {
  int32_t n;
  const float q = Expm1Parts(a, &n);
  *expm1 = Expm1Whole(q, n);
  return Scale(1 + q, n - 1);
}

static inline float Sinh(float x) {
  const float a = __builtin_fabsf(x);
  float e;
  const float half = HalfExp(a, &e);
  const int is_near = a < 1;
  const float quotient = (is_near ? 0.5f * e : -0.25f) / (is_near ? e + 1 : half);
  return __builtin_copysignf((is_near ? 0.5f * e : half) + quotient, x);
}

static inline float Cosh(float x) {
  float e;
  const float half = HalfExp(__builtin_fabsf(x), &e);
  return half + 0.25f / half;
}

static inline float Tanh(float x) {
  const float a = __builtin_fabsf(x);
  int32_t n;
  const float q = Expm1Parts(2 * (a > 10 ? 10 : a), &n);
  const float e = Expm1Whole(q, n);
  return __builtin_copysignf(e / (e + 2), x);
}

static const float kLn2 = 0x1.62e43p-1f;

static inline float Asinh(float x) {
  const float a = __builtin_fabsf(x);
  const int is_far = a > 0x1p25f; /* asinh(a) = log(2 a) there. */
  const float near = is_far ? 0 : a;
  const float z = near * near;
  const float sum = a + z / (1 + __builtin_sqrtf(1 + z));
  return __builtin_copysignf(Log1p(is_far ? a : sum) + (is_far ? kLn2 : 0), x);
}

static inline float Acosh(float x) {
  const int is_far = x > 0x1p25f;
  const float t = (is_far ? 2 : x) - 1;
  const float sum = t + __builtin_sqrtf(2 * t + t * t);
  const float log = Log1p(is_far ? x : sum) + (is_far ? kLn2 : 0);
  return x < 1 ? NAN_F32 : log;
}

static inline float Atanh(float x) {
  const float a = __builtin_fabsf(x);
  return __builtin_copysignf(0.5f * Log1p(2 * a / (1 - a)), x);
}

/* ---- erf, cbrt, hypot. */

static inline float Erf(float x) {
  const float a = __builtin_fabsf(x);
  const float z = a * a;
  const float low =
      0x1.06eba4p-3f +
      z * (-0x1.8126b4p-2f +
           z * (0x1.ce12fap-4f + z * (-0x1.b624c6p-6f + z * (0x1.44f954p-8f + z * -0x1.3131cep-11f))));
  const float t = a > 4 ? 4 : a;
  const float high =
      0x1.20e8c4p+0f +
      t * (0x1.4570bp-1f +
           t * (0x1.af27d4p-4f +
                t * (-0x1.737e16p-6f +
                     t * (0x1.8010e8p-9f + t * (-0x1.a040bp-15f + t * (-0x1.7e43e8p-15f + t * 0x1.4b4deap-18f))))));
  int32_t n;
  const float r = ReduceExp(-(t * high), &n);
  const float far = 1 - Scale(ExpNear0(r), n), near = a + a * low;
  return __builtin_copysignf(a < 0.9375f ? near : far, x);
}

static inline float Cbrt(float x) {
  const float a = __builtin_fabsf(x);
  const int is_small = a < 0x1p-100f, is_large = a > 0x1p100f;
  const float scaled = a * (is_small ? 0x1p48f : is_large ? 0x1p-48f : 1);
  float y = FloatOf(BitsOf(scaled) / 3 + 709958654u); /* Divides the exponent by 3: accurate to 5 %. */
  const float cube = y * y * y;
  y = y * ((cube + 2 * scaled) / (2 * cube + scaled));
  y = y - (y - scaled / (y * y)) * 0x1.555556p-2f;
  y = y * (is_small ? 0x1p-16f : is_large ? 0x1p16f : 1);
  return ((a > 0) & (a < INF_F32)) ? __builtin_copysignf(y, x) : x;
}

static inline float Hypot(float x, float y) {
  const float a = __builtin_fabsf(x), b = __builtin_fabsf(y);
  const float large = a > b ? a : b;
  const int is_large = large > 0x1p60f, is_small = large < 0x1p-40f;
  const float scale = is_large ? 0x1p-70f : is_small ? 0x1p100f : 1;
  const float back = is_large ? 0x1p70f : is_small ? 0x1p-100f : 1;
  const float root = __builtin_sqrtf(a * scale * (a * scale) + b * scale * (b * scale)) * back;
  return ((a == INF_F32) | (b == INF_F32)) ? INF_F32 : root;
}

#endif /* HPVMD_COMPILER_MATH_FAST_F32_H_ */
