// SPDX-License-Identifier: Apache-2.0
// Whether what a contender computed is right.
#ifndef HPVMD_BENCH_CPU_CPU_VERIFY_H_
#define HPVMD_BENCH_CPU_CPU_VERIFY_H_

#include <string>

#include "bench/cpu/cpu_contender.h"

namespace hpvm::bench {

// Compares samples of every output with the case's reference: within its tolerance, or of a library within its error
// bound. Empty when all is well, else a sentence about the worst.
std::string CompareWithReference(const CpuCase& problem, const CpuContender& contender);
// Compares every element with another contender's: to the bit (what is not a number equals itself whatever its
// payload), or within the case's tolerance.
std::string CompareAll(const CpuCase& problem, const CpuContender& contender, const CpuContender& other, bool bitwise);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_CPU_CPU_VERIFY_H_
