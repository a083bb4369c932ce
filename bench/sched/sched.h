// SPDX-License-Identifier: Apache-2.0
// `hpvm-bench sched`: the scheduler beside peers that do the same work.
//
// Cases are those of bench/registry.h; the part of a name before the first slash is its family: `overhead/` (cost of
// a node), `quality/` (quality of plans, on simulated platforms), `real/` (mixed graphs on this machine's devices),
// `memory/` (working sets that do not fit). A family has one file, or a few, and one Add function here.
#ifndef HPVMD_BENCH_SCHED_SCHED_H_
#define HPVMD_BENCH_SCHED_SCHED_H_

#include <string>
#include <vector>

#include "bench/registry.h"

namespace hpvm::bench {

struct SchedOptions {
  bool json = false;
  bool quick = false;  // Smaller sizes and few rounds: checks correctness; its figures mean nothing.
  bool large = false;  // real/, memory/: sizes for large GPUs.
  std::vector<std::string> filters;
  std::vector<std::string> devices;  // real/, memory/: as CreateDevice accepts them, the processor first.
};

void AddSchedOverheadCases(std::vector<Case>& cases, const SchedOptions& options);  // sched_overhead.cc
void AddSchedQualityCases(std::vector<Case>& cases, const SchedOptions& options);   // sched_quality.cc

void AddSchedRealCases(std::vector<Case>& cases, const SchedOptions& options);    // sched_real.cc
void AddSchedMemoryCases(std::vector<Case>& cases, const SchedOptions& options);  // sched_memory.cc

// Returns the exit code: 0 when every case was measured and verified, 1 otherwise, 2 when no case has a filter in its
// name.
int RunSched(const SchedOptions& options, const std::string& command);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SCHED_SCHED_H_
