// SPDX-License-Identifier: Apache-2.0
// Method: closed forms in 128-bit arithmetic. The ranges of the tested value and of the bound at loop entry give
// the most further iterations; a parameter moves by as many steps, or takes the tested value's own range.
// Invariants: a returned range holds the parameter's values in all iterations, and neither it nor the tested value
// leaves the numbers of its type. A range that the modulus would split, or a bound with `!=` that may be stepped
// over, gives nothing.
// Factors are at most 2^32, which keeps sums far below 2^127. A query is linear in the terms of the two forms;
// there is no iteration to a fixed point.
#include "compiler/analysis/loop_ranges.h"

#include <algorithm>

#include "compiler/ir/walk.h"

namespace hpvm::analysis {
namespace {

using Test = LoopCount::Test;

// The numbers of an integer type, signed or unsigned.
struct Numbers {
  explicit Numbers(ir::Type type, bool is_signed)
      : modulus(__int128{1} << (8 * ir::Bytes(type))), least(is_signed ? -modulus / 2 : 0), most(least + modulus - 1) {}

  // Shifts the range by a multiple of the modulus into the type's numbers; returns nothing if the range would be
  // split.
  std::optional<Range128> Fit(Range128 range) const {
    const __int128 above = range.lo - least;
    const __int128 turns = above >= 0 ? above / modulus : -((modulus - 1 - above) / modulus);
    range.lo -= turns * modulus;
    range.hi -= turns * modulus;
    return range.hi <= most ? std::optional(range) : std::nullopt;
  }

  __int128 modulus, least, most;
};

// Returns the range of a form in the loop's first iteration.
std::optional<Range128> FirstOf(const LoopForm& form, ir::Type type, const Numbers& numbers,
                                const LoopRanges::RangeOf& range_of) {
  Range128 sum = {form.constant, form.constant};
  for (const auto& [value, bits] : form.terms) {
    const std::optional<Range128> range = range_of(value);
    const __int128 factor = ir::SignedBits(type, bits);
    constexpr __int128 kFactorMax = __int128{1} << 32;  // Keeps sums far below 2^127.
    if (!range || factor > kFactorMax || factor < -kFactorMax) {
      return std::nullopt;
    }
    sum.lo += factor * (factor > 0 ? range->lo : range->hi);
    sum.hi += factor * (factor > 0 ? range->hi : range->lo);
  }
  return numbers.Fit(sum);
}

// The tested value's range, and the maximum number of iterations after the first.
struct Way {
  Range128 tested;  // The range over all iterations.
  __int128 more = 0;
};
std::optional<Way> WayOf(const LoopCount& count, const Numbers& numbers, const LoopRanges::RangeOf& range_of) {
  const std::optional<Range128> tested = FirstOf(count.tested, count.type, numbers, range_of);
  const std::optional<Range128> bound = FirstOf(count.bound, count.type, numbers, range_of);
  if (!tested || !bound) {
    return std::nullopt;
  }
  const __int128 step = count.tested.step, size = count.step_size();
  if (count.test == Test::kNotEqual) {
    // A value that changes by one, or from one constant to another, reaches the bound if it starts on the right side
    // of it.
    const bool is_known = tested->lo == tested->hi && bound->lo == bound->hi;
    const bool meets = size == 1 || (is_known && (bound->lo - tested->lo) % size == 0);
    if (!meets || (step > 0 ? tested->hi > bound->lo : tested->lo < bound->hi)) {
      return std::nullopt;
    }
  }
  const bool or_equal = count.test == Test::kLessOrEqual || count.test == Test::kGreaterOrEqual;
  Way way;
  if (step > 0) {
    const __int128 last = bound->hi - (or_equal ? 0 : 1);  // The greatest tested value with which the loop continues.
    way.tested = {tested->lo, std::max(tested->hi, last + size)};
    way.more = last < tested->lo ? 0 : (last - tested->lo) / size + 1;
  } else {
    const __int128 last = bound->lo + (or_equal ? 0 : 1);
    way.tested = {std::min(tested->lo, last - size), tested->hi};
    way.more = last > tested->hi ? 0 : (tested->hi - last) / size + 1;
  }
  return way.tested.lo >= numbers.least && way.tested.hi <= numbers.most ? std::optional(way) : std::nullopt;
}

}  // namespace

LoopRanges::LoopRanges(const ir::Function& function) : f_(function), loops_(function.ops.size()) {
  std::optional<CountedLoops> loops;
  ir::ForEachOp(f_, [&](OpId id) {
    if (f_.op(id).code != ir::Opcode::kLoop) {
      return;
    }
    if (!loops) {
      loops.emplace(f_);
    }
    const LoopForms forms(*loops, id);
    std::optional<LoopCount> count = forms.Count();
    if (!count) {
      return;
    }
    Counted& counted = loops_[id.index].emplace();
    counted.count = *std::move(count);
    for (uint32_t i = 0; i < f_.region(f_.op(id).body).param_count; ++i) {
      counted.steps.push_back(forms.StepOf(i));
    }
  });
}

bool LoopRanges::IsCounted(OpId loop, uint32_t param) const {
  const std::optional<Counted>& counted = loops_[loop.index];
  return counted && counted->steps[param].value_or(0) != 0;
}

std::optional<Range128> LoopRanges::Of(OpId loop, uint32_t param, const RangeOf& range_of) const {
  const Counted& counted = *loops_[loop.index];
  const ValueId first_value = f_.operands_of(f_.op(loop))[param];
  const Numbers numbers(f_.type_of(first_value), false);
  const std::optional<Range128> first = range_of(first_value);
  for (const bool is_signed : {false, true}) {
    if (!first || (counted.count.test != Test::kNotEqual && counted.count.is_signed != is_signed)) {
      continue;
    }
    const std::optional<Way> way = WayOf(counted.count, Numbers(counted.count.type, is_signed), range_of);
    if (!way) {
      continue;
    }
    if (counted.count.tested_param && counted.count.tested_param->param == param) {
      const __int128 constant = counted.count.tested_param->constant;
      return numbers.Fit({way->tested.lo - constant, way->tested.hi - constant});
    }
    const __int128 step = ir::SignedBits(f_.type_of(first_value), *counted.steps[param]);
    if (way->more > numbers.most) {
      return std::nullopt;
    }
    Range128 range = *first;
    (step > 0 ? range.hi : range.lo) += way->more * step;
    return range.lo >= 0 && range.hi <= numbers.most ? std::optional(range) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace hpvm::analysis
