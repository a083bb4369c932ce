// SPDX-License-Identifier: Apache-2.0
// Tests Parse, Validate, Print and ToDot. schemas/examples holds one document for each kind of fault; these tests
// need many or large documents.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "graph/expr.h"
#include "graph/flatten.h"
#include "graph/interner.h"
#include "graph/parse.h"
#include "graph/testing/document.h"

namespace hpvm::graph {
namespace {

using namespace ::hpvm::graph::testing;  // NOLINT: the fragments read as a small language.
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string InOut() { return JsonPort("v", "inout", "[\"n\"]"); }
std::string In(const std::string& name = "x") { return JsonPort(name, "in", "[\"n\"]"); }
std::string Out(const std::string& name = "y") { return JsonPort(name, "out", "[\"n\"]"); }

Graph Parsed(const std::string& document) {
  ParseOutcome outcome = Parse(document);
  EXPECT_TRUE(outcome.graph.has_value()) << ToString(outcome.diagnostics) << "\n" << document;
  return outcome.graph.value_or(Graph());
}

std::string Errors(const std::string& document, const Limits& limits = {}) {
  const ParseOutcome outcome = Parse(document, limits);
  EXPECT_EQ(outcome.graph.has_value(), !HasErrors(outcome.diagnostics));
  return ToString(outcome.diagnostics);
}

// Returns a chain of `count` nodes that update one buffer.
std::string Chain(uint32_t count) {
  std::vector<std::string> nodes, edges = {JsonEdge("a", "n0.v")};
  for (uint32_t i = 0; i < count; ++i) {
    nodes.push_back(Leaf("n" + std::to_string(i), {InOut()}));
    edges.push_back(
        JsonEdge("n" + std::to_string(i) + ".v", i + 1 < count ? "n" + std::to_string(i + 1) + ".v" : "b"));
  }
  return Document({"a"}, {"b"}, nodes, edges);
}

// Every member of a document is stored in the graph.
TEST(ParseTest, ReadsEveryMember) {
  const Graph graph = Parsed(R"({"$schema": "s", "hpvm": 1, "name": "g", "description": "d", "symbols": ["q"],
    "inputs": {"a": {"type": "u8", "shape": ["n", 4]}, "s": {"type": "u32", "shape": []}},
      "outputs": {"b": {"type": "u8", "shape": ["n", 4]}},
    "modules": {"k": {"kind": "opencl", "source": {"file": "k.cl"}, "options": "-w"}, "v": {"kind": "spirv",
      "source": {"file": "v.spv"}}, "i": {"kind": "wasm",
      "source": {"inline": "AGFz"}}},
    "nodes": {"f": {"ports": [{"name": "x", "access": "in", "type": "u8", "shape": ["n", 4]}, {"name": "y",
      "access": "out", "type": "u8", "shape": ["n", 4]}],
      "scalars": [{"name": "c", "type": "f32", "value": 2}, {"name": "d", "type": "i64", "value": "n*q"},
      {"name": "e", "type": "i32", "value": {"input": "s"}}],
      "params": ["c", "y", "x", "e", "d"], "instances": ["n", 4], "group": [8, 1],
      "variants": [{"module": "k", "entry": "f", "devices": ["gpu"]}, {"module": "i", "entry": "g",
      "abi": "hpvm-web"}, {"module": "v", "entry": "h", "constants": {"7": 2.5, "0": -1, "4294967295": true}}],
      "devices": ["gpu", "cpu:0"], "hints": ["gpu:1"], "math": "fast"}},
    "edges": [{"from": "a", "to": "f.x", "stream": true, "capacity": 7}, {"from": "f.y", "to": "b",
      "kind": "all_to_all"}]})");
  ASSERT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(graph.name, "g");
  EXPECT_EQ(graph.description, "d");
  EXPECT_THAT(graph.symbols, ElementsAre("q", "n"));
  EXPECT_EQ(graph.declared_symbols, 1u);
  EXPECT_TRUE(graph.streaming);
  ASSERT_EQ(graph.modules.size(), 3u);
  EXPECT_EQ(graph.modules[0].kind, ModuleKind::kOpenCl);
  EXPECT_EQ(graph.modules[0].build_options, "-w");
  EXPECT_THAT(graph.modules[2].bytes, ElementsAre(0, 'a', 's'));
  const Node& root = graph.nodes[0];
  ASSERT_EQ(root.ports.size(), 3u);
  EXPECT_EQ(root.ports[1].name, "s");
  EXPECT_EQ(root.ports[2].access, Access::kOut);
  EXPECT_EQ(root.edges[0].capacity, 7u);
  EXPECT_FALSE(root.edges[0].source.node.valid());
  EXPECT_EQ(root.edges[1].target.port, 2u);
  const Node& node = graph.nodes[1];
  EXPECT_EQ(node.pointer, "/nodes/f");
  EXPECT_THAT(node.params, ElementsAre(2, 1, 0, 4, 3));
  EXPECT_EQ(std::get<double>(node.scalars[0].value), 2.0);
  EXPECT_EQ(std::get<Expr>(node.scalars[1].value).text, "n*q");
  EXPECT_EQ(std::get<Scalar::InputRef>(node.scalars[2].value).input, "s");
  EXPECT_EQ(node.variants[1].module, ModuleId(uint32_t{2}));
  EXPECT_TRUE(node.variants[1].hpvm_web);
  EXPECT_THAT(node.variants[0].devices, ElementsAre("gpu"));
  const std::vector<Constant> constants = {{7, 2.5}, {0, int64_t{-1}}, {4294967295u, int64_t{1}}};
  EXPECT_EQ(node.variants[2].constants, constants);
  EXPECT_TRUE(Parsed(Print(graph)) == graph);
  EXPECT_THAT(node.devices, ElementsAre("gpu", "cpu:0"));
  EXPECT_THAT(node.hints, ElementsAre("gpu:1"));
  EXPECT_TRUE(node.fast_math);
  EXPECT_EQ(node.group.size(), 2u);
}

// A document in reverse order is sorted, and its nodes and replica indices are numbered as in its printed form.
TEST(ParseTest, SortsChildrenAndPrintsTheSameGraph) {
  const auto replicated = [](const std::string& name, const std::string& index) {
    return Internal(
        name, {InOut()},
        {Leaf("k", {InOut()}, R"(, "scalars": [{"name": "i", "type": "i32", "value": ")" + index + "\"}]")},
        {JsonEdge("v", "k.v"), JsonEdge("k.v", "v")}, R"(, "instances": [2], "index": [")" + index + "\"]");
  };
  const Graph graph =
      Parsed(Document({"a"}, {"b"}, {replicated("late", "p"), Leaf("free", {Out()}), replicated("early", "q")},
                      {JsonEdge("early.v", "late.v"), JsonEdge("a", "early.v"), JsonEdge("late.v", "b")}));
  std::vector<std::string> names;
  for (const NodeId child : graph.nodes[0].children) {
    names.push_back(graph.node(child).name);
  }
  EXPECT_THAT(names, ElementsAre("free", "early", "late"));
  EXPECT_THAT(graph.symbols, ElementsAre("n", "q", "p"));
  EXPECT_EQ(graph.node(graph.nodes[0].children[2]).parent, graph.root());
  EXPECT_TRUE(Parsed(Print(graph)) == graph);
}

