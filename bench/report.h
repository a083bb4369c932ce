// SPDX-License-Identifier: Apache-2.0
// Output of suites: a head with the machine and the command, then one line per case (JSON) or rows for people.
#ifndef HPVMD_BENCH_REPORT_H_
#define HPVMD_BENCH_REPORT_H_

#include <string>

#include "bench/registry.h"

namespace hpvm::bench {

void PrintHead(const std::string& suite, const std::string& command, bool json);
// Returns false when the case fails or is not verified; failures go to standard error.
bool MeasureAndPrint(const Case& c, bool json);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_REPORT_H_
