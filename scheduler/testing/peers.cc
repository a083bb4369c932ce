// SPDX-License-Identifier: Apache-2.0
#include "scheduler/testing/peers.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace hpvm::scheduler {

PeerTable::PeerTable(const PeerProblem& problem)
    : p_(problem), to_(problem.tasks), from_(problem.tasks), busy_(problem.processors) {
  for (uint32_t e = 0; e < p_.edges.size(); ++e) {
    to_[p_.edges[e].to].push_back(e);
    from_[p_.edges[e].from].push_back(e);
  }
  schedule_.processor.resize(p_.tasks);
  schedule_.start.resize(p_.tasks);
  schedule_.end.resize(p_.tasks);
  const double pairs = p_.processors > 1 ? static_cast<double>(p_.processors) * (p_.processors - 1) : 1;
  for (uint32_t a = 0; a < p_.processors; ++a) {
    for (uint32_t b = 0; b < p_.processors; ++b) {
      if (a != b) {
        mean_latency_ += p_.latency[size_t{a} * p_.processors + b] / pairs;
        mean_per_unit_ += p_.per_unit[size_t{a} * p_.processors + b] / pairs;
      }
    }
  }
}

double PeerTable::Ready(uint32_t task, uint32_t processor) const {
  double ready = p_.arrival.empty() ? 0 : p_.arrival[size_t{task} * p_.processors + processor];
  for (const uint32_t e : to_[task]) {
    const uint32_t from = p_.edges[e].from;
    ready = std::max(ready, schedule_.end[from] + p_.comm(p_.edges[e], schedule_.processor[from], processor));
  }
  return ready;
}

double PeerTable::Start(uint32_t task, uint32_t processor) const {
  const double length = p_.time(task, processor);
  double start = Ready(task, processor);
  for (const Busy& busy : busy_[processor]) {
    if (start + length <= busy.start) {
      break;
    }
    start = std::max(start, busy.end);
  }
  return start;
}

void PeerTable::Place(uint32_t task, uint32_t processor, double start) {
  const Busy busy{start, start + p_.time(task, processor)};
  std::vector<Busy>& list = busy_[processor];
  list.insert(std::upper_bound(list.begin(), list.end(), busy,
                               [](const Busy& a, const Busy& b) { return a.start < b.start; }),
              busy);
  schedule_.order.push_back(task);
  schedule_.processor[task] = processor;
  schedule_.start[task] = busy.start;
  schedule_.end[task] = busy.end;
  schedule_.makespan = std::max(schedule_.makespan, busy.end);
}

double PeerTable::MeanTime(uint32_t task) const {
  double sum = 0, count = 0;
  for (uint32_t processor = 0; processor < p_.processors; ++processor) {
    const double time = p_.time(task, processor);
    sum += time == PeerProblem::kCannot ? 0 : time;
    count += time == PeerProblem::kCannot ? 0 : 1;
  }
  return sum / count;
}

double PeerTable::MeanComm(const PeerProblem::Edge& edge) const {
  return edge.data == 0 ? 0 : mean_latency_ + edge.data * mean_per_unit_;
}

PeerSchedule Greedy(const PeerProblem& problem) {
  PeerTable table(problem);
  for (uint32_t task = 0; task < problem.tasks; ++task) {
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

PeerSchedule DmdaRule(const PeerProblem& problem) {
  PeerTable table(problem);
  std::vector<uint32_t> waits(problem.tasks);
  // The end of a task, or the start for a task that is ready from the beginning.
  using Event = std::pair<double, uint32_t>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> ends;
  const auto push = [&](uint32_t task, double now) {
    uint32_t best = 0;
    double finish = PeerProblem::kCannot, start = 0;
    for (uint32_t processor = 0; processor < problem.processors; ++processor) {
      const double at = std::max({now, table.Ready(task, processor), table.free_after(processor)});
      if (at + problem.time(task, processor) < finish) {
        best = processor;
        start = at;
        finish = at + problem.time(task, processor);
      }
    }
    table.Place(task, best, start);
    ends.emplace(finish, task);
  };
  for (const PeerProblem::Edge& edge : problem.edges) {
    ++waits[edge.to];
  }
  for (uint32_t task = 0; task < problem.tasks; ++task) {
    if (table.edges_to(task).empty()) {
      push(task, 0);
    }
  }
  while (!ends.empty()) {
    const auto [now, task] = ends.top();
    ends.pop();
    for (const uint32_t e : table.edges_from(task)) {
      if (--waits[problem.edges[e].to] == 0) {
        push(problem.edges[e].to, now);
      }
    }
  }
  return table.Take();
}

}  // namespace hpvm::scheduler