// The text form omits defaults and prints small items on one line.
TEST(PrintTest, IsCanonical) {
  const Graph graph = Parsed(Document(
      {"a"}, {"b"}, {Leaf("f", {In(), Out()}, R"(, "instances": ["n", 0], "math": "exact", "params": ["x", "y"])")},
      {JsonEdge("a", "f.x", R"(, "kind": "all_to_all", "stream": false)"), JsonEdge("f.y", "b")}));
  EXPECT_EQ(Print(graph), R"({
  "hpvm": 1,
  "inputs": {
    "a": {"type": "f32", "shape": ["n"]}
  },
  "outputs": {
    "b": {"type": "f32", "shape": ["n"]}
  },
  "modules": {
    "k": {"kind": "wasm", "source": {"file": "k.wasm"}}
  },
  "nodes": {
    "f": {
      "ports": [
        {"name": "x", "access": "in", "type": "f32", "shape": ["n"]},
        {"name": "y", "access": "out", "type": "f32", "shape": ["n"]}
      ],
      "instances": ["n", 0],
      "variants": [
        {"module": "k", "entry": "f"}
      ]
    }
  },
  "edges": [
    {"from": "a", "to": "f.x"},
    {"from": "f.y", "to": "b"}
  ]
}
)");
}

// Each internal node is a cluster, its ports are small boxes, and quotes are escaped.
TEST(DotTest, DrawsClustersAndEdges) {
  const Graph graph = Parsed(Document(
      {"a"}, {"b"},
      {Internal("outer", {InOut()}, {Leaf("k", {InOut()})},
                {JsonEdge("v", "k.v"), JsonEdge("k.v", "v", R"(, "stream": true)")}, R"(, "instances": ["n"])")},
      {JsonEdge("a", "outer.v"), JsonEdge("outer.v", "b")}, R"(, "name": "my \"graph\"")"));
  EXPECT_EQ(ToDot(graph), R"(digraph "my \"graph\"" {
  rankdir=LR;
  node [shape=box, fontname="sans-serif"];
  n0_p0 [shape=ellipse, label="a f32 [n]"];
  n0_p1 [shape=ellipse, label="b f32 [n]"];
  subgraph cluster_n1 {
    label="outer x [n]";
    n1_p0 [shape=plain, label="v f32 [n]"];
    n2 [label="k"];
    n1_p0 -> n2 [label="v"];
    n2 -> n1_p0 [label="v", style=dashed];
  }
  n0_p0 -> n1_p0 [label="a"];
  n1_p0 -> n0_p1 [label="v"];
}
)");
}

// Every cycle is reported once, along its edges, from its first node in the document; nodes that only follow a cycle
// are not part of it.
TEST(ValidateTest, NamesEachCycle) {
  const std::string document =
      Document({}, {},
               {Leaf("p", {In(), Out()}), Leaf("q", {In(), Out()}), Leaf("r", {In(), Out()}),
                Leaf("s", {In(), Out()}), Leaf("t", {In(), Out()})},
               {JsonEdge("p.y", "r.x"), JsonEdge("r.y", "q.x"), JsonEdge("q.y", "p.x"), JsonEdge("s.y", "s.x"),
                JsonEdge("r.y", "t.x")},
               R"(, "symbols": ["n"])");
  EXPECT_EQ(Errors(document),
            "/edges: Nodes form a cycle: \"p\" -> \"r\" -> \"q\" -> \"p\".\n"
            "/edges: Node \"s\" reads its own output.");
}

// Reports of long cycles are shortened.
TEST(ValidateTest, ShortensLongCycles) {
  std::vector<std::string> nodes, edges;
  for (int i = 0; i < 40; ++i) {
    nodes.push_back(Leaf("n" + std::to_string(i), {In(), Out()}));
    edges.push_back(JsonEdge("n" + std::to_string(i) + ".y", "n" + std::to_string((i + 1) % 40) + ".x"));
  }
  EXPECT_THAT(Errors(Document({}, {}, nodes, edges, R"(, "symbols": ["n"])")),
              HasSubstr("\"n15\" -> ... (40 nodes) -> \"n0\"."));
}

// Nodes whose results are unused are allowed, with a warning.
TEST(ValidateTest, WarnsOfUnreachableNodes) {
  const ParseOutcome outcome = Parse(Document(
      {"a"}, {"b"}, {Leaf("f", {In(), Out()}), Leaf("lost", {In(), Out()}), Leaf("before", {In(), Out()})},
      {JsonEdge("a", "f.x"), JsonEdge("f.y", "b"), JsonEdge("a", "before.x"), JsonEdge("before.y", "lost.x")}));
  EXPECT_TRUE(outcome.graph.has_value());
  EXPECT_EQ(ToString(outcome.diagnostics),
            "/nodes/lost: warning: Nothing that node \"lost\" writes reaches an output.\n"
            "/nodes/before: warning: Nothing that node \"before\" writes reaches an output.");
}

// Nodes with many ports resolve names by table, with the same results as the linear search.
TEST(ParseTest, FindsPortsOfWideNodes) {
  std::vector<std::string> ports, inputs, edges;
  for (int i = 0; i < 100; ++i) {
    ports.push_back(In("x" + std::to_string(i)));
    inputs.push_back("a" + std::to_string(i));
    edges.push_back(JsonEdge("a" + std::to_string(i), "f.x" + std::to_string(99 - i)));
  }
  ports.push_back(Out("a7"));
  edges.push_back(JsonEdge("f.a7", "a7"));
  const Graph graph = Parsed(Document(inputs, {"a7"}, {Leaf("f", ports)}, edges));
  ASSERT_EQ(graph.nodes[0].edges.size(), 101u);
  EXPECT_EQ(graph.nodes[0].edges[3].source.port, 3u);
  EXPECT_EQ(graph.nodes[0].edges[3].target.port, 96u);
  EXPECT_EQ(graph.nodes[0].edges[100].target.port, 100u);  // The output "a7", not the input.
  edges[5] = JsonEdge("a5", "f.x200");
  EXPECT_THAT(Errors(Document(inputs, {"a7"}, {Leaf("f", ports)}, edges)),
              HasSubstr("/edges/5/to: Node \"f\" has no port \"x200\""));
}

struct LimitCase {
  const char* name;
  std::function<std::string(uint32_t)> document;  // Returns a document whose measure is the number.
  std::function<void(Limits&, uint32_t)> set;
  uint32_t limit;
  const char* fault;
};

// Each limit accepts its value and refuses one more.
TEST(LimitsTest, HoldAtTheirValue) {
  const auto nested = [](uint32_t depth) {
    std::string node = Leaf("k", {});
    for (uint32_t i = 1; i < depth; ++i) {
      node = Internal("k", {}, {node}, {});
    }
    return Document({}, {}, {node}, {});
  };
  const auto named = [](uint32_t bytes) {
    return Document({}, {}, {Leaf("k", {})}, {}, R"(, "name": ")" + std::string(bytes, 'x') + "\"");
  };
  const LimitCase cases[] = {
      {"nodes", [](uint32_t n) { return Chain(n); }, [](Limits& l, uint32_t n) { l.nodes_max = n; }, 20,
       "/nodes: The document has at least 21 nodes; the limit is 20."},
      {"edges", [](uint32_t n) { return Chain(n - 1); }, [](Limits& l, uint32_t n) { l.edges_max = n; }, 20,
       "/edges: The document has at least 21 edges; the limit is 20."},
      {"depth", nested, [](Limits& l, uint32_t n) { l.depth_max = n; }, 5,
       "/nodes/k/nodes/k/nodes/k/nodes/k/nodes/k/nodes: Nodes are nested 6 deep; the limit is 5."},
      {"string", named, [](Limits& l, uint32_t n) { l.string_bytes_max = n; }, 100,
       "/name: The string has 101 bytes; the limit is 100."},
      {"document", [&](uint32_t n) { return named(n - static_cast<uint32_t>(named(0).size())); },
       [](Limits& l, uint32_t n) { l.document_bytes_max = n; }, 1000,
       "The document has 1001 bytes; the limit is 1000."},
  };
  for (const LimitCase& test : cases) {
    SCOPED_TRACE(test.name);
    Limits limits;
    test.set(limits, test.limit);
    EXPECT_TRUE(Parse(test.document(test.limit), limits).graph.has_value())
        << Errors(test.document(test.limit), limits);
    EXPECT_THAT(Errors(test.document(test.limit + 1), limits), HasSubstr(test.fault));
  }
}

