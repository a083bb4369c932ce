/* SPDX-License-Identifier: Apache-2.0 */
/* Large arguments of sin, cos and tan modulo pi/2, in the place of musl's function of that name. musl's is general in
 * its precision and made of loops over arrays, which take a compiler ten times as long as the rest of sin; this one
 * multiplies by a window of 2/pi in integers.
 *
 * The argument is m * 2^e with m < 2^53. Bits of 2/pi above the window give multiples of 8 of the quotient, which do not
 * matter; the 192 bits of the window leave an error below 2^-136. No double is nearer to a multiple of pi/2 than 2^-62,
 * so at least 74 bits of the remainder are right. */
#include <stdint.h>

/* 2/pi * 2^-64. */
static const uint32_t kTwoOverPi[] = {
    0x00000000, 0x00000000, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041,
    0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e,
    0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b,
    0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d,
    0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046,
};

/* pi/2 in pieces of 27, 27 and 53 bits. */
static const double kHalfPi0 = 0x1.921fb54p+0, kHalfPi1 = 0x1.10b461p-30, kHalfPi2 = 0x1.a62633145c06ep-58;

static double PowerOfTwo(int exponent) {
  union {
    uint64_t bits;
    double value;
  } u = {(uint64_t)(0x3ff + exponent) << 52};
  return u.value;
}

/* The low 192 bits of m times the window of 2/pi that begins behind `skipped` bits; words[0] is the highest. */
static void Multiply(uint64_t m, unsigned skipped, uint32_t words[6]) {
  const uint32_t* from = kTwoOverPi + skipped / 32;
  const unsigned shift = skipped % 32;
  const uint32_t low = (uint32_t)m, high = (uint32_t)(m >> 32);
  uint64_t low_carry = 0, high_carry = 0;
  uint32_t below = 0; /* The word of the window under the one at hand. */
#pragma clang loop unroll(disable)
  for (int i = 5; i >= 0; --i) {
    const uint32_t word = (uint32_t)((((uint64_t)from[i] << 32 | from[i + 1]) << shift) >> 32);
    const uint64_t product = (uint64_t)low * word + low_carry;
    const uint64_t sum = (uint64_t)high * below + (uint32_t)product + high_carry;
    low_carry = product >> 32;
    high_carry = i == 5 ? 0 : sum >> 32;
    words[i] = i == 5 ? (uint32_t)product : (uint32_t)sum;
    below = word;
  }
}

/* x[0] + x[1] * 2^-24 + x[2] * 2^-48, times 2^e0: the nearest multiple of pi/2, modulo 8, and what is left in y[0], and
 * in y[1] if `precision` is not 0. */
int __rem_pio2_large(double* x, double* y, int e0, int nx, int precision) {
  const uint64_t m = (uint64_t)(uint32_t)(int32_t)x[0] << 29 |
                     (nx > 1 ? (uint64_t)(uint32_t)(int32_t)x[1] << 5 : 0) |
                     (nx > 2 ? (uint32_t)(int32_t)x[2] >> 19 : 0);
  uint32_t words[6];
  Multiply(m, (unsigned)(e0 - 29 + 61), words);
  uint64_t a = (uint64_t)words[0] << 32 | words[1];
  uint64_t b = (uint64_t)words[2] << 32 | words[3];
  uint64_t c = (uint64_t)words[4] << 32 | words[5];
  /* Three bits of the quotient, then its fraction; from a half on the next multiple is nearer. */
  int quotient = (int)(a >> 61);
  a = a << 3 | b >> 61;
  b = b << 3 | c >> 61;
  c <<= 3;
  const int is_negative = (int)(a >> 63);
  if (is_negative) {
    a = ~a;
    b = ~b;
    c = ~c;
    ++quotient;
  }
  int exponent = 0;
  if (a == 0) {
    a = b;
    b = c;
    c = 0;
    exponent = -64;
  }
  const int zeros = a == 0 ? 0 : __builtin_clzll(a);
  if (zeros > 0) {
    a = a << zeros | b >> (64 - zeros);
    b = b << zeros | c >> (64 - zeros);
  }
  const double scale = PowerOfTwo(exponent - zeros);
  const double p0 = (double)(int64_t)(a >> 38) * 0x1p-26;
  const double p1 = (double)(int64_t)(a >> 12 & 0x3ffffff) * 0x1p-52;
  const double p2 = (double)(int64_t)((a & 0xfff) << 14 | b >> 50) * 0x1p-78;
  const double first = p0 * kHalfPi0; /* Exact, as is each product of the next line. */
  const double second = p0 * kHalfPi1 + p1 * kHalfPi0;
  const double rest = second + (p0 * kHalfPi2 + p1 * kHalfPi1 + p2 * kHalfPi0);
  const double sum = first + rest;
  const double sign = is_negative ? -scale : scale;
  y[0] = sum * sign;
  if (precision != 0) {
    y[1] = (rest - (sum - first)) * sign;
  }
  return quotient & 7;
}
