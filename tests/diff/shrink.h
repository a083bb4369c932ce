// SPDX-License-Identifier: Apache-2.0
// Reduces a program that shows a difference to a minimum.
#ifndef HPVMD_TESTS_DIFF_SHRINK_H_
#define HPVMD_TESTS_DIFF_SHRINK_H_

#include <cstdint>
#include <functional>

#include "tests/diff/program.h"

namespace hpvm::diff {

// Returns true when a program still shows the difference. Must be false for programs that are not modules any more.
using StillFails = std::function<bool(const Program&)>;

// Tries at most `tries_max` programs. Returns the smallest that still fails; `program` itself must fail.
Program Shrink(Program program, const StillFails& still_fails, uint32_t tries_max);

uint32_t CountNodes(const Program& program);

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_SHRINK_H_