// The number of listed diagnostics is limited; the rest is counted.
TEST(LimitsTest, DiagnosticsAreCapped) {
  std::vector<std::string> edges;
  for (int i = 0; i < 7; ++i) {
    edges.push_back(JsonEdge("nowhere", "to.nothing"));
  }
  Limits limits;
  limits.diagnostics_max = 3;
  const ParseOutcome outcome = Parse(Document({}, {}, {Leaf("k", {})}, edges), limits);
  ASSERT_EQ(outcome.diagnostics.size(), 4u);
  EXPECT_EQ(outcome.diagnostics[3].message, "... and 11 more errors.");
}

// A million nested levels end the reading early, without recursion.
TEST(LimitsTest, DepthBombsEndEarly) {
  EXPECT_THAT(Errors(std::string(1'000'000, '[')), HasSubstr("nested deeper than 74 levels"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) {
    objects += R"({"nodes":)";
  }
  EXPECT_THAT(Errors(objects), HasSubstr("nested deeper than 74 levels"));
}

// Messages contain neither a tenant's control characters nor malformed text.
TEST(ParseTest, MessagesAreCleanText) {
  const std::string errors = Errors("{\"hpvm\": 1, \"a\\u0007\\u001b[31m\": 2, \"b\\\"c\": 3}");
  EXPECT_THAT(errors, HasSubstr(R"(unknown member "a\x07\x1b[31m")"));
  EXPECT_THAT(errors, HasSubstr(R"(unknown member "b\"c")"));
  for (const char c : Errors("{\"hpvm\": \"\xff\xfe\x01")) {
    EXPECT_TRUE(c >= 0x20 && c < 0x7f);
  }
}

// The reader would stop at a zero byte and ignore what follows it.
TEST(ParseTest, ZeroBytesAreNoEnd) {
  const std::string document = R"({"hpvm": 1})";
  for (const std::string& text : {document + std::string(1, '\0'), document + std::string(1, '\0') + "{}"}) {
    EXPECT_THAT(Errors(text), HasSubstr("zero byte"));
  }
}

// The number of steps per node does not grow with the document, for shapes that could make a rule quadratic.
TEST(LinearTimeTest, StepsPerNodeDoNotGrow) {
  const auto wide = [](uint32_t count) {  // One node feeds all others; all into one internal node with many ports.
    std::vector<std::string> nodes = {Leaf("source", {Out()})}, edges, ports, inner;
    for (uint32_t i = 0; i < count; ++i) {
      const std::string name = "n" + std::to_string(i);
      nodes.push_back(Leaf(name, {In(), Out()}));
      edges.push_back(JsonEdge("source.y", name + ".x"));
      if (i < 60'000) {
        ports.push_back(In(name));
        edges.push_back(JsonEdge(name + ".y", "sink." + name));
      }
    }
    nodes.push_back(Internal("sink", ports, {Leaf("k", {})}, {}));
    return Document({"a"}, {}, nodes, edges);
  };
  const auto reversed = [](uint32_t count) {
    std::vector<std::string> nodes,
        edges = {JsonEdge("a", "n0.v"), JsonEdge("n" + std::to_string(count - 1) + ".v", "b")};
    for (uint32_t i = count; i-- > 0;) {
      nodes.push_back(Leaf("n" + std::to_string(i), {InOut()}));
      if (i > 0) {
        edges.push_back(JsonEdge("n" + std::to_string(i - 1) + ".v", "n" + std::to_string(i) + ".v"));
      }
    }
    return Document({"a"}, {"b"}, nodes, edges);
  };
  const std::pair<const char*, std::function<std::string(uint32_t)>> shapes[] = {
      {"chain", Chain}, {"wide", wide}, {"reversed", reversed}};
  for (const auto& [name, make] : shapes) {
    SCOPED_TRACE(name);
    double first = 0;
    for (const uint32_t count : {1'000u, 10'000u, 100'000u}) {
      const ParseOutcome outcome = Parse(make(count));
      ASSERT_TRUE(outcome.graph.has_value()) << ToString(outcome.diagnostics).substr(0, 1000);
      const double steps = static_cast<double>(outcome.work) / count;
      first = first == 0 ? steps : first;
      EXPECT_LT(steps, 1.3 * first) << count;
      EXPECT_GT(steps, 10) << "The count leaves something out.";
    }
  }
}

// Interned strings are numbered in order of appearance, and found again after growth.
TEST(InternerTest, KeepsNumbersWhenItGrows) {
  Interner interner;
  for (uint32_t i = 0; i < 20'000; ++i) {
    ASSERT_EQ(interner.Intern("name" + std::to_string(i)), i);
  }
  for (uint32_t i = 0; i < 20'000; ++i) {
    ASSERT_EQ(interner.Find("name" + std::to_string(i)), i);
    ASSERT_EQ(interner.Text(i), "name" + std::to_string(i));
  }
  EXPECT_EQ(interner.Find("name"), std::nullopt);
  EXPECT_EQ(interner.Find(""), std::nullopt);
  EXPECT_LT(interner.probes(), 200'000u);
}

}  // namespace
}  // namespace hpvm::graph
