// SPDX-License-Identifier: Apache-2.0
// Makes a kernel that shows something smaller while it still shows it.
#ifndef HPVMD_TESTS_SPMD_SHRINK_H_
#define HPVMD_TESTS_SPMD_SHRINK_H_

#include <cstdint>
#include <functional>

#include "tests/spmd/kernel.h"

namespace hpvm::spmd {

// `is_wanted` says whether a kernel, which verifies, still shows it; at most `tries_max` are asked about. Cuts the
// launch, ends regions early, takes one arm of an if, drops operations, and puts constants and operands in the place
// of results.
Kernel Shrink(Kernel kernel, const std::function<bool(const Kernel&)>& is_wanted, uint32_t tries_max);

}  // namespace hpvm::spmd

#endif  // HPVMD_TESTS_SPMD_SHRINK_H_
