// SPDX-License-Identifier: Apache-2.0
// Tests of documents that are built in code: that the reader accepts them as they are meant, and the errors about
// mistakes.
#include "hpvm/graph.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "base/status.h"
#include "graph/parse.h"
#include "hpvm/diagnostics.h"

namespace hpvm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr ElementType kF32 = ElementType::kF32;

Graph Matmul() {
  Graph graph("matmul");
  graph.Input("A", kF32, {"m", "k"});
  graph.Input("B", kF32, {"k", "n"});
  graph.Output("C", kF32, {"m", "n"});
  graph.Module("matmul", v1::MODULE_KIND_WASM, {1, 2, 3});
  graph.Node("multiply", {.module = "matmul",
                          .entry = "matmul",
                          .ports = {In("a", kF32, {"m", "k"}), In("b", kF32, {"k", "n"}), Out("c", kF32, {"m", "n"})},
                          .scalars = {{"n", "i32", "n"}, {"k", "i32", "k"}},
                          .instances = {"n", "m"}});
  graph.Connect("A", "multiply.a");
  graph.Connect("B", "multiply.b");
  graph.Connect("multiply.c", "C");
  return graph;
}

// Builds the same graph as a document of the examples, except for its description and the name of the module's file.
TEST(GraphTest, BuildsTheExample) {
  const StatusOr<std::string> built = Matmul().document();
  ASSERT_TRUE(built.ok()) << built.status();
  std::ifstream file(HPVMD_SOURCE_DIR "/examples/matmul/matmul.json");
  auto wanted = nlohmann::ordered_json::parse(file);
  wanted.erase("description");
  wanted["modules"]["matmul"]["source"]["file"] = "matmul";
  EXPECT_EQ(*built, wanted.dump(2));
  EXPECT_EQ(Matmul().modules()->bytes.at("matmul"), (std::vector<uint8_t>{1, 2, 3}));
}

// Uses everything that the format has, through the reader: a misspelt key would be an error there.
TEST(GraphTest, TheReaderTakesAllThatCanBeBuilt) {
  Graph graph("all");
  graph.Description("everything");
  graph.Symbol("s");
  graph.Input("x", kF32, {"n", 4});
  graph.Input("count", ElementType::kI32);
  graph.Input("factor", kF32);
  graph.Output("y", kF32, {"n", 4});
  graph.ModuleHash("hashed", v1::MODULE_KIND_WASM, std::string(64, 'a'));
  graph.Module("text", v1::MODULE_KIND_OPENCL, {'k'}, "-DN=4");
  graph.Module("spirv", v1::MODULE_KIND_SPIRV, {3});
  graph.Node("leaf", {.ports = {In("x", kF32, {"n", 4}), In("count", ElementType::kI32), InOut("y", kF32, {"n", 4})},
                      .scalars = {{"f", "f32", ScalarValue::FromInput("factor")},
                                  {"half", "f64", 0.5},
                                  {"two", "i64", 2},
                                  {"sum", "i32", "n + s"}},
                      .params = {"f", "x", "y", "count", "half", "two", "sum"},
                      .instances = {Instances::FromPort("count", "n"), 4},
                      .group = {8, 4},
                      .variants = {{.module = "hashed", .entry = "e", .abi = "hpvm", .devices = {"cpu"}},
                                   {.module = "text", .entry = "e", .devices = {"gpu", "opencl:0"}},
                                   {.module = "spirv", .entry = "e", .constants = {{0, 64}, {1, 2.5}, {2, true}}}},
                      .devices = {"cpu", "gpu"},
                      .hints = {"gpu"},
                      .math = "fast"});
  Block& outer = graph.Nested(
      "outer", {.ports = {In("in", kF32, {"n", 4}), Out("out", kF32, {"n", 4})}, .instances = {2}, .index = {"i"}});
  outer.Node("inner", {.module = "hashed",
                       .entry = "e",
                       .ports = {In("in", kF32, {"n", 4}), Out("out", kF32, {"n", 4})},
                       .scalars = {{"i", "i32", "i"}}});
  outer.Connect("in", "inner.in", {.one_to_one = false});
  outer.Connect("inner.out", "out");
  graph.Connect("x", "leaf.x");
  graph.Connect("x", "outer.in");
  graph.Connect("count", "leaf.count");
  graph.Connect("outer.out", "leaf.y");
  graph.Connect("leaf.y", "y");
  const StatusOr<std::string> document = graph.document();
  ASSERT_TRUE(document.ok()) << document.status();
  const graph::ParseOutcome parsed = graph::Parse(*document);
  EXPECT_FALSE(HasErrors(parsed.diagnostics)) << ToString(parsed.diagnostics) << *document;
}

// All errors are reported at once, each with its place.
TEST(GraphTest, TellsAllMistakesTogether) {
  Graph graph = Matmul();
  graph.Input("A", kF32);
  graph.Module("bad name", v1::MODULE_KIND_UNSPECIFIED, {});
  graph.Node("multiply", {.module = "missing", .entry = "e", .ports = {In("a", kF32), Out("a", kF32)}});
  graph.Node("idle", {});
  graph.Nested("empty", {});
  graph.Connect("nobody.x", "multiply.q");
  const StatusOr<std::string> document = graph.document();
  ASSERT_EQ(document.status().code(), absl::StatusCode::kInvalidArgument);
  std::vector<std::string> places;
  for (const v1::Diagnostic& fault : DiagnosticsOf(document.status())) {
    places.push_back(fault.place());
    EXPECT_THAT(Message(document.status()), HasSubstr(ToText(fault)));
  }
  EXPECT_THAT(places, ElementsAre("/inputs/A", "/modules/bad name", "/modules/bad name/kind", "/nodes/multiply",
                                  "/nodes/multiply/ports/1", "/nodes/multiply/variants/0/module",
                                  "/nodes/idle/variants", "/nodes/empty/nodes", "/edges/3/from", "/edges/3/to"));
}

// Text that is not UTF-8 is still text, but such a name is not a valid name.
TEST(GraphTest, TextMayBeAnything) {
  Graph graph = Matmul();
  graph.Description("\xff\xfe");
  EXPECT_TRUE(graph.document().ok());
  graph.Symbol("\xff");
  EXPECT_TRUE(graph.document().ok());  // The server reports what is wrong with it.
  graph.Node("\xff", {.module = "matmul", .entry = "e"});
  EXPECT_THAT(Message(graph.document().status()), HasSubstr("followed by letters"));
}

TEST(GraphTest, FilesAreNamedWhenTheyCannotBeRead) {
  Graph graph = Matmul();
  graph.ModuleFile("gone", v1::MODULE_KIND_WASM, "/nowhere/k.wasm");
  EXPECT_THAT(Message(graph.modules().status()), HasSubstr("/nowhere/k.wasm"));
  Graph read;
  read.ModuleFile("m", v1::MODULE_KIND_WASM, HPVMD_SOURCE_DIR "/examples/matmul/matmul.wasm");
  EXPECT_EQ(read.modules()->bytes.at("m")[1], 'a');  // "\0asm".
}

}  // namespace
}  // namespace hpvm
