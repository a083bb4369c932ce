// SPDX-License-Identifier: Apache-2.0
#include "graph/flatten.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

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

// Prints one line per launch: "path port<value >value ...", then the outputs.
std::string Text(const Graph& graph, const FlatGraph& flat) {
  std::string text;
  for (const FlatNode& node : flat.nodes) {
    text += PathOf(graph, node) + ":";
    const std::vector<hpvm::graph::Port>& ports = graph.node(node.leaf).ports;
    for (size_t p = 0; p < ports.size(); ++p) {
      const FlatPort& port = flat.ports[node.first_port + p];
      text += " " + ports[p].name + (port.in.valid() ? "<" + std::to_string(port.in.index) : "") +
              (port.out.valid() ? ">" + std::to_string(port.out.index) : "");
    }
    text += "\n";
  }
  for (size_t p = 0; p < flat.outputs.size(); ++p) {
    if (flat.outputs[p].valid()) {
      text += graph.nodes[0].ports[p].name + " = " + std::to_string(flat.outputs[p].index) + "\n";
    }
  }
  return text;
}

std::string Flat(const std::string& document, int64_t symbol = 4) {
  const Graph graph = Parsed(document);
  const StatusOr<FlatGraph> flat = Flatten(graph, SymbolValues(graph.symbols.size(), symbol));
  return flat.ok() ? Text(graph, *flat) : Message(flat.status());
}

// A value created once is read twice; the input is value 0.
TEST(FlattenTest, Diamond) {
  EXPECT_EQ(Flat(Document({"a"}, {"b"},
                          {Leaf("l", {In(), Out()}), Leaf("r", {In(), Out()}), Leaf("j", {In("p"), In("q"), Out()})},
                          {JsonEdge("a", "l.x"), JsonEdge("a", "r.x"), JsonEdge("l.y", "j.p"), JsonEdge("r.y", "j.q"),
                           JsonEdge("j.y", "b")})),
            "l: x<0 y>1\nr: x<0 y>2\nj: p<1 q<2 y>3\nb = 3\n");
}

// An inout port uses one value and creates the next; other readers of the old value keep it.
TEST(FlattenTest, InOutChain) {
  EXPECT_EQ(Flat(Document({"a"}, {"b", "c"}, {Leaf("f", {InOut()}), Leaf("g", {InOut()}), Leaf("h", {InOut()})},
                          {JsonEdge("a", "f.v"), JsonEdge("f.v", "g.v"), JsonEdge("f.v", "h.v"), JsonEdge("g.v", "b"),
                           JsonEdge("h.v", "c")})),
            "f: v<0>1\ng: v<1>2\nh: v<1>3\nb = 2\nc = 3\n");
}

// Binds through two levels vanish, including inputs bound directly to outputs.
TEST(FlattenTest, NestedBinds) {
  const std::string inner =
      Internal("inner", {In(), Out()}, {Leaf("k", {In(), Out()})}, {JsonEdge("x", "k.x"), JsonEdge("k.y", "y")});
  const std::string outer = Internal("outer", {In(), Out(), Out("same")}, {inner},
                                     {JsonEdge("x", "inner.x"), JsonEdge("inner.y", "y"), JsonEdge("x", "same")});
  EXPECT_EQ(Flat(Document({"a"}, {"b", "c"}, {outer, Leaf("z", {In(), Out()})},
                          {JsonEdge("a", "outer.x"), JsonEdge("outer.y", "z.x"), JsonEdge("z.y", "b"),
                           JsonEdge("outer.same", "c")})),
            "outer/inner/k: x<0 y>1\nz: x<1 y>2\nb = 2\nc = 0\n");
}

// Replicas that share an out port write one buffer: each continues the previous replica's content.
TEST(FlattenTest, ReplicasShareAnOutPort) {
  const std::string tiles = Internal("tiles", {In(), Out()}, {Leaf("t", {In(), Out()})},
                                     {JsonEdge("x", "t.x"), JsonEdge("t.y", "y")}, R"(, "instances": [3])");
  EXPECT_EQ(Flat(Document({"a"}, {"b"}, {tiles}, {JsonEdge("a", "tiles.x"), JsonEdge("tiles.y", "b")})),
            "tiles[0]/t: x<0 y>1\ntiles[1]/t: x<0 y<1>2\ntiles[2]/t: x<0 y<2>3\nb = 3\n");
}

