/* SPDX-License-Identifier: Apache-2.0 */
/* exp, exp2, log and log2 of floats: musl's steps and tables (from ARM's optimized routines), bit for bit, with what is
 * seldom needed behind the common way in place of in front of it. Exponentials have no branch left, logarithms one:
 * instances in lockstep and a GPU's warps then take one way. */
#include "exp_log.h"

#include <math.h>
#include <stdint.h>

#include "bits.h"

/* musl's tables (exp2f_data.h, logf_data.h, log2f_data.h). */
extern const struct {
  uint64_t tab[32];
  double shift_scaled, poly[3], shift, invln2_scaled, poly_scaled[3];
} __exp2f_data;
extern const struct {
  struct {
    double invc, logc;
  } tab[16];
  double ln2, poly[3];
} __logf_data;
extern const struct {
  struct {
    double invc, logc;
  } tab[16];
  double poly[4];
} __log2f_data;

/* 2^((32 k + i) / 32 + r / 32), where `shifted` has 32 k + i in its low bits; c are the polynomial's factors. */
static inline __attribute__((always_inline)) float Power(double shifted, double r, const double* c) {
  const uint64_t ki = BitsOfWide(shifted);
  const double scale = DoubleOf(__exp2f_data.tab[ki % 32] + (ki << 47));
  const double z = c[0] * r + c[1], r2 = r * r;
  return (float)((z * r2 + (c[2] * r + 1)) * scale);
}

float hpvm_expf(float x) {
  const double z = __exp2f_data.invln2_scaled * x, shifted = z + __exp2f_data.shift;
  const float result = Power(shifted, z - (shifted - __exp2f_data.shift), __exp2f_data.poly_scaled);
  /* Above and below, which infinities are, too; of what is not a number the above makes what is none. */
  const float bounded = x < -0x1.9fe368p6f ? 0 : result;
  return x > 0x1.62e42ep6f ? __builtin_inff() : bounded;
}

float hpvm_exp2f(float x) {
  const double shifted = x + __exp2f_data.shift_scaled;
  const float result = Power(shifted, x - (shifted - __exp2f_data.shift_scaled), __exp2f_data.poly);
  const float bounded = x <= -150 ? 0 : result;
  return x >= 128 ? __builtin_inff() : bounded;
}

/* A number whose bits are iz, near 1, times 2^k. */
typedef struct {
  uint32_t place;
  int32_t k;
  double z;
} Split;

static inline __attribute__((always_inline)) Split SplitOf(uint32_t bits) {
  const uint32_t above = bits - 0x3f330000;
  return (Split){above >> 19 & 15, (int32_t)above >> 23, FloatOf(bits - (above & 0xff800000))};
}

static inline __attribute__((always_inline)) float LogOf(uint32_t bits) {
  const Split x = SplitOf(bits);
  const double* c = __logf_data.poly;
  const double r = x.z * __logf_data.tab[x.place].invc - 1, r2 = r * r;
  const double y0 = __logf_data.tab[x.place].logc + x.k * __logf_data.ln2;
  return (float)((c[0] * r2 + (c[1] * r + c[2])) * r2 + (y0 + r));
}

static inline __attribute__((always_inline)) float Log2Of(uint32_t bits) {
  const Split x = SplitOf(bits);
  const double* c = __log2f_data.poly;
  const double r = x.z * __log2f_data.tab[x.place].invc - 1, r2 = r * r;
  const double y0 = __log2f_data.tab[x.place].logc + x.k;
  return (float)((c[0] * r2 + (c[1] * r + c[2])) * r2 + (c[3] * r + y0));
}

/* Of 0, of numbers below it, of infinities, and of what is no number; x is none of the others but below 2^-126. */
static inline __attribute__((always_inline)) float Special(float x, float of_small) {
  const float of_other = x == __builtin_inff() ? x : (x - x) / (x - x);
  return x == 0 ? -__builtin_inff() : x > 0 && x < 0x1p-126f ? of_small : of_other;
}
static inline __attribute__((always_inline)) uint32_t BitsOfSmall(float x) { return BitsOf(x * 0x1p23f) - (23u << 23); }
static inline __attribute__((always_inline)) int IsCommon(float x) { return BitsOf(x) - 0x00800000 < 0x7f000000; }
static __attribute__((noinline)) float SeldomLog(float x) { return Special(x, LogOf(BitsOfSmall(x))); }
static __attribute__((noinline)) float SeldomLog2(float x) { return Special(x, Log2Of(BitsOfSmall(x))); }

float hpvm_logf(float x) {
  float result = LogOf(BitsOf(x));
  COMPUTED_HERE(result);
  if (!IsCommon(x)) {
    result = SeldomLog(x);
  }
  return result;
}

float hpvm_log2f(float x) {
  float result = Log2Of(BitsOf(x));
  COMPUTED_HERE(result);
  if (!IsCommon(x)) {
    result = SeldomLog2(x);
  }
  return result;
}
