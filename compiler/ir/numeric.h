// SPDX-License-Identifier: Apache-2.0
// Results of the arithmetic operations as functions on plain types, beyond those of <functional>: the semantics that
// the interpreter executes and that passes may fold by. Integers are passed unsigned. Include it only from files
// compiled without floating-point contraction.
#ifndef HPVMD_COMPILER_IR_NUMERIC_H_
#define HPVMD_COMPILER_IR_NUMERIC_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace hpvm::ir::numeric {

template <typename T>
using UintOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
template <typename U>
using Signed = std::make_signed_t<U>;
template <typename U>
inline constexpr uint32_t kWidth = sizeof(U) * 8;

// Slots hold 64 bits; 4-byte values are zero-extended.
template <typename T>
T FromBits(uint64_t bits) {
  return std::bit_cast<T>(static_cast<UintOf<T>>(bits));
}
template <typename T>
uint64_t ToBits(T value) {
  return std::bit_cast<UintOf<T>>(value);
}

template <typename U>
U Clz(U a) {
  return static_cast<U>(std::countl_zero(a));
}
template <typename U>
U Ctz(U a) {
  return static_cast<U>(std::countr_zero(a));
}
template <typename U>
U Popcnt(U a) {
  return static_cast<U>(std::popcount(a));
}
template <typename U, typename Narrow>
U SignExtend(U a) {
  return static_cast<U>(static_cast<Signed<U>>(static_cast<Narrow>(a)));
}

template <typename U>
U Shl(U a, U b) {
  return a << (b % kWidth<U>);
}
template <typename U>
U ShrU(U a, U b) {
  return a >> (b % kWidth<U>);
}
template <typename U>
U ShrS(U a, U b) {
  return static_cast<U>(static_cast<Signed<U>>(a) >> (b % kWidth<U>));
}
template <typename U>
U Rotl(U a, U b) {
  return std::rotl(a, static_cast<int>(b % kWidth<U>));
}
template <typename U>
U Rotr(U a, U b) {
  return std::rotr(a, static_cast<int>(b % kWidth<U>));
}
// All require b != 0; DivS also requires that the quotient does not overflow.
template <typename U>
U DivU(U a, U b) {
  return a / b;
}
template <typename U>
U RemU(U a, U b) {
  return a % b;
}
template <typename U>
bool DivSOverflows(U a, U b) {
  return a == U{1} << (kWidth<U> - 1) && b == static_cast<U>(-1);
}
template <typename U>
U DivS(U a, U b) {
  return static_cast<U>(static_cast<Signed<U>>(a) / static_cast<Signed<U>>(b));
}
template <typename U>
U RemS(U a, U b) {
  return b == static_cast<U>(-1) ? U{0} : static_cast<U>(static_cast<Signed<U>>(a) % static_cast<Signed<U>>(b));
}

// The sign is a bit, also for a NaN.
template <typename F>
constexpr UintOf<F> kSignBit = UintOf<F>{1} << (kWidth<UintOf<F>> - 1);
template <typename F>
F FAbs(F a) {
  return std::bit_cast<F>(static_cast<UintOf<F>>(std::bit_cast<UintOf<F>>(a) & ~kSignBit<F>));
}
template <typename F>
F FNeg(F a) {
  return std::bit_cast<F>(static_cast<UintOf<F>>(std::bit_cast<UintOf<F>>(a) ^ kSignBit<F>));
}
template <typename F>
F FCopysign(F a, F b) {
  const UintOf<F> sign = std::bit_cast<UintOf<F>>(b) & kSignBit<F>;
  return std::bit_cast<F>(static_cast<UintOf<F>>((std::bit_cast<UintOf<F>>(a) & ~kSignBit<F>) | sign));
}
// The library's rounding may return a signaling NaN; the sum is quiet.
template <typename F>
F FCeil(F a) {
  return a != a ? a + a : std::ceil(a);
}
template <typename F>
F FFloor(F a) {
  return a != a ? a + a : std::floor(a);
}
template <typename F>
F FTrunc(F a) {
  return a != a ? a + a : std::trunc(a);
}
// Uses the default rounding mode, which our code never changes: to nearest, ties to even.
template <typename F>
F FNearest(F a) {
  return std::nearbyint(a);
}
template <typename F>
F FSqrt(F a) {
  return std::sqrt(a);
}
template <typename F>
F FMin(F a, F b) {
  if (std::isnan(a) || std::isnan(b)) {
    return a + b;
  }
  // Only zeros are equal and different: the negative zero is less.
  return a == b ? (std::signbit(a) ? a : b) : a < b ? a : b;
}
template <typename F>
F FMax(F a, F b) {
  if (std::isnan(a) || std::isnan(b)) {
    return a + b;
  }
  return a == b ? (std::signbit(a) ? b : a) : a > b ? a : b;
}

// Returns true when the float, truncated towards zero, fits the integer type (signed or unsigned). The limits are
// powers of two, which floats represent exactly.
template <typename Int, typename F>
bool TruncFits(F a) {
  const F cut = std::trunc(a);
  const F above = std::ldexp(F{1}, std::numeric_limits<Int>::digits);
  const F lowest = std::is_signed_v<Int> ? -above : F{0};
  return cut >= lowest && cut < above;  // False for a NaN.
}
template <typename Int, typename F>
Int TruncSat(F a) {
  if (std::isnan(a)) {
    return 0;
  }
  if (TruncFits<Int>(a)) {
    return static_cast<Int>(a);
  }
  return a < 0 ? std::numeric_limits<Int>::min() : std::numeric_limits<Int>::max();
}

}  // namespace hpvm::ir::numeric

#endif  // HPVMD_COMPILER_IR_NUMERIC_H_
