// SPDX-License-Identifier: Apache-2.0
// Measures one case of `hpvm-bench cpu`: ours and its peers in turn, then checks what each computed.
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
  std::vector<std::string> filters;  // Parts of names of cases; empty: all.
  std::vector<std::string> peers;    // Only these contenders besides "ours"; empty: all.
  double seconds = 0;                // A case's measuring time; 0: as the size says.
};

struct CpuMeasurement {
  struct Entry {
    std::string name;    // "ours", "ours_fast", "openmp" ...
    double seconds = 0;  // The quickest launch.
    int launches = 0;    // That were measured.
    std::string chosen;
    std::string fault;  // Why its result is wrong; empty when it was found right.
  };
  std::vector<Entry> entries;
  std::vector<std::string> missing;  // Peers that could not run, each with the reason.

  const Entry* Find(const std::string& name) const;
  // The peer's time over that of "ours" or another contender; 0 when either is missing or wrong.
  double Ratio(const std::string& peer, const std::string& ours = "ours") const;
  // Against the better of the two OpenMP builds.
  double RatioOpenMp(const std::string& ours = "ours") const;
  bool verified() const;
};

StatusOr<CpuMeasurement> MeasureCpuCase(const CpuCase& problem, CpuEngine& engine, const CpuOptions& options);

// `hpvm-bench cpu`. The exit code.
int RunCpu(const CpuOptions& options, const std::string& command);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_CPU_CPU_MEASURE_H_
