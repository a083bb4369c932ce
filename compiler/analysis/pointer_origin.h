// SPDX-License-Identifier: Apache-2.0
// The origin of an address: the stack, group memory, or the buffer of a parameter.
//
// FindValueRanges (value_ranges.h) finds it for each value of an entry; how it passes from operands to results is here.
// kNumber and kStack are sure. kGroup and kParam are guesses: whatever is added to such an address is an index to it,
// unless it is known to be an address, too.
#ifndef HPVMD_COMPILER_ANALYSIS_POINTER_ORIGIN_H_
#define HPVMD_COMPILER_ANALYSIS_POINTER_ORIGIN_H_

#include <array>
#include <cstdint>

#include "compiler/analysis/words.h"

namespace hpvm::analysis {

struct PointerOrigin {
  enum class Base : uint8_t {
    kUnset,   // No way to the value has been seen.
    kNumber,  // Constants, ids, scalars and what is computed of them.
    kStack,   // The shadow stack's pointer and numbers.
    kGroup,   // What local_alloc gave.
    kParam,   // The buffer of the entry's parameter `param`.
    kAny,     // Anything else: what was loaded, one of several of these.
  };
  enum class How : uint8_t {
    kPlain,  // No buffer's address is in it.
    kSums,   // Buffers' addresses are, by sums, differences, choices and comparisons alone.
    kBits,   // By other operations, too: what is taken for an address of the buffer may be any number.
  };
  Base base = Base::kUnset;
  How how = How::kPlain;
  uint32_t param = 0;  // kParam.

  static PointerOrigin Number() { return {Base::kNumber, How::kPlain, 0}; }
  static PointerOrigin Any() { return {Base::kAny, How::kPlain, 0}; }
  static PointerOrigin Param(uint32_t param) { return {Base::kParam, How::kSums, param}; }
  friend bool operator==(const PointerOrigin&, const PointerOrigin&) = default;
};

// The origin of a value that is one of the two.
PointerOrigin Join(const PointerOrigin& a, const PointerOrigin& b);

// The origin of each result of the operation; not for global_get. `rounds_down`: it is an `and` that keeps the highest
// bits or is of constants; others leave only a few low bits of an address, which point nowhere near the buffer.
PointerOrigin OriginOf(const ir::Op& op, const std::array<PointerOrigin, 3>& operands, bool rounds_down);

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_POINTER_ORIGIN_H_
