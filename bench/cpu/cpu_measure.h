// SPDX-License-Identifier: Apache-2.0
// Measures one case of `hpvm-bench cpu`: ours and its peers in turn, then checks the results of each.
#ifndef HPVMD_BENCH_CPU_CPU_MEASURE_H_
#define HPVMD_BENCH_CPU_CPU_MEASURE_H_

#include <map>
#include <string>
#include <vector>

#include "bench/cpu/cpu_contender.h"

namespace hpvm::bench {

struct CpuOptions {
  CpuSize size = CpuSize::kFull;
  bool json = false;
  std::vector<std::string> filters;  // Parts of case names; all when empty.
  std::vector<std::string> peers;    // Only these contenders besides "ours"; all when empty.
  double seconds = 0;                // Measuring time of a case; determined by the size when 0.
};

struct CpuMeasurement {
  struct Entry {
    std::string name;    // "ours", "ours_fast", "openmp" ...
    double seconds = 0;  // Duration of the fastest launch.
    int launches = 0;    // Number of measured launches.
    std::string chosen;
    std::string fault;  // Why its result is wrong; empty when it is right.
  };
  std::vector<Entry> entries;
  std::vector<std::string> missing;  // Peers that could not run, each with the reason.

  const Entry* Find(const std::string& name) const;
  // Returns the peer's time over that of "ours" or another contender; 0 when either is missing or wrong.
  double Ratio(const std::string& peer, const std::string& ours = "ours") const;
  // Returns the ratio to the better of the two OpenMP builds.
  double RatioOpenMp(const std::string& ours = "ours") const;
  bool verified() const;
};

StatusOr<CpuMeasurement> MeasureCpuCase(const CpuCase& problem, CpuEngine& engine, const CpuOptions& options);

// Runs `hpvm-bench cpu`. Returns the exit code.
int RunCpu(const CpuOptions& options, const std::string& command);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_CPU_CPU_MEASURE_H_
