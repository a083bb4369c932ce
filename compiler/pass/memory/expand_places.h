// SPDX-License-Identifier: Apache-2.0
// An access of the stack that reaches one of a few places becomes an access of each of them, of which one counts. Then
// all places are known, and the words can become values (stack_values.h): what is indexed at run time is in no
// register. Accesses of 16 bytes become words, and so do those of 8 bytes whose words others touch singly.
#ifndef HPVMD_COMPILER_PASS_MEMORY_EXPAND_PLACES_H_
#define HPVMD_COMPILER_PASS_MEMORY_EXPAND_PLACES_H_

#include <cstdint>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Places of an access at most, and operations that all of them add.
inline constexpr uint64_t kExpandedPlacesMax = 8;
inline constexpr uint64_t kExpandedOpsMax = 2'048;

// Looks at loads and stores of Space::kStack in the entry. True if it changed any.
bool ExpandPlaces(ir::Module& module);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_MEMORY_EXPAND_PLACES_H_
