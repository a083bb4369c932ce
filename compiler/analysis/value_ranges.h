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

#include "compiler/ir/ir.h"

namespace hpvm {

struct ValueRange {
  // What an address came from. Sums of numbers are numbers; products and the like always are.
  enum class Origin : uint8_t {
    kUnset,
    kNumber,   // Constants, ids, scalars and what is computed of them.
    kStack,    // The shadow stack's pointer and numbers.
    kPointer,  // Anything else: buffers, group memory, what was loaded, several of these.
  };
  Origin origin = Origin::kUnset;
  uint64_t lo = 0, hi = 0;  // As an unsigned number of the value's type; floats: anything.

  bool is_constant() const { return origin != Origin::kUnset && lo == hi; }
  friend bool operator==(const ValueRange&, const ValueRange&) = default;
};

// The global that points to the shadow stack: what the module says, else the only mutable one that the entry sets and
// that holds an address of module memory.
std::optional<uint32_t> StackPointerOf(const ir::Module& module);

// Ids and extents on GPUs.
inline constexpr uint64_t kGpuIdMax = (uint64_t{1} << 31) - 1;

// By ValueId of the entry. `id_max`: no id and no extent is larger. Every value is of unknown range and origin kPointer
// if the analysis did not settle. Calls must have been inlined, or leave globals alone.
std::vector<ValueRange> FindValueRanges(const ir::Module& module, uint64_t id_max);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_ANALYSIS_VALUE_RANGES_H_
