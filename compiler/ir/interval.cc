// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/interval.h"

#include <algorithm>
#include <iterator>

namespace hpvm::ir {
namespace {

// An end while products are compared: a number, or beyond all numbers that are kept.
struct End {
  int beyond = 0;  // -1: below, 1: above all numbers that are kept.
  Wide value = 0;  // Valid when not beyond.

  int sign() const { return beyond != 0 ? beyond : (value > 0) - (value < 0); }
  friend bool operator<(const End& a, const End& b) {
    return a.beyond != b.beyond ? a.beyond < b.beyond : a.beyond == 0 && a.value < b.value;
  }
  // Converts to an end of an interval. A lower end above all kept numbers becomes unknown, too, although it excludes
  // all of them.
  Exact kept() const { return beyond == 0 ? Exact(value) : Exact(); }
};

End LowerEnd(const Interval& interval) { return interval.lo() ? End{0, *interval.lo()} : End{-1, 0}; }
End UpperEnd(const Interval& interval) { return interval.hi() ? End{0, *interval.hi()} : End{1, 0}; }

End Times(const End& a, const End& b) {
  const int sign = a.sign() * b.sign();
  if (sign == 0) {
    return {};
  }
  Wide product = 0;
  if (a.beyond != 0 || b.beyond != 0 || __builtin_mul_overflow(a.value, b.value, &product) || !IsKept(product)) {
    return {sign, 0};
  }
  return {0, product};
}

// Returns the greater one of two lower ends, or the smaller one of two upper ends. An unknown end excludes nothing.
Exact Tighter(const Exact& a, const Exact& b, bool is_lower) {
  if (!a || !b) {
    return a ? a : b;
  }
  return is_lower ? std::max(*a, *b) : std::min(*a, *b);
}

}  // namespace

Exact Sum(const Exact& a, const Exact& b) { return a && b ? Exact(*a + *b) : Exact(); }

Exact Product(const Exact& a, const Exact& b) {
  if ((a && *a == 0) || (b && *b == 0)) {
    return 0;
  }
  Wide product = 0;
  return a && b && !__builtin_mul_overflow(*a, *b, &product) ? Exact(product) : Exact();
}

Interval Sum(const Interval& a, const Interval& b) { return {Sum(a.lo(), b.lo()), Sum(a.hi(), b.hi())}; }

Interval Product(const Interval& a, const Interval& b) {
  const End a_lo = LowerEnd(a), a_hi = UpperEnd(a), b_lo = LowerEnd(b), b_hi = UpperEnd(b);
  const End ends[] = {Times(a_lo, b_lo), Times(a_lo, b_hi), Times(a_hi, b_lo), Times(a_hi, b_hi)};
  return {std::min_element(std::begin(ends), std::end(ends))->kept(),
          std::max_element(std::begin(ends), std::end(ends))->kept()};
}

Interval Meet(const Interval& a, const Interval& b) {
  return {Tighter(a.lo(), b.lo(), true), Tighter(a.hi(), b.hi(), false)};
}

Interval Hull(const Interval& a, const Interval& b) {
  if (a.is_empty() || b.is_empty()) {
    return a.is_empty() ? b : a;
  }
  return {a.lo() && b.lo() ? Exact(std::min(*a.lo(), *b.lo())) : Exact(),
          a.hi() && b.hi() ? Exact(std::max(*a.hi(), *b.hi())) : Exact()};
}

Wide FloorDivide(Wide a, Wide b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

}  // namespace hpvm::ir
