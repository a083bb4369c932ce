// SPDX-License-Identifier: Apache-2.0
#include "graph/long_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/parse.h"
#include "graph/short_argument.h"

namespace hpvm::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Document(const std::string& nodes, const std::string& outputs = R"("y": "f")",
                     const std::string& more = R"("module": "k.wasm")",
                     const std::string& inputs = R"("x": "f32[n]")") {
  return R"({"hpvm": 2, )" + more + R"(, "inputs": {)" + inputs + R"(}, "nodes": {)" + nodes + R"(}, "outputs": {)" +
         outputs + "}}";
}

std::string LongOf(const std::string& document) {
  const ParseOutcome outcome = Parse(document);
  EXPECT_THAT(outcome.diagnostics, IsEmpty()) << outcome.diagnostics[0].place << ": " << outcome.diagnostics[0].message;
  return outcome.graph.has_value() ? Print(*outcome.graph) : "";
}

// Returns the first diagnostic as "place: message".
std::string FaultOf(const std::string& document) {
  const ParseOutcome outcome = Parse(document);
  EXPECT_FALSE(outcome.graph.has_value());
  return outcome.diagnostics.empty() ? "" : outcome.diagnostics[0].place + ": " + outcome.diagnostics[0].message;
}

TEST(ShortFormTest, SaysTheSameAsTheLongForm) {
  const std::string shorter = R"({
    "hpvm": 2, "name": "edges", "module": "kernels/edges.wasm",
    "inputs": {"image": "u8[h, w]", "threshold": "f32"},
    "nodes": {
      "smooth":       ["image", "out f32[h, w]", "w", "h"],
      "gradient":     ["smooth", "out f32[h, w]", "w", "h"],
      "max_gradient": {"args": ["gradient", "out largest f32[1]", "w"], "instances": ["h"]},
      "reject":       {"args": ["smooth", "max_gradient.largest", "out u8[h, w]", "w", "threshold", "f32 2 * 0.5"],
                       "entry": "reject_weak", "math": "fast"}
    },
    "outputs": {"edges": "reject"}})";
  const std::string longer = R"({
    "hpvm": 1, "name": "edges",
    "inputs": {"image": {"type": "u8", "shape": ["h", "w"]}, "threshold": {"type": "f32", "shape": []}},
    "outputs": {"edges": {"type": "u8", "shape": ["h", "w"]}},
    "modules": {"edges": {"kind": "wasm", "source": {"file": "kernels/edges.wasm"}}},
    "nodes": {
      "smooth": {
        "ports": [{"name": "image", "access": "in", "type": "u8", "shape": ["h", "w"]},
                  {"name": "out", "access": "out", "type": "f32", "shape": ["h", "w"]}],
        "scalars": [{"name": "w", "type": "i32", "value": "w"}, {"name": "h", "type": "i32", "value": "h"}],
        "instances": ["w", "h"], "variants": [{"module": "edges", "entry": "smooth"}]},
      "gradient": {
        "ports": [{"name": "smooth", "access": "in", "type": "f32", "shape": ["h", "w"]},
                  {"name": "out", "access": "out", "type": "f32", "shape": ["h", "w"]}],
        "scalars": [{"name": "w", "type": "i32", "value": "w"}, {"name": "h", "type": "i32", "value": "h"}],
        "instances": ["w", "h"], "variants": [{"module": "edges", "entry": "gradient"}]},
      "max_gradient": {
        "ports": [{"name": "gradient", "access": "in", "type": "f32", "shape": ["h", "w"]},
                  {"name": "largest", "access": "out", "type": "f32", "shape": [1]}],
        "scalars": [{"name": "w", "type": "i32", "value": "w"}],
        "instances": ["h"], "variants": [{"module": "edges", "entry": "max_gradient"}]},
      "reject": {
        "ports": [{"name": "smooth", "access": "in", "type": "f32", "shape": ["h", "w"]},
                  {"name": "max_gradient", "access": "in", "type": "f32", "shape": [1]},
                  {"name": "out", "access": "out", "type": "u8", "shape": ["h", "w"]}],
        "scalars": [{"name": "w", "type": "i32", "value": "w"},
                    {"name": "threshold", "type": "f32", "value": {"input": "threshold"}},
                    {"name": "arg5", "type": "f32", "value": "2 * 0.5"}],
        "instances": ["w", "h"], "math": "fast", "variants": [{"module": "edges", "entry": "reject_weak"}]}
    },
    "edges": [{"from": "image", "to": "smooth.image"}, {"from": "smooth.out", "to": "gradient.smooth"},
              {"from": "gradient.out", "to": "max_gradient.gradient"}, {"from": "smooth.out", "to": "reject.smooth"},
              {"from": "max_gradient.largest", "to": "reject.max_gradient"}, {"from": "reject.out", "to": "edges"}]})";
  EXPECT_EQ(LongOf(shorter), LongOf(longer));
}

