// SPDX-License-Identifier: Apache-2.0
// overhead/chain, overhead/wide, overhead/dag: the cost of a node of a prepared graph in the engine alone, with
// coherence and timing on. overhead/efficiency: nodes of a given duration in a random DAG; their own time over the
// time of all workers. The point where the curve passes a half is the METG of E. Slaughter et al., "Task Bench" (SC
// 2020).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "bench/engine_cases.h"
#include "bench/sched/sched.h"
#include "bench/workload.h"

namespace hpvm::bench {
namespace {

int RoundsFor(uint32_t tasks) { return tasks <= 10'000 ? 15 : tasks <= 100'000 ? 7 : 3; }

// Total time of a round's tasks on one worker, and bounds on their number.
constexpr double kRoundUs = 40'000;
constexpr double kTasksMin = 1'000, kTasksMax = 40'000;

StatusOr<Measurement> MeasureEfficiency(double node_us, uint32_t workers, bool quick) {
  const double step_ns = GrindStepNs();
  const auto steps = static_cast<uint32_t>(std::max(1.0, node_us * 1000 / step_ns));
  const auto tasks = static_cast<uint32_t>(quick ? 200 : std::clamp(kRoundUs / node_us, kTasksMin, kTasksMax));
  HPVMD_ASSIGN_OR_RETURN(Measurement measurement, MeasureEngine(MakeGrind(tasks, steps), quick ? 2 : 9, workers));
  const double pure_us = steps * step_ns / 1000 / workers;
  measurement.ours = pure_us / measurement.ours;
  for (auto& [name, value] : measurement.peers) {
    value = pure_us / value;
  }
  return measurement;
}

std::string Text(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", number);
  return text;
}

}  // namespace

void AddSchedOverheadCases(std::vector<Case>& cases, const SchedOptions& options) {
  struct Shape {
    const char* name;
    Workload (*make)(uint32_t tasks);
  };
  const bool quick = options.quick;
  const std::vector<uint32_t> sizes =
      quick ? std::vector<uint32_t>{1'000} : std::vector<uint32_t>{10'000, 100'000, 1'000'000};
  for (const Shape& shape : {Shape{"chain/", MakeChain}, Shape{"wide/", MakeWide}, Shape{"dag/", MakeDag}}) {
    for (const uint32_t tasks : sizes) {
      cases.push_back({.suite = "sched",
                       .name = std::string("overhead/") + shape.name + std::to_string(tasks),
                       .metric = "us_per_node",
                       .better = Better::kLower,
                       .run = [make = shape.make, tasks, rounds = quick ? 2 : RoundsFor(tasks)] {
                         return MeasureEngine(make(tasks), rounds);
                       }});
    }
  }
  for (const uint32_t workers : {1u, 2u}) {
    for (const double node_us : {0.5, 1.5, 5.0, 15.0, 50.0, 100.0}) {
      cases.push_back({.suite = "sched",
                       .name = "overhead/efficiency/" + std::to_string(workers) + "_workers/" + Text(node_us) + "us",
                       .metric = "efficiency",
                       .better = Better::kHigher,
                       .run = [=] { return MeasureEfficiency(node_us, workers, quick); }});
    }
  }
}

}  // namespace hpvm::bench
