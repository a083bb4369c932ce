// SPDX-License-Identifier: Apache-2.0
// Finds what is known of an entry's integers when it is compiled: intervals, and what an address was made from.
//
// One forward analysis over the structured IR, swept until nothing changes; a merge that keeps growing is widened to
// its type. Globals are followed along control, so that the shadow stack's pointer is a constant minus constants.
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
  uint64_t lo = 0, hi = 0;  // As an unsigned number of the value's type; floats: anything.

  bool Is(Base base) const { return origin.base == base; }
  bool is_constant() const { return !Is(Base::kUnset) && lo == hi; }
  // The end of the bytes that an access of that distance and width at the address may touch; nothing if that may wrap
  // around. They begin at lo + offset.
  std::optional<uint64_t> EndOf(uint64_t offset, uint64_t width) const {
    uint64_t end = 0;
    const bool wraps = __builtin_add_overflow(hi, offset, &end) || __builtin_add_overflow(end, width, &end);
    return wraps ? std::nullopt : std::optional(end);
  }
  friend bool operator==(const ValueRange&, const ValueRange&) = default;
};

// The global that points to the shadow stack: what the module says, else the only mutable one that the entry sets and
// that holds an address of module memory.
std::optional<uint32_t> StackPointerOf(const ir::Module& module);

// Ids and extents on GPUs.
inline constexpr uint64_t kGpuIdMax = (uint64_t{1} << 31) - 1;

// By ValueId of the entry. `id_max`: no id and no extent is larger. Every value is of unknown range and may be any
// address, parameters too, if the analysis did not settle. Calls must have been inlined, or leave globals alone.
std::vector<ValueRange> FindValueRanges(const ir::Module& module, uint64_t id_max);

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_VALUE_RANGES_H_
