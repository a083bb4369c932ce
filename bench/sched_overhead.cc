// SPDX-License-Identifier: Apache-2.0
// overhead/chain, overhead/wide, overhead/dag: what a node of a prepared graph costs in the engine alone, coherence and
// timing on.
#include "bench/engine_cases.h"
#include "bench/sched.h"
#include "bench/workload.h"

namespace hpvm::bench {

void AddSchedOverheadCases(std::vector<Case>& cases, const SchedOptions& options) {
  struct Shape {
    const char* name;
    Workload (*make)(uint32_t tasks);
  };
  const std::vector<uint32_t> sizes =
      options.quick ? std::vector<uint32_t>{1'000} : std::vector<uint32_t>{10'000, 100'000, 1'000'000};
  for (const Shape& shape : {Shape{"chain/", MakeChain}, Shape{"wide/", MakeWide}, Shape{"dag/", MakeDag}}) {
    for (uint32_t tasks : sizes) {
      cases.push_back({.suite = "sched",
                       .name = std::string("overhead/") + shape.name + std::to_string(tasks),
                       .metric = "us_per_node",
                       .better = Better::kLower,
                       .run = [make = shape.make, tasks] { return MeasureEngine(make(tasks)); }});
    }
  }
}

}  // namespace hpvm::bench
