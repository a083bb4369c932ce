// SPDX-License-Identifier: Apache-2.0
#include "graph/parse.h"

#include <gtest/gtest.h>

namespace hpvm::graph {
namespace {

// One node between an input and an output.
TEST(ParseTest, ReadsTheSmallestGraph) {
  const ParseOutcome outcome = Parse(R"({"hpvm": 1, "inputs": {"a": {"type": "f32", "shape": ["n"]}},
    "outputs": {"b": {"type": "f32", "shape": ["n"]}},
    "modules": {"k": {"kind": "wasm", "source": {"file": "k.wasm"}}},
    "nodes": {"copy": {"ports": [{"name": "x", "access": "in", "type": "f32", "shape": ["n"]},
                                 {"name": "y", "access": "out", "type": "f32", "shape": ["n"]}],
              "instances": ["n"], "variants": [{"module": "k", "entry": "copy"}]}},
    "edges": [{"from": "a", "to": "copy.x"}, {"from": "copy.y", "to": "b"}]})");
  ASSERT_TRUE(outcome.graph.has_value()) << ToString(outcome.diagnostics);
  EXPECT_EQ(ToString(outcome.diagnostics), "");
  const Graph& graph = *outcome.graph;
  ASSERT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(graph.node(graph.root()).edges.size(), 2u);
  const ParseOutcome again = Parse(Print(graph));
  ASSERT_TRUE(again.graph.has_value()) << ToString(again.diagnostics) << Print(graph);
  EXPECT_EQ(*again.graph, graph);
}

}  // namespace
}  // namespace hpvm::graph
