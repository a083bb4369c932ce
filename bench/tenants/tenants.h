// SPDX-License-Identifier: Apache-2.0
// `hpvm-bench tenants`: the cost of isolating tenants: start of their processes, memory of idle ones, throughput of
// many, and the sandbox.
//
// Figures that compare are medians of ratios of pairs, one run of each right after the other, in alternating order.
// `sandbox_off` is the same program with executor.sandbox_max = 0: a separate process, and nothing more.
#ifndef HPVMD_BENCH_TENANTS_TENANTS_H_
#define HPVMD_BENCH_TENANTS_TENANTS_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/service/service.h"

namespace hpvm::bench {

void AddSpawnCases(std::vector<ServiceCase>& cases);    // tenants_spawn.cc
void AddMemoryCases(std::vector<ServiceCase>& cases);   // tenants_memory.cc
void AddShareCases(std::vector<ServiceCase>& cases);    // tenants_share.cc
void AddSandboxCases(std::vector<ServiceCase>& cases);  // tenants_sandbox.cc

// As RunService.
int RunTenants(const ServiceOptions& options, const std::string& command);

// Values of two contenders, one pair per round.
struct Pairs {
  std::vector<double> ours, peer;
  // Returns the median of ours over peer, pair by pair.
  double Ratio() const;
};
// Runs one unmeasured round, then `rounds`, in alternating order. Values may be times or rates.
StatusOr<Pairs> MeasurePairs(int rounds, const std::function<StatusOr<double>()>& ours,
                             const std::function<StatusOr<double>()>& peer);

inline double Milliseconds(Duration duration) { return static_cast<double>(duration.count()) / 1e6; }

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_TENANTS_TENANTS_H_
