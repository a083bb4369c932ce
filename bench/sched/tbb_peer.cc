// SPDX-License-Identifier: Apache-2.0
#include <tbb/flow_graph.h>
#include <tbb/task_arena.h>

#include <deque>
#include <optional>

#include "bench/sched/graph_peers.h"

namespace hpvm::bench {
namespace {

using TaskNode = tbb::flow::continue_node<tbb::flow::continue_msg>;

class TbbPeer final : public GraphPeer {
 public:
  TbbPeer(const Workload& workload, uint32_t workers)
      : workload_(workload),
        buffers_(workload.buffers),
        arena_(workers == 0 ? tbb::task_arena::automatic : static_cast<int>(workers)) {
    arena_.execute([&] { Build(); });
  }

  StatusOr<Duration> Run() override {
    buffers_ = workload_.buffers;
    const Time start = RealClock().Now();
    arena_.execute([&] {
      start_->try_put(tbb::flow::continue_msg());
      graph_->wait_for_all();
    });
    return RealClock().Now() - start;
  }
  const std::vector<Elements>& buffers() const override { return buffers_; }

 private:
  // Runs in the arena, because a graph's tasks run in the one that it was made in.
  void Build() {
    graph_.emplace();
    start_.emplace(*graph_);
    const Workload& workload = workload_;
    const std::vector<std::vector<uint32_t>> predecessors = Predecessors(workload);
    for (uint32_t i = 0; i < workload.tasks.size(); ++i) {
      const Task task = workload.tasks[i];
      nodes_.emplace_back(*graph_,
                          [this, task](const tbb::flow::continue_msg&) { RunTask(workload_, task, buffers_); });
      for (uint32_t earlier : predecessors[i]) {
        tbb::flow::make_edge(nodes_[earlier], nodes_[i]);
      }
      if (predecessors[i].empty()) {
        tbb::flow::make_edge(*start_, nodes_[i]);
      }
    }
  }

  const Workload& workload_;  // Borrowed.
  std::vector<Elements> buffers_;
  tbb::task_arena arena_;
  std::optional<tbb::flow::graph> graph_;
  std::optional<tbb::flow::broadcast_node<tbb::flow::continue_msg>> start_;
  std::deque<TaskNode> nodes_;
};

}  // namespace

std::unique_ptr<GraphPeer> MakeTbbPeer(const Workload& workload, uint32_t workers) {
  return std::make_unique<TbbPeer>(workload, workers);
}

}  // namespace hpvm::bench
