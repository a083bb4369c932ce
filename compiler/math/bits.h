/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between numbers and their bits. */
#ifndef HPVMD_COMPILER_MATH_BITS_H_
#define HPVMD_COMPILER_MATH_BITS_H_

#include <stdint.h>

/* Computes the value here; the compiler would sink a computation that only one side of a branch needs. */
#define COMPUTED_HERE(value) __asm__ volatile("" : "+r"(value))

static inline uint64_t BitsOfWide(double x) {
  union {
    double value;
    uint64_t bits;
  } u = {x};
  return u.bits;
}
static inline uint32_t BitsOf(float x) {
  union {
    float value;
    uint32_t bits;
  } u = {x};
  return u.bits;
}
static inline double DoubleOf(uint64_t bits) {
  union {
    uint64_t bits;
    double value;
  } u = {bits};
  return u.value;
}
static inline float FloatOf(uint32_t bits) {
  union {
    uint32_t bits;
    float value;
  } u = {bits};
  return u.value;
}

#endif /* HPVMD_COMPILER_MATH_BITS_H_ */
