// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/gang/min_cut.h"

#include <gtest/gtest.h>

#include <random>

namespace hpvm::pass {
namespace {

bool Separates(const CutGraph& graph, const std::vector<bool>& is_cut) {
  std::vector<bool> reached(graph.costs.size(), false);
  std::vector<uint32_t> work;
  auto reach = [&](uint32_t v) {
    if (!is_cut[v] && !reached[v]) {
      reached[v] = true;
      work.push_back(v);
    }
  };
  for (uint32_t v : graph.sources) {
    reach(v);
  }
  while (!work.empty()) {
    const uint32_t at = work.back();
    work.pop_back();
    for (const auto& [from, to] : graph.edges) {
      if (from == at) {
        reach(to);
      }
    }
  }
  for (uint32_t v : graph.sinks) {
    if (reached[v]) {
      return false;
    }
  }
  return true;
}

uint64_t Cost(const CutGraph& graph, const std::vector<bool>& is_cut) {
  uint64_t cost = 0;
  for (size_t v = 0; v < is_cut.size(); ++v) {
    cost += is_cut[v] ? graph.costs[v] : 0;
  }
  return cost;
}

// In a chain the cheapest node is cut, the last one of several; where two chains meet, the common node if it is
// cheaper.
TEST(MinCutTest, SmallGraphs) {
  struct Case {
    const char* name;
    CutGraph graph;
    std::vector<bool> want;
  };
  const Case kCases[] = {
      {"Nothing", {}, {}},
      {"Alone", {{8}, {}, {0}, {0}}, {true}},
      {"NoSink", {{8, 4}, {{0, 1}}, {0}, {}}, {false, false}},
      {"NoSource", {{8, 4}, {{0, 1}}, {}, {1}}, {false, false}},
      {"Cheapest", {{8, 4, 8}, {{0, 1}, {1, 2}}, {0}, {2}}, {false, true, false}},
      {"LastOfEqual", {{4, 4, 4}, {{0, 1}, {1, 2}}, {0}, {2}}, {false, false, true}},
      {"Meet", {{4, 4, 4}, {{0, 2}, {1, 2}}, {0, 1}, {2}}, {false, false, true}},
      {"MeetTooDear", {{4, 4, 16}, {{0, 2}, {1, 2}}, {0, 1}, {2}}, {true, true, false}},
      {"Fan", {{4, 4, 4}, {{0, 1}, {0, 2}}, {0}, {1, 2}}, {true, false, false}},
      {"Free", {{4, 0, 4}, {{0, 1}, {1, 2}}, {0}, {2}}, {false, true, false}},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(MinCut(c.graph), c.want);
  }
}

// No other set of nodes separates random small graphs at a lower cost.
TEST(MinCutTest, AgainstAllSets) {
  std::mt19937 random(7);
  auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(round);
    CutGraph graph;
    const uint32_t nodes = 1 + below(9);
    for (uint32_t v = 0; v < nodes; ++v) {
      graph.costs.push_back(4 * (1 + below(2)));
      if (below(3) == 0) {
        graph.sources.push_back(v);
      }
      if (below(3) == 0) {
        graph.sinks.push_back(v);
      }
    }
    for (uint32_t i = below(3 * nodes); i-- > 0;) {
      graph.edges.push_back({below(nodes), below(nodes)});  // Includes cycles.
    }
    const std::vector<bool> found = MinCut(graph);
    EXPECT_TRUE(Separates(graph, found));
    uint64_t best = ~uint64_t{0};
    for (uint32_t set = 0; set < 1u << nodes; ++set) {
      std::vector<bool> is_cut(nodes);
      for (uint32_t v = 0; v < nodes; ++v) {
        is_cut[v] = (set >> v & 1) != 0;
      }
      if (Cost(graph, is_cut) < best && Separates(graph, is_cut)) {
        best = Cost(graph, is_cut);
      }
    }
    EXPECT_EQ(Cost(graph, found), best);
  }
}

}  // namespace
}  // namespace hpvm::pass
