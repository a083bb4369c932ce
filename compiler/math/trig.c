/* SPDX-License-Identifier: Apache-2.0 */
/* sin, cos and tan without memory and without branches up to large arguments, so that instances in lockstep take one
 * path and keep their values in registers. musl's pass the reduced argument through the stack and pick a polynomial by
 * the quadrant; its polynomials, and for f64 its functions for large arguments, are used here.
 *
 * The way of small arguments comes first and has no condition: what sin(x) and cos(x) have in common is then computed
 * once for both, as the first of them comes before the second on every path. */
#include "trig.h"

#include <math.h>
#include <stdint.h>

#include "bits.h"

/* musl's, for |x| <= pi/4: `low` is the tail of x. */
double __sin(double x, double low, int has_low);
double __cos(double x, double low);
double __tan(double x, double low, int is_odd);
float __tandf(double x, int is_odd);

static const double kTwoOverPi = 0x1.45f306dc9c883p-1;
/* 1.5 * 2^52: a number of magnitude below 2^51 that is added to it is rounded, and stands in the low bits. */
static const double kShift = 0x1.8p52;

/* `x` with its sign changed if bit 1 of the quadrant is set. */
static double Signed(double x, unsigned quadrant) { return DoubleOf(BitsOfWide(x) ^ (uint64_t)(quadrant & 2) << 62); }

/* Below this the quotient times each piece of pi/2 is exact. */
static const double kLarge = 0x1.921fbp+20;

typedef struct {
  double high, low;
  unsigned quadrant;
} Reduced;

/* x modulo pi/2, for |x| < kLarge: pi/2 in three pieces of 33 bits and a rest. What each subtraction rounds off goes
 * into the tail. */
static inline __attribute__((always_inline)) Reduced Reduce(double x) {
  const double shifted = x * kTwoOverPi + kShift;
  const double n = shifted - kShift;
  const double a = x - n * 0x1.921fb544p+0;
  const double b_part = n * 0x1.0b4611a6p-34;
  const double b = a - b_part;
  const double c_part = n * 0x1.3198a2ep-69;
  const double c = b - c_part;
  const double lost = ((a - b) - b_part) + ((b - c) - c_part);
  const double tail = n * 0x1.b839a252049c1p-104 - lost;
  const double high = c - tail;
  return (Reduced){high, (c - high) - tail, (unsigned)BitsOfWide(shifted)};
}

typedef struct {
  double angle;
  unsigned quadrant;
} ReducedF;

/* Below this the quotient has 28 bits. */
static const float kLargeF = 0x1.921fb4p+28f;

/* The same for a float; a double holds all that matters. */
static inline __attribute__((always_inline)) ReducedF ReduceF(float x) {
  const double shifted = (double)x * kTwoOverPi + kShift;
  const double n = shifted - kShift;
  return (ReducedF){(double)x - n * 0x1.921fb5p+0 - n * 0x1.110b4611a6263p-26, (unsigned)BitsOfWide(shifted)};
}

/* For finite |x| >= 2^28, by multiplying with those bits of 2 / pi that matter (Payne and Hanek, "Radian Reduction for
 * Trigonometric Functions", SIGNUM Newsletter 18, 1983). x is m 2^s, m an integer of 24 bits; bits of 2 / pi above 2^(1 - s)
 * give multiples of four quadrants. Of the 96 bits from there on the product with m is taken modulo four quadrants, to
 * 2^-64 of one. No float comes nearer to a multiple of pi / 2 than 2^-31. */
static inline __attribute__((always_inline)) ReducedF ReduceLargeF(float x) {
  const uint32_t bits = BitsOf(x);
  const uint32_t skipped = (bits >> 23 & 0xff) - 127 - 23 - 2;
  const uint64_t m = (bits & 0x7fffff) | 0x800000;
  /* Words of 2 / pi, from the one with the first bit on: selected, as a table would be memory. */
  const int far = (skipped & 64) != 0, odd = (skipped & 32) != 0;
  const uint32_t a = far ? 0xfc2757d1 : 0xa2f9836e, b = far ? 0xf534ddc0 : 0x4e441529;
  const uint32_t c = far ? 0xdb629599 : 0xfc2757d1, d = far ? 0x3c439041 : 0xf534ddc0;
  const uint32_t e = far ? 0xfe5163ab : 0xdb629599;
  const uint64_t first = (uint64_t)(odd ? b : a) << 32 | (odd ? c : b);
  const uint64_t second = (uint64_t)(odd ? d : c) << 32 | (odd ? e : d);
  const uint32_t shift = skipped & 31;
  const uint64_t high = first << shift | second >> 1 >> (63 - shift);
  const uint64_t low_part = m * (second << shift >> 32);
  const uint64_t product = m * high + (low_part >> 32);
  const uint64_t fraction = product << 2 | (low_part & 0xffffffff) >> 30;
  /* To the nearest quadrant. */
  const uint32_t quadrant = (uint32_t)(product >> 62) + (uint32_t)(fraction >> 63);
  const double angle = (double)(int64_t)fraction * 0x1.921fb54442d18p-64;
  const int is_negative = (bits >> 31) != 0;
  return (ReducedF){is_negative ? -angle : angle, is_negative ? 0 - quadrant : quadrant};
}

