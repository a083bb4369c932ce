// SPDX-License-Identifier: Apache-2.0
// Verification of a contender's results.
#ifndef HPVMD_BENCH_CPU_CPU_VERIFY_H_
#define HPVMD_BENCH_CPU_CPU_VERIFY_H_

#include <string>

#include "bench/cpu/cpu_contender.h"

namespace hpvm::bench {

// Compares samples of every output with the case's reference: within its tolerance, or for a library within its error
// bound. Returns an empty text when all match, otherwise a sentence about the worst.
std::string CompareWithReference(const CpuCase& problem, const CpuContender& contender);
// Compares every element with another contender's: bit for bit (all NaNs are equal), or within the case's tolerance.
std::string CompareAll(const CpuCase& problem, const CpuContender& contender, const CpuContender& other, bool bitwise);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_CPU_CPU_VERIFY_H_
