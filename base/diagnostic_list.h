// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_BASE_DIAGNOSTIC_LIST_H_
#define HPVMD_BASE_DIAGNOSTIC_LIST_H_

#include <cstddef>
#include <cstdint>

#include "base/diagnostic.h"

namespace hpvm {

// The same in at most `count_max` items: one that was found several times becomes one that says so, and when there are
// too many, warnings give way to errors. Otherwise in the order found. Adds to `omitted` how many are left out.
Diagnostics Shortened(const Diagnostics& diagnostics, size_t count_max, uint64_t* omitted);

}  // namespace hpvm

#endif  // HPVMD_BASE_DIAGNOSTIC_LIST_H_
