/* SPDX-License-Identifier: Apache-2.0 */
/* sin, cos and tan without memory and without branches up to large arguments, so that instances in lockstep take one
 * path and keep their values in registers. musl's pass the reduced argument through the stack and pick a polynomial by
 * the quadrant; its polynomials, and its functions for large arguments, are used here. */
#include "trig.h"

#include <math.h>
#include <stdint.h>

/* musl's, for |x| <= pi/4: `low` is the tail of x. */
double __sin(double x, double low, int has_low);
double __cos(double x, double low);
double __tan(double x, double low, int is_odd);
float __sindf(double x);
float __cosdf(double x);
float __tandf(double x, int is_odd);

static const double kTwoOverPi = 0x1.45f306dc9c883p-1;
/* 1.5 * 2^52: a number of magnitude below 2^51 that is added to it is rounded, and stands in the low bits. */
static const double kShift = 0x1.8p52;

static uint64_t Bits(double x) {
  union {
    double value;
    uint64_t bits;
  } u = {x};
  return u.bits;
}

/* `x` with its sign changed if bit 1 of the quadrant is set. */
static double Signed(double x, unsigned quadrant) {
  union {
    double value;
    uint64_t bits;
  } u = {x};
  u.bits ^= (uint64_t)(quadrant & 2) << 62;
  return u.value;
}

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
  return (Reduced){high, (c - high) - tail, (unsigned)Bits(shifted)};
}

/* Below this the quotient has 28 bits. */
static const float kLargeF = 0x1.921fb4p+28f;

/* The same for a float; a double holds all that matters. */
static inline __attribute__((always_inline)) Reduced ReduceF(float x) {
  const double shifted = (double)x * kTwoOverPi + kShift;
  const double n = shifted - kShift;
  return (Reduced){(double)x - n * 0x1.921fb5p+0 - n * 0x1.110b4611a6263p-26, 0, (unsigned)Bits(shifted)};
}

/* Large arguments, infinities and NaNs. The stores keep these functions from being put in the place of their calls:
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
static __attribute__((noinline)) float LargeSinF(float x) {
  volatile float result = sinf(x);
  return result;
}
static __attribute__((noinline)) float LargeCosF(float x) {
  volatile float result = cosf(x);
  return result;
}
static __attribute__((noinline)) float LargeTanF(float x) {
  volatile float result = tanf(x);
  return result;
}

double hpvm_sin(double x) {
  if (!(__builtin_fabs(x) < kLarge)) {
    return LargeSin(x);
  }
  const Reduced r = Reduce(x);
  const double sine = __sin(r.high, r.low, 1), cosine = __cos(r.high, r.low);
  const double result = Signed(r.quadrant & 1 ? cosine : sine, r.quadrant);
  return x == 0 ? x : result; /* For its sign. */
}

double hpvm_cos(double x) {
  if (!(__builtin_fabs(x) < kLarge)) {
    return LargeCos(x);
  }
  const Reduced r = Reduce(x);
  const double sine = __sin(r.high, r.low, 1), cosine = __cos(r.high, r.low);
  return Signed(r.quadrant & 1 ? sine : cosine, r.quadrant + 1);
}

double hpvm_tan(double x) {
  if (!(__builtin_fabs(x) < kLarge)) {
    return LargeTan(x);
  }
  const Reduced r = Reduce(x);
  const double result = __tan(r.high, r.low, (int)(r.quadrant & 1));
  return x == 0 ? x : result;
}

float hpvm_sinf(float x) {
  if (!(__builtin_fabsf(x) < kLargeF)) {
    return LargeSinF(x);
  }
  const Reduced r = ReduceF(x);
  const float sine = __sindf(r.high), cosine = __cosdf(r.high);
  const float result = (float)Signed(r.quadrant & 1 ? cosine : sine, r.quadrant);
  return x == 0 ? x : result; /* For its sign. */
}

float hpvm_cosf(float x) {
  if (!(__builtin_fabsf(x) < kLargeF)) {
    return LargeCosF(x);
  }
  const Reduced r = ReduceF(x);
  const float sine = __sindf(r.high), cosine = __cosdf(r.high);
  return (float)Signed(r.quadrant & 1 ? sine : cosine, r.quadrant + 1);
}

float hpvm_tanf(float x) {
  if (!(__builtin_fabsf(x) < kLargeF)) {
    return LargeTanF(x);
  }
  const Reduced r = ReduceF(x);
  const float result = __tandf(r.high, (int)(r.quadrant & 1));
  return x == 0 ? x : result;
}
