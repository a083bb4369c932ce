// SPDX-License-Identifier: Apache-2.0
// Input of published list schedulers: tasks on processors with a table of times, and edges whose communication is never
// delayed by other traffic. Their schedules are plans in that model only.
#ifndef HPVMD_SCHEDULER_TESTING_PEERS_H_
#define HPVMD_SCHEDULER_TESTING_PEERS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace hpvm::scheduler {

struct PeerProblem {
  static constexpr double kCannot = std::numeric_limits<double>::infinity();
  struct Edge {
    uint32_t from = 0, to = 0;  // from < to.
    double data = 0;
  };
  uint32_t tasks = 0, processors = 0;
  // Indexed by task and processor; kCannot when the processor cannot run the task.
  std::vector<double> times;
  std::vector<Edge> edges;
  // Indexed by pair of processors: a transfer takes latency + data * per_unit; none between a processor and itself.
  std::vector<double> latency, per_unit;
  // Indexed by task and processor: earliest arrival of inputs from outside; empty: at once.
  std::vector<double> arrival;

  double time(uint32_t task, uint32_t processor) const { return times[size_t{task} * processors + processor]; }
  double comm(const Edge& edge, uint32_t from, uint32_t to) const {
    const size_t pair = size_t{from} * processors + to;
    return from == to || edge.data == 0 ? 0 : latency[pair] + edge.data * per_unit[pair];
  }
};

struct PeerSchedule {
  std::vector<uint32_t> order;      // The order in which tasks were placed.
  std::vector<uint32_t> processor;  // Indexed by task.
  std::vector<double> start, end;
  double makespan = 0;
};

// State shared by list schedulers: placed tasks and gaps. Computes earliest finish times with insertion.
class PeerTable {
 public:
  explicit PeerTable(const PeerProblem& problem);
  const PeerProblem& problem() const { return p_; }
  // Indices in PeerProblem::edges.
  const std::vector<uint32_t>& edges_to(uint32_t task) const { return to_[task]; }
  const std::vector<uint32_t>& edges_from(uint32_t task) const { return from_[task]; }
  // Time at which the data is available; all predecessors must be placed.
  double Ready(uint32_t task, uint32_t processor) const;
  double Start(uint32_t task, uint32_t processor) const;  // With insertion.
  double Finish(uint32_t task, uint32_t processor) const { return Start(task, processor) + p_.time(task, processor); }
  double free_after(uint32_t processor) const { return busy_[processor].empty() ? 0 : busy_[processor].back().end; }
  void Place(uint32_t task, uint32_t processor, double start);
  PeerSchedule Take() { return std::move(schedule_); }

  // Mean over the processors that can run the task.
  double MeanTime(uint32_t task) const;
  double MeanComm(const PeerProblem::Edge& edge) const;

 private:
  struct Busy {
    double start, end;
  };
  const PeerProblem& p_;
  std::vector<std::vector<uint32_t>> to_, from_;
  std::vector<std::vector<Busy>> busy_;  // Indexed by processor, sorted by time.
  PeerSchedule schedule_;
  double mean_latency_ = 0, mean_per_unit_ = 0;
};

// Places each task, in the graph's order, where it finishes first.
PeerSchedule Greedy(const PeerProblem& problem);

// The rule of StarPU's `dmda` (deque model, data aware): as soon as a task is ready, it goes to the end of the queue of
// the worker with the earliest expected end, counting the queued work, the data transfers and the task's own time.
PeerSchedule DmdaRule(const PeerProblem& problem);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_PEERS_H_
