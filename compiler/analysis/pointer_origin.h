// SPDX-License-Identifier: Apache-2.0
// PointerOrigin describes the origin of an address: the stack, group memory, or the buffer of a parameter.
//
// FindValueRanges (value_ranges.h) finds the origin of each value of an entry; this file defines how origins propagate
// from operands to results. kNumber and kStack are certain. kGroup and kParam are guesses: a value added to such an
// address counts as an index unless it is known to be an address, too.
#ifndef HPVMD_COMPILER_ANALYSIS_POINTER_ORIGIN_H_
#define HPVMD_COMPILER_ANALYSIS_POINTER_ORIGIN_H_

#include <array>
#include <cstdint>

#include "compiler/analysis/words.h"

namespace hpvm::analysis {

struct PointerOrigin {
  enum class Base : uint8_t {
    kUnset,   // No path to the value has been seen.
    kNumber,  // Constants, ids, scalars and values computed from them.
    kStack,   // The shadow stack's pointer, plus or minus numbers.
    kGroup,   // A result of local_alloc.
    kParam,   // The buffer of the entry's parameter `param`.
    kAny,     // Any other origin: a loaded value, or one of several origins.
  };
  enum class How : uint8_t {
    kPlain,  // The value does not depend on a buffer's address.
    kSums,   // It depends on buffers' addresses by sums, differences, selects and comparisons alone.
    kBits,   // It depends on them by other operations, too, so a supposed address of the buffer may be any number.
  };
  Base base = Base::kUnset;
  How how = How::kPlain;
  uint32_t param = 0;  // For kParam.

  static PointerOrigin Number() { return {Base::kNumber, How::kPlain, 0}; }
  static PointerOrigin Any() { return {Base::kAny, How::kPlain, 0}; }
  static PointerOrigin Param(uint32_t param) { return {Base::kParam, How::kSums, param}; }
  friend bool operator==(const PointerOrigin&, const PointerOrigin&) = default;
};

// Returns the origin of a value that is one of the two.
PointerOrigin Join(const PointerOrigin& a, const PointerOrigin& b);

// Returns the origin of each result of the operation; not for global_get. `rounds_down` is true for an `and` that
// keeps the highest bits or has constant operands; any other `and` leaves only a few low bits of an address, which
// cannot point near the buffer.
PointerOrigin OriginOf(const ir::Op& op, const std::array<PointerOrigin, 3>& operands, bool rounds_down);

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_POINTER_ORIGIN_H_