TEST(ShortFormTest, DataIsUpdatedInPlaceThroughChains) {
  const std::string text = LongOf(
      Document(R"("f": ["inout x", 3], "g": ["inout f", "in x", "out f32[n + 1]"], "h": ["inout g.f", "inout g.out"])",
               R"("a": "h.g", "b": "h.g_1", "c": "g.f")"));
  EXPECT_THAT(text, HasSubstr(R"("a": {"type": "f32", "shape": ["n"]})"));
  EXPECT_THAT(text, HasSubstr(R"("b": {"type": "f32", "shape": ["n + 1"]})"));
  EXPECT_THAT(text, HasSubstr(R"({"from": "g.out", "to": "h.g_1"})"));
}

TEST(ShortFormTest, OrdersOfArgumentsAreKept) {
  const std::string text = LongOf(Document(R"("f": [7, "x", "i64 n * 2", "out f32[n]", -0.5])"));
  EXPECT_THAT(text, HasSubstr(R"("params": ["arg0", "x", "arg2", "out", "arg4"])"));
  EXPECT_THAT(text, HasSubstr(R"({"name": "arg2", "type": "i64", "value": "n * 2"})"));
  EXPECT_THAT(text, HasSubstr(R"({"name": "arg4", "type": "f32", "value": -0.5})"));
}

TEST(ShortFormTest, FormsMayBeMixed) {
  const std::string long_node =
      R"("g": {"ports": [{"name": "a", "access": "in", "type": "f32", "shape": ["n"]},
                         {"name": "b", "access": "out", "type": "f32", "shape": ["n"]}],
               "instances": ["n"], "variants": [{"module": "k", "entry": "g"}]})";
  const std::string text = LongOf(R"({"hpvm": 2, "modules": {"k": "k.wasm", "c": "c.cl"}, "inputs": {"x": "f32[n]"},
      "nodes": {"f": {"args": ["x", "out f32[n]"], "module": "k"}, )" +
                                  long_node + R"(, "h": {"args": ["g", "out f32[n]"], "module": "c", "group": [1]}},
      "outputs": {"y": "h", "z": {"type": "f32", "shape": ["n"]}},
      "edges": [{"from": "f.out", "to": "g.a"}, {"from": "g.b", "to": "z"}]})");
  EXPECT_THAT(text, HasSubstr(R"("c": {"kind": "opencl", "source": {"file": "c.cl"}})"));
  EXPECT_THAT(text, HasSubstr(R"({"from": "g.b", "to": "h.g"})"));
  EXPECT_THAT(text, HasSubstr(R"({"from": "f.out", "to": "g.a"})"));
}

// Nodes inside an internal node can name each other and the internal node's ports, but no node outside of it.
TEST(ShortFormTest, InternalNodesAreScopes) {
  const std::string inner =
      R"("box": {"ports": [{"name": "a", "access": "in", "type": "f32", "shape": ["n"]},
                           {"name": "b", "access": "out", "type": "f32", "shape": ["n"]}],
                 "nodes": {"f": ["a", "out f32[n]"], "g": ["f", "out f32[n]", "i"]}, "instances": [2], "index": ["i"],
                 "edges": [{"from": "g.out", "to": "b", "kind": "one_to_one"}]})";
  const ParseOutcome outcome = Parse(Document(R"("f": ["x", "out f32[n]"], )" + inner, R"("y": "f", "z": "box.b")"));
  for (const Diagnostic& fault : outcome.diagnostics) {
    EXPECT_EQ(fault.message.find("called"), std::string::npos) << fault.place << ": " << fault.message;
  }
  EXPECT_THAT(FaultOf(Document(R"("f": ["x", "out f32[n]"], )" + inner, R"("y": "g")")),
              HasSubstr("/outputs/y: No input or node here is called \"g\""));
}

