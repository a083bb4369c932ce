// SPDX-License-Identifier: Apache-2.0
// The distance between two short words, for "did you mean".
#ifndef HPVMD_BASE_EDIT_DISTANCE_H_
#define HPVMD_BASE_EDIT_DISTANCE_H_

#include <stddef.h>

#include <string_view>

namespace hpvm {

// Insertions, deletions and replacements of bytes that make `b` of `a`; two neighbours swapped count as one (optimal
// string alignment). Takes time and memory in proportion to the product of the lengths: callers bound them.
size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace hpvm

#endif  // HPVMD_BASE_EDIT_DISTANCE_H_