// Nested replicas also share the buffer; the number counts over both levels.
TEST(FlattenTest, NestedReplicasShareAnOutPort) {
  const std::string inner = Internal("i", {Out()}, {Leaf("k", {Out()}), Leaf("own", {Out()})}, {JsonEdge("k.y", "y")},
                                     R"(, "instances": [2])");
  const std::string outer = Internal("o", {Out()}, {inner}, {JsonEdge("i.y", "y")}, R"(, "instances": [2])");
  EXPECT_EQ(Flat(Document({}, {"b"}, {outer}, {JsonEdge("o.y", "b")}, R"(, "symbols": ["n"])")),
            "o/i[0]/k: y>0\no/i[0]/own: y>1\no/i[1]/k: y<0>2\no/i[1]/own: y>3\n"
            "o/i[2]/k: y<2>4\no/i[2]/own: y>5\no/i[3]/k: y<4>6\no/i[3]/own: y>7\nb = 6\n");
}

// Replicas of an inout port update it in turn, x fastest; the index is available to scalars and extents inside.
TEST(FlattenTest, ReplicasInTwoDimensions) {
  const std::string sweep =
      Internal("s", {InOut()},
               {Leaf("k", {InOut()},
                     R"(, "instances": ["i + 10*j"], "scalars": [{"name": "c", "type": "i32", "value": "i - j"}])")},
               {JsonEdge("v", "k.v"), JsonEdge("k.v", "v")}, R"(, "instances": [2, 3], "index": ["i", "j"])");
  const Graph graph = Parsed(Document({"a"}, {"b"}, {sweep}, {JsonEdge("a", "s.v"), JsonEdge("s.v", "b")}));
  const StatusOr<FlatGraph> flat = Flatten(graph, SymbolValues(graph.symbols.size(), 4));
  ASSERT_TRUE(flat.ok()) << Message(flat.status());
  std::vector<uint64_t> extents, scalars;
  for (const FlatNode& node : flat->nodes) {
    extents.push_back(node.extent[0]);
    scalars.push_back(flat->scalars[node.first_scalar].bits);
    EXPECT_EQ(node.extent[1], 1u);
  }
  EXPECT_THAT(extents, ElementsAre(0, 1, 10, 11, 20, 21));
  EXPECT_THAT(scalars, ElementsAre(0, 1, 0xffffffffu, 0, 0xfffffffeu, 0xffffffffu));
  EXPECT_THAT(Text(graph, *flat), HasSubstr("s[5]/k: v<5>6\nb = 6\n"));
}

// Scalars by type: exact integers, floats by bit pattern, inputs by index.
TEST(FlattenTest, Scalars) {
  const Graph graph = Parsed(
      R"({"hpvm": 1, "inputs": {"a": {"type": "f32", "shape": ["n"]}, "s": {"type": "f64", "shape": []}},
      "outputs": {},
      "modules": {"k": {"kind": "wasm", "source": {"file": "k.wasm"}}}, "nodes": {"f": {"ports": [],
      "variants": [{"module": "k", "entry": "f"}],
      "scalars": [{"name": "p", "type": "i32", "value": -1}, {"name": "q", "type": "i64",
      "value": "n*n - 17"}, {"name": "r", "type": "f32", "value": 0.1},
                  {"name": "t", "type": "f64", "value": "n/8"}, {"name": "u", "type": "f64",
      "value": {"input": "s"}}]}}, "edges": []})");
  const StatusOr<FlatGraph> flat = Flatten(graph, {4});
  ASSERT_TRUE(flat.ok()) << Message(flat.status());
  ASSERT_EQ(flat->scalars.size(), 5u);
  EXPECT_EQ(flat->scalars[0].bits, 0xffffffffu);
  EXPECT_EQ(flat->scalars[1].bits, static_cast<uint64_t>(-1));
  EXPECT_EQ(flat->scalars[2].bits, std::bit_cast<uint32_t>(0.1f));
  EXPECT_EQ(flat->scalars[3].bits, std::bit_cast<uint64_t>(0.5));  // Reals divide as reals.
  EXPECT_EQ(flat->scalars[3].input, -1);
  EXPECT_EQ(flat->scalars[4].input, 1);
}

