// SPDX-License-Identifier: Apache-2.0
#include <tbb/flow_graph.h>

#include <deque>

#include "bench/graph_peers.h"

namespace hpvm::bench {
namespace {

using TaskNode = tbb::flow::continue_node<tbb::flow::continue_msg>;

class TbbPeer final : public GraphPeer {
 public:
  explicit TbbPeer(const Workload& workload) : workload_(workload), buffers_(workload.buffers), start_(graph_) {
    const std::vector<std::vector<uint32_t>> predecessors = Predecessors(workload);
    for (uint32_t i = 0; i < workload.tasks.size(); ++i) {
      const Task task = workload.tasks[i];
      nodes_.emplace_back(graph_, [this, task](const tbb::flow::continue_msg&) {
        if (task.other == kNoBuffer) {
          Step(buffers_[task.buffer]);
        } else {
          Mix(buffers_[task.other], buffers_[task.buffer]);
        }
      });
      for (uint32_t earlier : predecessors[i]) {
        tbb::flow::make_edge(nodes_[earlier], nodes_[i]);
      }
      if (predecessors[i].empty()) {
        tbb::flow::make_edge(start_, nodes_[i]);
      }
    }
  }

  StatusOr<Duration> Run() override {
    buffers_ = workload_.buffers;
    const Time start = RealClock().Now();
    start_.try_put(tbb::flow::continue_msg());
    graph_.wait_for_all();
    return RealClock().Now() - start;
  }
  const std::vector<Elements>& buffers() const override { return buffers_; }

 private:
  const Workload& workload_;  // Borrowed.
  std::vector<Elements> buffers_;
  tbb::flow::graph graph_;
  tbb::flow::broadcast_node<tbb::flow::continue_msg> start_;
  std::deque<TaskNode> nodes_;
};

}  // namespace

std::unique_ptr<GraphPeer> MakeTbbPeer(const Workload& workload) { return std::make_unique<TbbPeer>(workload); }

}  // namespace hpvm::bench
