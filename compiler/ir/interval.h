// SPDX-License-Identifier: Apache-2.0
// Intervals of integers for proofs: an end is a number that is known exactly, or it is not known at all.
//
// A number that has grown too large to be kept is not kept as a large number: it has no value any more, so nobody can
// compare with it, reduce it modulo 2^64 or take it for the only value that an interval holds.
#ifndef HPVMD_COMPILER_IR_INTERVAL_H_
#define HPVMD_COMPILER_IR_INTERVAL_H_

#include <tuple>

#include "base/status.h"

namespace hpvm::ir {

using Wide = __int128;
// Numbers are kept between -kWideMax and kWideMax, both excluded: far from where the sum of two could overflow.
inline constexpr Wide kWideMax = Wide{1} << 100;
inline constexpr bool IsKept(Wide value) { return value > -kWideMax && value < kWideMax; }

// A number, or nothing where it is not known. There is no order on these: whoever compares has to look first whether
// there is a number. Sums and products of what is not known are not known, but for 0 times it.
class Exact {
 public:
  Exact() = default;
  // Not known if it is too large to be kept.
  Exact(Wide value) : value_(IsKept(value) ? value : 0), is_known_(IsKept(value)) {}
  explicit operator bool() const { return is_known_; }
  Wide operator*() const {
    HPVMD_CHECK(is_known_);
    return value_;
  }
  friend bool operator==(const Exact&, const Exact&) = default;
  // For compiler/api/wire.h; what was read may not be sound.
  friend auto FieldsOf(Exact& exact) { return std::tie(exact.value_, exact.is_known_); }
  bool is_sound() const { return is_known_ ? IsKept(value_) : value_ == 0; }

 private:
  Wide value_ = 0;
  bool is_known_ = false;
};
Exact Sum(const Exact& a, const Exact& b);
Exact Product(const Exact& a, const Exact& b);

// All integers from one end to the other, both included. An end that is not known excludes nothing: to forget one only
// makes the interval larger.
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
  // The only value in it, if there is one.
  Exact single() const { return is_bounded() && *lo_ == *hi_ ? lo_ : Exact(); }
  // Whether both ends are known and lie between these, which are included.
  bool Within(Wide low, Wide high) const { return is_bounded() && *lo_ >= low && *hi_ <= high; }
  friend bool operator==(const Interval&, const Interval&) = default;
  friend auto FieldsOf(Interval& interval) { return std::tie(interval.lo_, interval.hi_); }
  bool is_sound() const { return lo_.is_sound() && hi_.is_sound(); }

 private:
  Exact lo_, hi_;
};

// What contains every sum and every product of a member of `a` and one of `b`. Of an empty one: anything.
Interval Sum(const Interval& a, const Interval& b);
Interval Product(const Interval& a, const Interval& b);
// What both contain; the smallest interval that contains both.
Interval Meet(const Interval& a, const Interval& b);
Interval Hull(const Interval& a, const Interval& b);

Wide FloorDivide(Wide a, Wide b);  // b > 0

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_INTERVAL_H_
