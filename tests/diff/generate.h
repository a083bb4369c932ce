// SPDX-License-Identifier: Apache-2.0
// Random kernels whose results are fixed by docs/KERNELS.md: every loop ends, no two instances touch the same bytes
// without atomics or barriers, and no NaN's payload reaches memory or an integer. Some trap.
#ifndef HPVMD_TESTS_DIFF_GENERATE_H_
#define HPVMD_TESTS_DIFF_GENERATE_H_

#include <cstdint>

#include "tests/diff/program.h"

namespace hpvm::diff {

// Features that may occur; each program uses a random part of them, so that rare ones are not always drowned by others.
struct Features {
  bool simd = true;
  bool memory64 = true;
  bool references = true;  // And tables that change, and passive segments.
};

// The same seed gives the same program.
Program Generate(uint64_t seed, const Features& features);

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_GENERATE_H_