// Values have their size, shape and producer.
TEST(FlattenTest, Values) {
  const Graph graph = Parsed(
      R"({"hpvm": 1, "inputs": {"a": {"type": "u8", "shape": ["n", 3]}}, "outputs": {"b": {"type": "f64",
      "shape": ["n+1"]}},
      "modules": {"k": {"kind": "wasm", "source": {"file": "k.wasm"}}},
      "nodes": {"f": {"ports": [{"name": "x", "access": "in", "type": "u8", "shape": ["n", 3]},
      {"name": "y", "access": "out", "type": "f64", "shape": ["1+n"]}], "instances": ["n", 2], "group": [2, 1],
      "variants": [{"module": "k", "entry": "f"}]}}, "edges": [{"from": "a", "to": "f.x"}, {"from": "f.y",
      "to": "b"}]})");
  const StatusOr<FlatGraph> flat = Flatten(graph, {10});
  ASSERT_TRUE(flat.ok()) << Message(flat.status());
  ASSERT_EQ(flat->values.size(), 2u);
  EXPECT_THAT(flat->values[0].shape, ElementsAre(10, 3));
  EXPECT_EQ(flat->values[0].bytes, 30u);
  EXPECT_FALSE(flat->values[0].producer.valid());
  EXPECT_EQ(flat->values[0].input, 0u);
  EXPECT_EQ(flat->values[1].bytes, 88u);
  EXPECT_EQ(flat->values[1].producer, FlatNodeId(uint32_t{0}));
  EXPECT_EQ(flat->values[1].producer_port, 1u);
  EXPECT_THAT(flat->nodes[0].extent, ElementsAre(10, 2, 1));
  EXPECT_THAT(flat->nodes[0].group, ElementsAre(2, 1, 0));
}

// An extent from a port has its limit until the node starts; one_to_one edges between leaves are marked.
TEST(FlattenTest, ExtentsFromPortsAndOneToOneEdges) {
  const std::string count = R"({"name": "c", "access": "in", "type": "u32", "shape": []})";
  const Graph graph =
      Parsed(Document({"a"}, {"b"},
                      {Leaf("f", {InOut()}, R"(, "instances": ["n"])"), Leaf("g", {InOut()}, R"(, "instances": ["n"])"),
                       Leaf("m", {JsonPort("y", "out", "[]", "u32")}),
                       Leaf("h", {InOut(), count}, R"(, "instances": [2, {"port": "c", "max": "n"}])")},
                      {JsonEdge("a", "f.v"), JsonEdge("f.v", "g.v", R"(, "kind": "one_to_one")"),
                       JsonEdge("g.v", "h.v"), JsonEdge("m.y", "h.c"), JsonEdge("h.v", "b")}));
  EXPECT_TRUE(Parsed(Print(graph)) == graph);
  const StatusOr<FlatGraph> flat = Flatten(graph, {5});
  ASSERT_TRUE(flat.ok()) << Message(flat.status());
  const auto node = [&](const std::string& name) -> const FlatNode& {
    return *std::find_if(flat->nodes.begin(), flat->nodes.end(),
                         [&](const FlatNode& n) { return graph.node(n.leaf).name == name; });
  };
  EXPECT_THAT(node("h").extent, ElementsAre(2, 5, 1));
  EXPECT_THAT(node("h").extent_port, ElementsAre(-1, 1, -1));
  EXPECT_THAT(node("f").extent_port, ElementsAre(-1, -1, -1));
  EXPECT_TRUE(flat->ports[node("g").first_port].is_one_to_one);
  EXPECT_FALSE(flat->ports[node("f").first_port].is_one_to_one);
  EXPECT_FALSE(flat->ports[node("h").first_port].is_one_to_one);
}

