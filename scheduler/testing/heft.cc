// SPDX-License-Identifier: Apache-2.0
#include "scheduler/testing/heft.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hpvm::scheduler {

std::vector<double> HeftRanks(const PeerProblem& problem) {
  const PeerTable table(problem);
  std::vector<double> ranks(problem.tasks);
  for (uint32_t task = problem.tasks; task-- > 0;) {
    for (const uint32_t e : table.edges_from(task)) {
      ranks[task] = std::max(ranks[task], table.MeanComm(problem.edges[e]) + ranks[problem.edges[e].to]);
    }
    ranks[task] += table.MeanTime(task);
  }
  return ranks;
}

PeerSchedule Heft(const PeerProblem& problem) {
  const std::vector<double> ranks = HeftRanks(problem);
  std::vector<uint32_t> order(problem.tasks);
  std::iota(order.begin(), order.end(), 0u);
  // Rounding keeps sums of fractions equal that are equal on paper.
  const auto rounded = [&](uint32_t task) { return std::round(ranks[task] * 1e6); };
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return rounded(a) > rounded(b); });
  PeerTable table(problem);
  for (const uint32_t task : order) {
    uint32_t best = 0;
    double finish = PeerProblem::kCannot;
    for (uint32_t processor = 0; processor < problem.processors; ++processor) {
      const double end = table.Finish(task, processor);
      if (end < finish) {
        best = processor;
        finish = end;
      }
    }
    table.Place(task, best, table.Start(task, best));
  }
  return table.Take();
}

}  // namespace hpvm::scheduler