// Each fault names its place in the document that the user wrote.
TEST(ShortFormTest, SaysWhatIsWrong) {
  struct Case {
    std::string document, want;
  };
  const std::string f = R"("f": ["x", "out f32[n]"])";
  const Case cases[] = {
      {Document(R"("f": ["xs", "out f32[n]"])"),
       "/nodes/f/0: No input, node or symbol here is called \"xs\"; did you mean \"x\"?"},
      {Document(R"("f": {"args": ["in y", "out f32[n]"]})"), "/nodes/f/args/0: No input or node here is called \"y\""},
      {Document(f + R"(, "g": ["f.oui", "out f32[n]"])"),
       "/nodes/g/0: Node \"f\" writes no port \"oui\"; did you mean \"out\"?"},
      {Document(R"("f": ["x", "out a f32[n]", "out b f32[n]"])"),
       "/outputs/y: Node \"f\" writes 2 ports; name one of them, as \"f.a\"."},
      {Document(f + R"(, "g": {"args": ["f"], "instances": [1]}, "h": ["g", "out f32[n]"])"),
       "/nodes/h/0: Node \"g\" writes nothing that could be read."},
      {Document(f + R"(, "g": ["f"])"), "/nodes/g: Node \"g\" writes nothing, so the number of its instances"},
      {Document(R"("f": ["x", "out f32[a, b, c, d]"])"), "more than 3 dimensions"},
      {Document(R"("f": ["x", "out f32[n"])"), "/nodes/f/1: Argument \"out f32[n\" does not end with \"]\"."},
      {Document(R"("f": ["x", "out [n]"])"), "/nodes/f/1: Argument \"out [n]\" has no type"},
      {Document(R"("f": ["x", "out f32[n,]"])"), "has an empty extent"},
      {Document(R"("f": ["x", "out f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"])"),
       "/nodes/f/1: The shape has 17 extents; the limit is 16."},
      {Document(R"("f": ["x", ""])"), "/nodes/f/1: Argument \"\" is empty."},
      {Document(R"("f": ["x", {"a": 1}])"), "/nodes/f/1: Argument is an object"},
      {Document(R"("f": ["x", "in 3"])"), "names no source after \"in\""},
      {Document(R"("f": {"args": 3})"), "/nodes/f/args: Arguments are an integer; an array is expected."},
      {Document(R"("f": ["x", "out f33[n]"])"), "/nodes/f/1: Type \"f33\" is not known"},
      {Document(R"("f": ["x", "out f32[n]", "m"])"), "/nodes/f/2: No input, node or symbol here is called \"m\""},
      {Document(R"("f": ["x", "out f32[n]", "m * 2"])"), "/nodes/f/2: Symbol \"m\" has no value"},
      {Document(R"("f": ["x", "out f32[n]", "2 *"])"), "/nodes/f/2: Value \"2 *\""},
      {Document(R"("f": {"args": ["x", "out f32[n]"], "grup": [1]})"),
       "/nodes/f: Node has an unknown member \"grup\"; did you mean \"group\"?"},
      {Document(R"("x": ["x", "out f32[n]"])"), "/nodes/x: Node \"x\" has the name of an input"},
      {Document(R"("f": ["n", "out f32[k]"])", R"("y": "f")", R"("module": "k.wasm")",
                R"("n": "f32[k]", "m": "f32[n]")"),
       "/nodes/f/0: \"n\" is an input or a node, and a symbol too; write \"in n\" for the data"},
      {Document(f, R"("y": "f")", R"("modules": {"a": "a.wasm", "b": "b.wasm"})"),
       "/nodes/f: Node \"f\" names no module"},
      {Document(f, R"("y": "f")", R"("module": "k.so")"), "/module: Module \"k.so\" ends with none of"},
      {Document(f, R"("y": "f")", R"("module": "k.wasm", "modules": {})"), "/module: The document has \"module\" and"},
      {Document(R"("a": ["inout b"], "b": ["inout a"])", R"("y": "a")"), "This data has no source"},
      {Document(R"("a": ["inout a"])", R"("y": "a")"), "This data has no source"},
      {Document(f, R"("y": 3)"), "/outputs/y: Output is an integer"},
      {Document(f, R"("y": "f")", R"("module": "k.wasm")", R"("x": "f32[n", "z": 4)"), "/inputs/x: Input \"f32[n\""},
      {R"({"hpvm": 2, "inputs": {}, "nodes": {"f": ["out f32[1]"]}, "outputs": {"y": "f"}, "outputs": {"z": "f"}})",
       ": Name \"outputs\" occurs twice in this object; once is allowed."},
      {R"({"hpvm": 2})", ": The document has no \"inputs\"; it is required."},
      {R"({"hpvm": 3, "inputs": {}, "outputs": {}, "modules": {}, "nodes": {}, "edges": []})",
       "/hpvm: Version (3) is not known; this reader knows versions 1 and 2."},
      {R"({"hpvm": 2, "inputs": [], "outputs": 1, "modules": "x", "nodes": {"f": 1}, "edges": {}})", "Inputs"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(FaultOf(c.document), HasSubstr(c.want)) << c.document;
  }
}

// Faults that the Builder finds name the argument, too.
TEST(ShortFormTest, RulesNameTheArgument) {
  EXPECT_THAT(FaultOf(Document(R"x("f": ["x", "out f32[2 * (n]"])x")), HasSubstr("/nodes/f/1: "));
  const ParseOutcome outcome = Parse(Document(R"("f": ["g", "out f32[n]"], "g": ["f", "out f32[n]"])", R"("y": "g")"));
  ASSERT_FALSE(outcome.diagnostics.empty());
  EXPECT_EQ(outcome.diagnostics[0].place, "");  // A cycle consists of edges, which a short document does not list.
  EXPECT_THAT(outcome.diagnostics[0].message, HasSubstr("cycle"));
}

// The places that later stages report lie in the document, too.
TEST(ShortFormTest, VariantsAndModulesHavePointers) {
  const auto check = [](const std::string& document, const std::string& module, const std::string& variant) {
    const ParseOutcome outcome = Parse(document);
    ASSERT_TRUE(outcome.graph.has_value());
    EXPECT_EQ(outcome.graph->modules.at(0).pointer.text, module);
    EXPECT_EQ(outcome.graph->nodes.at(1).variants.at(0).pointer.text, variant);
    // The same graph in the long form is equal, although its pointers differ.
    const ParseOutcome longer = Parse(Print(*outcome.graph));
    ASSERT_TRUE(longer.graph.has_value());
    EXPECT_EQ(*longer.graph, *outcome.graph);
    EXPECT_EQ(longer.graph->nodes.at(1).variants.at(0).pointer.text, "/nodes/f/variants/0");
  };
  check(Document(R"("f": ["x", "out f32[n]"])"), "/module", "/nodes/f");
  check(Document(R"("f": {"args": ["x", "out f32[n]"], "entry": "g"})"), "/module", "/nodes/f");
}

// Twice the document takes at most about twice the work, even if it repeats names.
TEST(ShortFormTest, IsLinear) {
  const auto work = [](int count) {
    std::string nodes = R"("n0": ["inout x", "x", "x", "x", "in x"])";
    for (int i = 1; i < count; ++i) {
      nodes += R"(, "n)" + std::to_string(i) + R"(": ["inout n)" + std::to_string(i - 1) + R"(", "x", "x", "n"])";
    }
    const ParseOutcome outcome = Parse(Document(nodes, R"("y": "n)" + std::to_string(count - 1) + "\""));
    EXPECT_TRUE(outcome.graph.has_value()) << outcome.diagnostics[0].place << outcome.diagnostics[0].message;
    return static_cast<double>(outcome.work);
  };
  EXPECT_LT(work(20'000) / work(10'000), 2.3);
}

TEST(ShortFormTest, TheLongFormHasALimit) {
  Limits limits;
  limits.document_bytes_max = 100'000;
  std::string nodes = R"("f": ["x", "out f32[)" + std::string(1'000, 'a') + R"(]"])";
  for (int i = 0; i < 200; ++i) {
    nodes += R"(, "g)" + std::to_string(i) + R"(": ["f", "out f32[1]"])";
  }
  const ParseOutcome outcome =
      Parse(Document(nodes, R"("y": "f")", R"("module": "k.wasm")", "\"x\": \"f32[" + std::string(1'000, 'a') + "]\""),
            limits);
  ASSERT_FALSE(outcome.diagnostics.empty());
  EXPECT_THAT(outcome.diagnostics[0].message, HasSubstr("long form is larger than the limit of 100000 bytes"));
}

TEST(ShortArgumentTest, ReadsEachForm) {
  using Form = ShortArgument::Kind;
  const auto read = [](const char* text) {
    ShortArgument argument;
    std::string fault;
    EXPECT_TRUE(ReadShortArgument(text, &argument, &fault)) << text << ": " << fault;
    return argument;
  };
  EXPECT_EQ(read("smooth").kind, Form::kName);
  EXPECT_EQ(read(" smooth.out ").name, "smooth.out");
  EXPECT_EQ(read("a-b").kind, Form::kName);
  EXPECT_EQ(read("a - b").kind, Form::kScalar);
  EXPECT_EQ(read("in x").kind, Form::kIn);
  EXPECT_EQ(read("inout  x.y").name, "x.y");
  EXPECT_EQ(read("out f32").tensor.type, "f32");
  EXPECT_THAT(read("out f32 [h, min(a, b), 2*w]").tensor.extents, ElementsAre("h", "min(a, b)", "2*w"));
  EXPECT_EQ(read("out left f32[h]").name, "left");
  EXPECT_THAT(read("out f32[]").tensor.extents, IsEmpty());
  EXPECT_EQ(read("i64 n * 2").type, "i64");
  EXPECT_EQ(read("i64 n * 2").value, "n * 2");
  EXPECT_EQ(read("n * 2").type, "");
  EXPECT_EQ(read("i64").kind, Form::kName);
}

}  // namespace
}  // namespace hpvm::graph
