// SPDX-License-Identifier: Apache-2.0
// Method: each node becomes an arc from its entry to its exit with its cost as capacity; edges are endless.
// Augmenting paths are found breadth first. The cut consists of the nodes whose exit can still reach the sink and
// whose entry cannot.
// Invariants: arcs lie in pairs (arc ^ 1 is the reverse), and the sum of a pair's room is constant. Flow is
// conserved after each path. Without a path the flow is a maximum, and its value is the cut's cost.
// Each path adds at least 1, so there are at most as many paths as the cut costs; a path takes time linear in the
// graph.
// Source: Edmonds and Karp, JACM 19, 1972 (see min_cut.h).
#include "compiler/pass/gang/min_cut.h"

#include <algorithm>
#include <limits>

namespace hpvm::pass {
namespace {

// Node v becomes 2v, where edges enter, and 2v + 1, where they leave; an arc with the node's cost connects both.
class Flow {
 public:
  explicit Flow(const CutGraph& graph)
      : first_(2 * graph.costs.size() + 2), source_(2 * graph.costs.size()), sink_(2 * graph.costs.size() + 1) {
    for (uint32_t v = 0; v < graph.costs.size(); ++v) {
      Connect(2 * v, 2 * v + 1, graph.costs[v]);
    }
    for (const auto& [from, to] : graph.edges) {
      Connect(2 * from + 1, 2 * to, kEndless);
    }
    for (uint32_t v : graph.sources) {
      Connect(source_, 2 * v, kEndless);
    }
    for (uint32_t v : graph.sinks) {
      Connect(2 * v + 1, sink_, kEndless);
    }
  }

  void Fill() {
    while (const uint64_t room = FindPath()) {
      for (size_t node = sink_; node != source_; node = arcs_[came_by_[node] ^ 1].to) {
        arcs_[came_by_[node]].room -= room;
        arcs_[came_by_[node] ^ 1].room += room;
      }
    }
  }

  // Returns, by node, true if more could still flow from it to the sink.
  std::vector<bool> ReachSink() const {
    std::vector<bool> reaches(first_.size(), false);
    std::vector<size_t> work{sink_};
    reaches[sink_] = true;
    while (!work.empty()) {
      const size_t node = work.back();
      work.pop_back();
      for (size_t arc : first_[node]) {
        const size_t other = arcs_[arc].to;
        if (arcs_[arc ^ 1].room > 0 && !reaches[other]) {
          reaches[other] = true;
          work.push_back(other);
        }
      }
    }
    return reaches;
  }

 private:
  static constexpr uint64_t kEndless = uint64_t{1} << 60;
  struct Arc {
    size_t to;
    uint64_t room;
  };

  void Connect(size_t from, size_t to, uint64_t room) {
    first_[from].push_back(arcs_.size());
    arcs_.push_back({to, room});
    first_[to].push_back(arcs_.size());  // The reverse arc: arc ^ 1.
    arcs_.push_back({from, 0});
  }

  // Searches breadth first; returns the capacity of the path found, 0 when there is none.
  uint64_t FindPath() {
    constexpr size_t kNone = std::numeric_limits<size_t>::max();
    came_by_.assign(first_.size(), kNone);
    std::vector<size_t> queue{source_};
    for (size_t i = 0; i < queue.size() && came_by_[sink_] == kNone; ++i) {
      for (size_t arc : first_[queue[i]]) {
        const size_t to = arcs_[arc].to;
        if (arcs_[arc].room > 0 && to != source_ && came_by_[to] == kNone) {
          came_by_[to] = arc;
          queue.push_back(to);
        }
      }
    }
    if (came_by_[sink_] == kNone) {
      return 0;
    }
    uint64_t room = kEndless;
    for (size_t node = sink_; node != source_; node = arcs_[came_by_[node] ^ 1].to) {
      room = std::min(room, arcs_[came_by_[node]].room);
    }
    return room;
  }

  std::vector<std::vector<size_t>> first_;  // Indexed by node: its arcs.
  const size_t source_, sink_;
  std::vector<Arc> arcs_;
  std::vector<size_t> came_by_;  // Indexed by node: the arc that found it.
};

}  // namespace

std::vector<bool> MinCut(const CutGraph& graph) {
  Flow flow(graph);
  flow.Fill();
  const std::vector<bool> reaches = flow.ReachSink();
  std::vector<bool> is_cut(graph.costs.size());
  for (size_t v = 0; v < is_cut.size(); ++v) {
    is_cut[v] = !reaches[2 * v] && reaches[2 * v + 1];
  }
  return is_cut;
}

}  // namespace hpvm::pass
