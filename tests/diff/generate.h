// SPDX-License-Identifier: Apache-2.0
// Makes random kernels whose results docs/KERNELS.md determines: every loop ends, no two instances access the same
// bytes without atomics or barriers, and no NaN's payload reaches memory or an integer. Some trap.
#ifndef HPVMD_TESTS_DIFF_GENERATE_H_
#define HPVMD_TESTS_DIFF_GENERATE_H_

#include <cstdint>

#include "tests/diff/program.h"

namespace hpvm::diff {

// Features that may occur; each program uses a random subset, so that rare ones are not always hidden by others.
struct Features {
  bool simd = true;
  bool memory64 = true;
  bool references = true;  // Also tables that change, and passive segments.
};

// The same seed gives the same program.
Program Generate(uint64_t seed, const Features& features);

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_GENERATE_H_