// Faults that only values reveal name the place and both sides.
TEST(FlattenTest, RefusesWhatDoesNotFit) {
  struct Case {
    const char* name;
    std::string document;
    int64_t symbol;
    const char* want;
  };
  const auto one = [](const std::string& port, const std::string& more = "") {
    return Document({"a"}, {}, {Leaf("f", {port}, more)}, {JsonEdge("a", "f.x")});
  };
  const std::string pair_edges = R"(, "kind": "one_to_one")";
  const Case cases[] = {
      {"shape", one(JsonPort("x", "in", "[\"n*n\"]")), 4,
       "/nodes/f/ports/0: Port \"x\" has shape [16]; the data of its edge has [4]."},
      {"negative", Document({}, {}, {Leaf("f", {JsonPort("y", "out", "[\"n-9\"]")})}, {}, R"(, "symbols": ["n"])"), 4,
       "/nodes/f/ports/0: Extent \"n-9\" is -5; it cannot be negative."},
      {"overflow", Document({}, {}, {Leaf("f", {JsonPort("y", "out", "[\"n*n*n\"]")})}, {}, R"(, "symbols": ["n"])"),
       INT64_MAX / 2, "/nodes/f/ports/0: Expression \"n*n*n\" overflows 64 bits."},
      {"bytes", Document({}, {}, {Leaf("f", {JsonPort("y", "out", "[\"n\", \"n\"]")})}, {}, R"(, "symbols": ["n"])"),
       int64_t{1} << 32, "/nodes/f/ports/0: Shape [4294967296, 4294967296] of f32 needs more than 2^63 - 1 bytes."},
      {"instances", one(In(), R"(, "instances": ["n-5"])"), 4,
       "/nodes/f/instances/0: Extent \"n-5\" is -1; at least 0 is needed."},
      {"group", one(In(), R"(, "instances": ["n"], "group": ["n-4"])"), 4,
       "/nodes/f/group/0: Extent \"n-4\" is 0; at least 1 is needed."},
      {"total", one(In(), R"(, "instances": ["n*1000000", "n*1000000", "n*1000000"])"), 4000,
       "/nodes/f/instances: The node has more than 2^63 - 1 instances."},
      {"replicas",
       Document({}, {}, {Internal("r", {}, {Leaf("f", {})}, {}, R"(, "instances": ["n-4"])")}, {},
                R"(, "symbols": ["n"])"),
       4, "/nodes/r/instances/0: Extent \"n-4\" is 0; at least 1 is needed."},
      {"output",
       Document({"a"}, {"b"}, {Leaf("f", {In(), JsonPort("y", "out", "[\"n*n\"]")})},
                {JsonEdge("a", "f.x"), JsonEdge("f.y", "b")}),
       4, "/outputs/b: Port \"b\" has shape [4]; the data of its edge has [16]."},
      {"inner",
       Document({"a"}, {}, {Internal("r", {JsonPort("x", "in", "[\"n*n\"]")}, {Leaf("f", {})}, {})},
                {JsonEdge("a", "r.x")}),
       4, "/nodes/r/ports/0: Port \"x\" has shape [16]; the data of its edge has [4]."},
      {"one to one",
       Document({"a"}, {},
                {Leaf("f", {InOut()}, R"(, "instances": ["n"])"), Leaf("g", {InOut()}, R"(, "instances": ["n*n"])")},
                {JsonEdge("a", "f.v"), JsonEdge("f.v", "g.v", pair_edges)}),
       4,
       "/edges/1/kind: Kind \"one_to_one\" needs equal instance counts; node \"f\" has 4 in dimension 0, node "
       "\"g\" 16."},
      {"scalar", one(In(), R"(, "scalars": [{"name": "s", "type": "i32", "value": "n*1073741824"}])"), 4,
       "/nodes/f/scalars/0: Value \"n*1073741824\" is 4294967296, outside 32 bits."},
      {"real", one(In(), R"x(, "scalars": [{"name": "s", "type": "f32", "value": "1/(n-4)"}])x"), 4,
       "/nodes/f/scalars/0: Expression \"1/(n-4)\" divides by zero."},
      {"large real", one(In(), R"(, "scalars": [{"name": "s", "type": "f32", "value": "n*1e38"}])"), 4,
       "/nodes/f/scalars/0: Value \"n*1e38\" is 4e+38, too large for type \"f32\"."},
  };
  for (const Case& test : cases) {
    EXPECT_EQ(Flat(test.document, test.symbol), test.want) << test.name;
  }
}

// A document of a few hundred bytes may describe 10^12 nodes; they are counted before they are built.
TEST(FlattenTest, BoundsExpansion) {
  std::string node = Leaf("k", {});
  for (int i = 0; i < 6; ++i) {
    node = Internal("r", {}, {node}, {}, R"(, "instances": [1000])");
  }
  const Graph graph = Parsed(Document({}, {}, {node}, {}));
  const StatusOr<FlatGraph> flat = Flatten(graph, {}, 5000);
  ASSERT_FALSE(flat.ok());
  EXPECT_EQ(flat.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(flat.status()), HasSubstr("more than 5000 nodes"));
  // Exactly the limit: two replicas, each a node of its own, and a leaf in each.
  const Graph small = Parsed(Document({}, {}, {Internal("r", {}, {Leaf("k", {})}, {}, R"(, "instances": [2])")}, {}));
  EXPECT_TRUE(Flatten(small, {}, 4).ok());
  EXPECT_FALSE(Flatten(small, {}, 3).ok());
}

