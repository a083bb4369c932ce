// SPDX-License-Identifier: Apache-2.0
// Value-range analysis of an entry's integers at compile time: intervals, and the origins of addresses.
//
// A forward analysis sweeps the structured IR to a fixed point; a merge that keeps growing is widened to its type.
// Globals are tracked along control flow, so that the shadow stack's pointer is a constant minus constants.
#ifndef HPVMD_COMPILER_ANALYSIS_VALUE_RANGES_H_
#define HPVMD_COMPILER_ANALYSIS_VALUE_RANGES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/analysis/pointer_origin.h"
#include "compiler/analysis/words.h"

namespace hpvm::analysis {

struct ValueRange {
  using Base = PointerOrigin::Base;
  PointerOrigin origin;
  uint64_t lo = 0, hi = 0;  // As unsigned numbers of the value's type; meaningless for floats.

  bool Is(Base base) const { return origin.base == base; }
  bool is_constant() const { return !Is(Base::kUnset) && lo == hi; }
  // Returns the end of the bytes that an access with this offset and width at the address may touch; nothing if that
  // may wrap around. The bytes begin at lo + offset.
  std::optional<uint64_t> EndOf(uint64_t offset, uint64_t width) const {
    uint64_t end = 0;
    const bool wraps = __builtin_add_overflow(hi, offset, &end) || __builtin_add_overflow(end, width, &end);
    return wraps ? std::nullopt : std::optional(end);
  }
  friend bool operator==(const ValueRange&, const ValueRange&) = default;
};

// Returns the global that points to the shadow stack: the one that the module names, else the only mutable global that
// the entry sets and that holds an address of module memory.
std::optional<uint32_t> StackPointerOf(const ir::Module& module);

// Upper bound of ids and extents on GPUs.
inline constexpr uint64_t kGpuIdMax = (uint64_t{1} << 31) - 1;

// Returns the ranges by ValueId of the entry. No id and no extent exceeds `id_max`. If the analysis does not reach a
// fixed point, every value, including parameters, has an unknown range and may be any address. Calls must have been
// inlined, or must not change globals.
std::vector<ValueRange> FindValueRanges(const ir::Module& module, uint64_t id_max);

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_VALUE_RANGES_H_
