// SPDX-License-Identifier: Apache-2.0
// Makes a program that shows a difference as small as it can.
#ifndef HPVMD_TESTS_DIFF_SHRINK_H_
#define HPVMD_TESTS_DIFF_SHRINK_H_

#include <cstdint>
#include <functional>

#include "tests/diff/program.h"

namespace hpvm::diff {

// Whether a program still shows what is looked for. Must be false for programs that are no longer modules.
using StillFails = std::function<bool(const Program&)>;

// Tries at most `tries_max` programs. Returns the smallest that still fails; `program` itself must.
Program Shrink(Program program, const StillFails& still_fails, uint32_t tries_max);

uint32_t CountNodes(const Program& program);

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_SHRINK_H_
