// SPDX-License-Identifier: Apache-2.0
// The stages of a dispatch; included only by dispatch.cc, share.cc and measured_run.cc.
#ifndef HPVMD_BACKENDS_CPU_LAUNCH_RUN_H_
#define HPVMD_BACKENDS_CPU_LAUNCH_RUN_H_

#include "backends/cpu/dispatch.h"
#include "backends/cpu/worker.h"

namespace hpvm::cpu {

// One dispatch. Everything is borrowed.
struct Dispatch {
  CpuExecutable& executable;
  const CpuLaunch& launch;
  Pool& pool;
  const backends::Ticks& ticks;

  double NsSince(uint64_t start) const { return static_cast<double>(ticks.Now() - start) * ticks.ns_per_tick(); }
};

// A part of a dispatch: what is counted, and the approximate time per unit.
struct Range {
  const Variant* variant = nullptr;
  const Work* work = nullptr;  // Slices of it; null: units of the variant, or groups.
  uint64_t begin = 0, end = 0;
  double unit_ns = 1;
};

// Shares the range over the pool. `busy_ns` receives the total time of all participants, 0 when not all of it ran.
DispatchEnd Share(const Dispatch& d, const Range& range, double* busy_ns);

// Runs the whole launch by one variant, whose instances take about `instance_ns`; 0: unknown. `instance_ns_now`
// receives the measured time of an instance, or 0.
DispatchEnd RunAll(const Dispatch& d, const Variant& variant, double instance_ns, uint64_t start,
                   double* instance_ns_now);
// Runs the edges of a box that CutBox found to be ragged: one instance at a time.
DispatchEnd RunEdges(const Dispatch& d, const BoxCut& cut);

// Runs a launch of a class that has not settled: parts of it, or all, are samples for the tuner, which this launch uses
// exclusively; `launch_class.mutex` is held.
DispatchEnd RunMeasured(const Dispatch& d, backends::LaunchClass& launch_class, uint64_t start);

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_LAUNCH_RUN_H_
