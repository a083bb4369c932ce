// SPDX-License-Identifier: Apache-2.0
#include "scheduler/testing/peft.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace hpvm::scheduler {

std::vector<double> OptimisticCostTable(const PeerProblem& problem) {
  const PeerTable table(problem);
  const uint32_t processors = problem.processors;
  std::vector<double> costs(size_t{problem.tasks} * processors);
  for (uint32_t task = problem.tasks; task-- > 0;) {
    for (const uint32_t e : table.edges_from(task)) {
      const PeerProblem::Edge& edge = problem.edges[e];
      const double comm = table.MeanComm(edge);
      for (uint32_t own = 0; own < processors; ++own) {
        double best = PeerProblem::kCannot;
        for (uint32_t next = 0; next < processors; ++next) {
          // Processors between which nothing has to be moved are equivalent.
          const bool is_near = next == own || problem.comm(edge, own, next) == 0;
          best = std::min(best, costs[size_t{edge.to} * processors + next] + problem.time(edge.to, next) +
                                    (is_near ? 0 : comm));
        }
        costs[size_t{task} * processors + own] = std::max(costs[size_t{task} * processors + own], best);
      }
    }
  }
  return costs;
}

PeerSchedule Peft(const PeerProblem& problem) {
  const std::vector<double> costs = OptimisticCostTable(problem);
  const uint32_t processors = problem.processors;
  PeerTable table(problem);
  std::vector<uint32_t> waits(problem.tasks);
  std::priority_queue<std::pair<double, uint32_t>> ready;  // Among equal ranks the earlier task comes first: ~index.
  const auto push = [&](uint32_t task) {
    double rank = 0;
    for (uint32_t processor = 0; processor < processors; ++processor) {
      rank += costs[size_t{task} * processors + processor] / processors;
    }
    ready.emplace(rank, ~task);
  };
  for (const PeerProblem::Edge& edge : problem.edges) {
    ++waits[edge.to];
  }
  for (uint32_t task = 0; task < problem.tasks; ++task) {
    if (waits[task] == 0) {
      push(task);
    }
  }
  while (!ready.empty()) {
    const uint32_t task = ~ready.top().second;
    ready.pop();
    uint32_t best = 0;
    double least = PeerProblem::kCannot;
    for (uint32_t processor = 0; processor < processors; ++processor) {
      const double key = table.Finish(task, processor) + costs[size_t{task} * processors + processor];
      if (key < least) {
        best = processor;
        least = key;
      }
    }
    table.Place(task, best, table.Start(task, best));
    for (const uint32_t e : table.edges_from(task)) {
      if (--waits[problem.edges[e].to] == 0) {
        push(problem.edges[e].to);
      }
    }
  }
  return table.Take();
}

}  // namespace hpvm::scheduler
