// SPDX-License-Identifier: Apache-2.0
// Intervals of integers for proofs. Each end is either known exactly or unknown.
//
// A number that becomes too large to be kept is not approximated: it becomes unknown, so that nobody can compare it,
// reduce it modulo 2^64 or take it for the only value of an interval.
#ifndef HPVMD_COMPILER_IR_INTERVAL_H_
#define HPVMD_COMPILER_IR_INTERVAL_H_

#include <tuple>

#include "base/status.h"

namespace hpvm::ir {

using Wide = __int128;
// Numbers are kept between -kWideMax and kWideMax, both excluded: the sum of two such numbers cannot overflow.
inline constexpr Wide kWideMax = Wide{1} << 100;
inline constexpr bool IsKept(Wide value) { return value > -kWideMax && value < kWideMax; }

// A number that is known or unknown. There is no order on Exact: code that compares must first check that the number
// is known. Sums and products of an unknown number are unknown, except 0 times it.
class Exact {
 public:
  Exact() = default;
  // The number is unknown when it is too large to be kept.
  Exact(Wide value) : value_(IsKept(value) ? value : 0), is_known_(IsKept(value)) {}
  explicit operator bool() const { return is_known_; }
  Wide operator*() const {
    HPVMD_CHECK(is_known_);
    return value_;
  }
  friend bool operator==(const Exact&, const Exact&) = default;
  // For compiler/api/wire.h; the data read may be invalid, so the reader checks is_sound().
  friend auto FieldsOf(Exact& exact) { return std::tie(exact.value_, exact.is_known_); }
  bool is_sound() const { return is_known_ ? IsKept(value_) : value_ == 0; }

 private:
  Wide value_ = 0;
  bool is_known_ = false;
};
Exact Sum(const Exact& a, const Exact& b);
Exact Product(const Exact& a, const Exact& b);

// All integers between two ends, both included. An unknown end excludes nothing, so forgetting an end only enlarges
// the interval.
class Interval {
 public:
  Interval() = default;  // All integers.
  Interval(const Exact& lo, const Exact& hi) : lo_(lo), hi_(hi) {}
  static Interval Single(Wide value) { return {value, value}; }
  static Interval AtLeast(Wide lo) { return {lo, Exact()}; }
  static Interval AtMost(Wide hi) { return {Exact(), hi}; }
  static Interval Empty() { return {1, 0}; }

  const Exact& lo() const { return lo_; }
  const Exact& hi() const { return hi_; }
  bool is_bounded() const { return lo_ && hi_; }
  bool is_empty() const { return is_bounded() && *lo_ > *hi_; }
  // Returns the only value in the interval, if there is one.
  Exact single() const { return is_bounded() && *lo_ == *hi_ ? lo_ : Exact(); }
  // Returns true when both ends are known and lie in [low, high].
  bool Within(Wide low, Wide high) const { return is_bounded() && *lo_ >= low && *hi_ <= high; }
  friend bool operator==(const Interval&, const Interval&) = default;
  friend auto FieldsOf(Interval& interval) { return std::tie(interval.lo_, interval.hi_); }
  bool is_sound() const { return lo_.is_sound() && hi_.is_sound(); }

 private:
  Exact lo_, hi_;
};

// Return an interval that contains every sum or product of a member of `a` and a member of `b`; any interval when one
// is empty.
Interval Sum(const Interval& a, const Interval& b);
Interval Product(const Interval& a, const Interval& b);
// Meet returns the intersection; Hull returns the smallest interval that contains both.
Interval Meet(const Interval& a, const Interval& b);
Interval Hull(const Interval& a, const Interval& b);

Wide FloorDivide(Wide a, Wide b);  // b > 0

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_INTERVAL_H_
