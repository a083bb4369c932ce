// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_BASE_DIAGNOSTIC_LIST_H_
#define HPVMD_BASE_DIAGNOSTIC_LIST_H_

#include <cstddef>
#include <cstdint>

#include "base/diagnostic.h"

namespace hpvm {

// Returns at most `count_max` diagnostics in the order found. Repeated diagnostics become one with a note that it was
// repeated; when there are too many, errors displace warnings. Adds the number of omitted diagnostics to `omitted`.
Diagnostics Shortened(const Diagnostics& diagnostics, size_t count_max, uint64_t* omitted);

}  // namespace hpvm

#endif  // HPVMD_BASE_DIAGNOSTIC_LIST_H_
