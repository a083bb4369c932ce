// SPDX-License-Identifier: Apache-2.0
// Shrinks a kernel that shows something while it still shows it.
#ifndef HPVMD_TESTS_SPMD_SHRINK_H_
#define HPVMD_TESTS_SPMD_SHRINK_H_

#include <cstdint>
#include <functional>

#include "tests/spmd/kernel.h"

namespace hpvm::spmd {

// `is_wanted` returns whether a verified kernel still shows it; it is called at most `tries_max` times. Cuts the
// launch, ends regions early, takes one arm of an if, drops operations, and replaces results by constants and
// operands.
Kernel Shrink(Kernel kernel, const std::function<bool(const Kernel&)>& is_wanted, uint32_t tries_max);

}  // namespace hpvm::spmd

#endif  // HPVMD_TESTS_SPMD_SHRINK_H_
