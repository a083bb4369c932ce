// SPDX-License-Identifier: Apache-2.0
// ExpandPlaces turns a stack access that reaches one of a few addresses into accesses of all of them, and selects the
// right one. All addresses are then constant, and the words can become values (stack_values.h); an array indexed at
// run time cannot be kept in registers. Accesses of 16 bytes become words, and so do those of 8 bytes whose words
// other accesses touch singly.
#ifndef HPVMD_COMPILER_PASS_MEMORY_EXPAND_PLACES_H_
#define HPVMD_COMPILER_PASS_MEMORY_EXPAND_PLACES_H_

#include <cstdint>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Maximum number of addresses of an access, and of operations added for all accesses.
inline constexpr uint64_t kExpandedPlacesMax = 8;
inline constexpr uint64_t kExpandedOpsMax = 2'048;

// Changes loads and stores of Space::kStack in the entry. Returns true if it changed any.
bool ExpandPlaces(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_EXPAND_PLACES_H_