// One replicated node expands to almost a million launches, the limit for a plan.
TEST(FlattenTest, ExpandsManyReplicas) {
  const std::string tiles = Internal("t", {InOut()}, {Leaf("k", {InOut()})},
                                     {JsonEdge("v", "k.v"), JsonEdge("k.v", "v")}, R"(, "instances": [900000])");
  const Graph graph = Parsed(Document({"a"}, {"b"}, {tiles}, {JsonEdge("a", "t.v"), JsonEdge("t.v", "b")}));
  const StatusOr<FlatGraph> flat = Flatten(graph, {4});
  ASSERT_TRUE(flat.ok()) << Message(flat.status());
  ASSERT_EQ(flat->nodes.size(), 900'000u);
  EXPECT_EQ(flat->outputs[1].index, 900'000u);
  EXPECT_EQ(PathOf(graph, flat->nodes[899'999]), "t[899999]/k");
}

struct SolveCase {
  const char* name;
  std::map<std::string, std::vector<uint64_t>> shapes;
  std::map<std::string, int64_t> given;
  const char* want;  // "m=.. n=.. q=.." or the fault.
};

// Lone symbols take their value from bound inputs; everything else is checked against it.
TEST(SolveSymbolsTest, SolvesAndChecks) {
  const Graph graph = Parsed(
      R"({"hpvm": 1, "symbols": ["q"], "inputs": {"a": {"type": "f32", "shape": ["m", "n"]},
      "b": {"type": "f32", "shape": ["n", "m*n", 4]}},
      "outputs": {}, "modules": {"k": {"kind": "wasm", "source": {"file": "k.wasm"}}},
      "nodes": {"f": {"ports": [], "instances": ["q"], "variants": [{"module": "k", "entry": "f"}]}},
      "edges": []})");
  ASSERT_THAT(graph.symbols, ElementsAre("q", "m", "n"));
  const SolveCase cases[] = {
      {"all", {{"a", {2, 3}}, {"b", {3, 6, 4}}}, {{"q", -5}}, "-5 2 3 "},
      {"given agrees", {{"a", {2, 3}}, {"b", {3, 6, 4}}}, {{"q", 1}, {"m", 2}}, "1 2 3 "},
      {"given instead of bound", {}, {{"q", 1}, {"m", 2}, {"n", 9}}, "1 2 9 "},
      {"two inputs differ",
       {{"a", {2, 3}}, {"b", {5, 6, 4}}},
       {{"q", 1}},
       "Input \"b\" dimension 0 (5) must equal symbol \"n\" = 3 (input \"a\" dimension 1)."},
      {"given differs",
       {{"a", {2, 3}}},
       {{"q", 1}, {"m", 7}},
       "Input \"a\" dimension 0 (2) must equal symbol \"m\" = 7 (the value given)."},
      {"expression", {{"a", {2, 3}}, {"b", {3, 7, 4}}}, {{"q", 1}}, "Input \"b\" dimension 1 (7) must be \"m*n\" = 6."},
      {"constant", {{"a", {2, 3}}, {"b", {3, 6, 5}}}, {{"q", 1}}, "Input \"b\" dimension 2 (5) must be \"4\" = 4."},
      {"rank", {{"a", {2}}}, {{"q", 1}}, "Input \"a\" has rank 1; the graph needs 2."},
      {"unsolved",
       {{"b", {3, 6, 4}}},
       {{"q", 1}},
       "Symbol \"m\" has no value: no bound input has it as a dimension, and no value is given."},
      {"not given",
       {{"a", {2, 3}}},
       {},
       "Symbol \"q\" has no value: no bound input has it as a dimension, and no value is given."},
      {"unknown input", {{"c", {2, 3}}}, {{"q", 1}}, "Graph has no input \"c\"."},
      {"unknown symbol", {}, {{"z", 1}}, "Graph has no symbol \"z\" whose value can be given."},
      {"too large",
       {{"a", {uint64_t{1} << 63, 3}}},
       {{"q", 1}},
       "Input \"a\" dimension 0 (9223372036854775808) is more than 2^63 - 1."},
  };
  for (const SolveCase& test : cases) {
    const StatusOr<SymbolValues> values = SolveSymbols(graph, test.shapes, test.given);
    std::string got = Message(values.status());
    for (const int64_t value : values.ok() ? *values : SymbolValues()) {
      got += std::to_string(value) + " ";
    }
    EXPECT_EQ(got, test.want) << test.name;
  }
}

// Replica indices are neither solved nor given.
TEST(SolveSymbolsTest, LeavesIndicesAlone) {
  const Graph graph = Parsed(Document(
      {"a"}, {},
      {Internal("r", {}, {Leaf("k", {}, R"(, "instances": ["i"])")}, {}, R"(, "instances": [2], "index": ["i"])")},
      {}));
  EXPECT_TRUE(SolveSymbols(graph, {{"a", {2}}}, {}).ok());
  EXPECT_EQ(Message(SolveSymbols(graph, {{"a", {2}}}, {{"i", 1}}).status()),
            "Graph has no symbol \"i\" whose value can be given.");
}

}  // namespace
}  // namespace hpvm::graph
