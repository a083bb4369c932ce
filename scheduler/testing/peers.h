// SPDX-License-Identifier: Apache-2.0
// What published list schedulers start from: tasks on processors with a table of times, and edges whose communication
// nobody else disturbs. Their schedules are plans in that model only.
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
  std::vector<double> times;    // By task and processor; kCannot: not there.
  std::vector<Edge> edges;
  // By pair of processors: a transfer takes latency + data * per_unit; none between a processor and itself.
  std::vector<double> latency, per_unit;
  std::vector<double> arrival;  // By task and processor: when what was given from outside can be there; empty: at once.

  double time(uint32_t task, uint32_t processor) const { return times[size_t{task} * processors + processor]; }
  double comm(const Edge& edge, uint32_t from, uint32_t to) const {
    const size_t pair = size_t{from} * processors + to;
    return from == to || edge.data == 0 ? 0 : latency[pair] + edge.data * per_unit[pair];
  }
};

struct PeerSchedule {
  std::vector<uint32_t> order;      // In which tasks were placed.
  std::vector<uint32_t> processor;  // By task.
  std::vector<double> start, end;
  double makespan = 0;
};

// The state that list schedulers share: what is placed, and where there is room. Earliest finish times with insertion.
class PeerTable {
 public:
  explicit PeerTable(const PeerProblem& problem);
  const PeerProblem& problem() const { return p_; }
  const std::vector<uint32_t>& edges_to(uint32_t task) const { return to_[task]; }    // In PeerProblem::edges.
  const std::vector<uint32_t>& edges_from(uint32_t task) const { return from_[task]; }
  // The data is there; all predecessors are placed.
  double Ready(uint32_t task, uint32_t processor) const;
  double Start(uint32_t task, uint32_t processor) const;  // With insertion.
  double Finish(uint32_t task, uint32_t processor) const { return Start(task, processor) + p_.time(task, processor); }
  double free_after(uint32_t processor) const { return busy_[processor].empty() ? 0 : busy_[processor].back().end; }
  void Place(uint32_t task, uint32_t processor, double start);
  PeerSchedule Take() { return std::move(schedule_); }

  // Of the processors that can run the task.
  double MeanTime(uint32_t task) const;
  double MeanComm(const PeerProblem::Edge& edge) const;

 private:
  struct Busy {
    double start, end;
  };
  const PeerProblem& p_;
  std::vector<std::vector<uint32_t>> to_, from_;
  std::vector<std::vector<Busy>> busy_;  // By processor, by time.
  PeerSchedule schedule_;
  double mean_latency_ = 0, mean_per_unit_ = 0;
};

// Each task in the graph's order where it finishes first.
PeerSchedule Greedy(const PeerProblem& problem);

// The rule of StarPU's `dmda` (deque model, data aware): a task, the moment it is ready, goes to the end of the queue
// of the worker on which its expected end is least, counting what is queued there, the data's transfers and its own
// time.
PeerSchedule DmdaRule(const PeerProblem& problem);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_PEERS_H_