/* musl's polynomials for floats, to a double: the one that is wanted is rounded, once. */
static inline __attribute__((always_inline)) double SinOf(double x) {
  const double z = x * x, w = z * z, s = z * x;
  const double r = -0x1a00f9e2cae774.0p-65 + z * 0x16cd878c3b46a7.0p-71;
  return (x + s * (-0x15555554cbac77.0p-55 + z * 0x111110896efbb2.0p-59)) + s * w * r;
}
static inline __attribute__((always_inline)) double CosOf(double x) {
  const double z = x * x, w = z * z;
  const double r = -0x16c087e80f1e27.0p-62 + z * 0x199342e0ee5069.0p-68;
  return ((1.0 + z * -0x1ffffffd0c5e81.0p-54) + w * 0x155553e1053a42.0p-57) + (w * z) * r;
}
/* Rounding is the same for both signs, and a float's has half the bits to change. */
static inline __attribute__((always_inline)) float SignedF(double x, unsigned quadrant) {
  return FloatOf(BitsOf((float)x) ^ (quadrant & 2) << 30);
}
static inline __attribute__((always_inline)) float SinF(ReducedF r) {
  const double sine = SinOf(r.angle), cosine = CosOf(r.angle);
  return SignedF(r.quadrant & 1 ? cosine : sine, r.quadrant);
}
static inline __attribute__((always_inline)) float CosF(ReducedF r) {
  const double sine = SinOf(r.angle), cosine = CosOf(r.angle);
  return SignedF(r.quadrant & 1 ? sine : cosine, r.quadrant + 1);
}
static inline __attribute__((always_inline)) float TanF(ReducedF r) { return __tandf(r.angle, (int)(r.quadrant & 1)); }

static inline __attribute__((always_inline)) int IsFiniteF(float x) { return __builtin_fabsf(x) < __builtin_inff(); }
static __attribute__((noinline)) float LargeSinF(float x) { return IsFiniteF(x) ? SinF(ReduceLargeF(x)) : x - x; }
static __attribute__((noinline)) float LargeCosF(float x) { return IsFiniteF(x) ? CosF(ReduceLargeF(x)) : x - x; }
static __attribute__((noinline)) float LargeTanF(float x) { return IsFiniteF(x) ? TanF(ReduceLargeF(x)) : x - x; }

/* Large arguments of f64, infinities and NaNs. The stores keep these functions from being put in the place of their calls:
 * what is seldom needed would be compiled into every kernel. */
static __attribute__((noinline)) double LargeSin(double x) {
  volatile double result = sin(x);
  return result;
}
static __attribute__((noinline)) double LargeCos(double x) {
  volatile double result = cos(x);
  return result;
}
static __attribute__((noinline)) double LargeTan(double x) {
  volatile double result = tan(x);
  return result;
}

double hpvm_sin(double x) {
  const Reduced r = Reduce(x);
  const double sine = __sin(r.high, r.low, 1), cosine = __cos(r.high, r.low);
  double result = Signed(r.quadrant & 1 ? cosine : sine, r.quadrant);
  result = x == 0 ? x : result; /* For its sign. */
  COMPUTED_HERE(result);
  if (!(__builtin_fabs(x) < kLarge)) {
    result = LargeSin(x);
  }
  return result;
}

double hpvm_cos(double x) {
  const Reduced r = Reduce(x);
  const double sine = __sin(r.high, r.low, 1), cosine = __cos(r.high, r.low);
  double result = Signed(r.quadrant & 1 ? sine : cosine, r.quadrant + 1);
  COMPUTED_HERE(result);
  if (!(__builtin_fabs(x) < kLarge)) {
    result = LargeCos(x);
  }
  return result;
}

double hpvm_tan(double x) {
  const Reduced r = Reduce(x);
  double result = __tan(r.high, r.low, (int)(r.quadrant & 1));
  result = x == 0 ? x : result;
  COMPUTED_HERE(result);
  if (!(__builtin_fabs(x) < kLarge)) {
    result = LargeTan(x);
  }
  return result;
}

float hpvm_sinf(float x) {
  float result = SinF(ReduceF(x));
  result = x == 0 ? x : result; /* For its sign. */
  COMPUTED_HERE(result);
  if (!(__builtin_fabsf(x) < kLargeF)) {
    result = LargeSinF(x);
  }
  return result;
}

float hpvm_cosf(float x) {
  float result = CosF(ReduceF(x));
  COMPUTED_HERE(result);
  if (!(__builtin_fabsf(x) < kLargeF)) {
    result = LargeCosF(x);
  }
  return result;
}

float hpvm_tanf(float x) {
  float result = TanF(ReduceF(x));
  result = x == 0 ? x : result;
  COMPUTED_HERE(result);
  if (!(__builtin_fabsf(x) < kLargeF)) {
    result = LargeTanF(x);
  }
  return result;
}
