// SPDX-License-Identifier: Apache-2.0
#include "bench/sched/graph_peers.h"

namespace hpvm::bench {

StatusOr<Measurement> MeasureWorkload(const Workload& workload, GraphPeer& ours, int rounds, uint32_t workers) {
  const std::unique_ptr<GraphPeer> tbb = MakeTbbPeer(workload, workers);
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<GraphPeer> starpu, MakeStarpuPeer(workload, workers));
  const std::vector<Elements> want = Evaluate(workload);
  const auto round_of = [&](GraphPeer& contender) {
    return [&]() -> StatusOr<double> {
      HPVMD_ASSIGN_OR_RETURN(const Duration elapsed, contender.Run());
      if (contender.buffers() != want) {
        return Internal("The buffers do not hold what the tasks make of them.");
      }
      return static_cast<double>(elapsed.count()) / 1e3 / static_cast<double>(workload.tasks.size());
    };
  };
  HPVMD_ASSIGN_OR_RETURN(
      Measurement measurement,
      MeasureInterleaved(Better::kLower,
                         {{"ours", round_of(ours)}, {"tbb", round_of(*tbb)}, {"starpu", round_of(*starpu)}}, rounds));
  measurement.verified = true;  // Each round checked its data.
  return measurement;
}

}  // namespace hpvm::bench
