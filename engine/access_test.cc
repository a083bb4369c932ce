// SPDX-License-Identifier: Apache-2.0
// Tests which bytes launches access, by kind of node, and which launches may be cut.
#include "engine/access.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "engine/testing/document.h"
#include "engine/testing/function_device.h"

namespace hpvm::engine {
namespace {

using scheduler::Box;
using scheduler::ByteRange;
using scheduler::PortAccess;
using testing::AnyModule;
using testing::CreateFunctionDevice;
using testing::Document;
using testing::FunctionCall;
using testing::FunctionCompiler;

ir::BoundsAccess At(uint32_t param, bool is_store, ir::Polynomial offset) {
  return {.param = param,
          .reach = 4,
          .is_store = is_store,
          .offset = std::move(offset),
          .width = 4,
          .is_load = !is_store,
          .is_certain = true};
}

// y[i] = x[i], or x[i + k] for a scalar k that is the third parameter.
ir::BoundsProgram Copy(bool is_shifted) {
  ir::BoundsProgram program;
  program.atoms.push_back({.kind = ir::Atom::Kind::kInstanceId, .index = 0});
  program.atoms.push_back({.kind = ir::Atom::Kind::kScalar, .index = 2});
  if (!is_shifted) {
    program.atoms.pop_back();
  }
  const ir::Term id{.factor = 4, .atoms = {ir::AtomId(0u)}}, shift{.factor = 4, .atoms = {ir::AtomId(1u)}};
  program.accesses.push_back(At(0, false, is_shifted ? ir::Polynomial{id, shift} : ir::Polynomial{id}));
  program.accesses.push_back(At(1, true, {id}));
  program.is_complete = program.is_separate = true;
  return program;
}

class AccessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* entry : {"copy", "shifted", "unknown"}) {
      kernels_[entry] = [](const FunctionCall&) { return ir::TrapCode::kNone; };
    }
    compiler_.bounds["copy"] = Copy(false);
    compiler_.bounds["shifted"] = Copy(true);
    device_ = CreateFunctionDevice(hub_, kernels_, {});
    engine_ = std::make_unique<Engine>(EngineOptions{.devices = {device_.get()},
                                                     .checker = device_.get(),
                                                     .hub = &hub_,
                                                     .compiler = &compiler_,
                                                     .clock = &RealClock()});
  }

  // Prepares one node over 64 elements.
  void Prepare(const std::string& entry, const std::string& more, bool is_checked = false) {
    accesses_.reset();
    Document d("i32", "[64]");
    d.Input("x");
    d.InputOf("k", "i32", "[]");
    d.Output("y");
    d.Node("node", entry, {"in a", "out b"}, more);
    d.Edge("x", "node.a");
    d.Edge("node.b", "y");
    StatusOr<PrepareOutcome> outcome = engine_->Prepare(d.Text(), modules_, kNever, {.check = is_checked});
    ASSERT_TRUE(outcome.ok() && outcome->graph != nullptr)
        << outcome.status() << (outcome.ok() ? ToString(outcome->diagnostics) : "");
    graph_ = outcome->graph;
    accesses_ = std::make_unique<GraphAccesses>(*graph_, *graph_->flat);
  }

  PortAccess Of(const Box& box, uint32_t port) const { return accesses_->Of(graph::FlatNodeId(0u), 0, box, port); }

  Hub hub_;
  testing::KernelFunctions kernels_;
  FunctionCompiler compiler_{kernels_};
  AnyModule modules_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<PreparedGraph> graph_;
  std::unique_ptr<GraphAccesses> accesses_;
};

constexpr ByteRange kWhole{0, 256};
const Box kAll{.count = {64, 1, 1}}, kQuarter{.first = {16, 0, 0}, .count = {16, 1, 1}};

// A part's ranges are its own, whenever and in whichever order they are asked for.
TEST_F(AccessTest, PartsTouchTheirShare) {
  Prepare("copy", R"(,"instances":[64])");
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(Of(kAll, 0).read, kWhole);
    EXPECT_EQ(Of(kQuarter, 1).written, (ByteRange{64, 128}));
    EXPECT_EQ(Of(kAll, 1).written, kWhole);
    EXPECT_EQ(Of(kQuarter, 0).read, (ByteRange{64, 128}));
    EXPECT_TRUE(Of(kQuarter, 0).written.is_empty());
    EXPECT_TRUE(Of(kQuarter, 1).read.is_empty());
    EXPECT_TRUE(Of(kQuarter, 1).overwrites);
  }
}

// A number from the document is used; a number that only a run knows leaves all ranges open, and so does a kernel
// about which nothing is known.
TEST_F(AccessTest, WhatIsNotKnownIsTheWholePort) {
  const std::string scalar = R"(,"instances":[16],"scalars":[{"name":"k","type":"i32","value":)";
  Prepare("shifted", scalar + "8}]");
  EXPECT_EQ(Of({.count = {16, 1, 1}}, 0).read, (ByteRange{32, 96}));
  Prepare("shifted", scalar + R"({"input":"k"}}])");
  EXPECT_EQ(Of({.count = {16, 1, 1}}, 0).read, kWhole);
  EXPECT_EQ(Of({.count = {16, 1, 1}}, 1).written, kWhole);
  EXPECT_FALSE(Of({.count = {16, 1, 1}}, 1).overwrites);
  Prepare("unknown", R"(,"instances":[64])");
  EXPECT_EQ(Of(kQuarter, 0).read, kWhole);
  EXPECT_EQ(Of(kQuarter, 1).written, kWhole);
}

// Planned parts get answers however many questions came before; otherwise a plan from known tasks would copy a whole
// buffer for each part.
TEST_F(AccessTest, PlannedPartsAreAnsweredWhateverWasAskedBefore) {
  Prepare("copy", R"(,"instances":[64])");
  for (uint64_t i = 0; i < kAccessEvaluationsMax; ++i) {
    Of({.first = {i % 64, 0, 0}, .count = {1, 1 + i / 64, 1}}, 0);
  }
  EXPECT_EQ(Of(kQuarter, 1).written, kWhole);
  const scheduler::Task part{.node = graph::FlatNodeId(0u), .box = kQuarter, .is_part = true};
  accesses_->Admit({&part, 1});
  EXPECT_EQ(Of(kAll, 1).written, kWhole);
  EXPECT_EQ(Of(kQuarter, 1).written, (ByteRange{64, 128}));
}

// Launches are cut along the outermost dimension, by groups, but not when a check must see every instance.
TEST_F(AccessTest, CutsTheOutermostDimension) {
  uint32_t dimension = 9;
  uint64_t grain = 0;
  const auto may_cut = [&] { return accesses_->MayCut(graph::FlatNodeId(0u), 0, &dimension, &grain); };
  Prepare("copy", R"(,"instances":[8,4],"group":[2,2])");
  EXPECT_TRUE(may_cut());
  EXPECT_EQ(dimension, 1u);
  EXPECT_EQ(grain, 2u);
  Prepare("copy", R"(,"instances":[64,1,1])");
  EXPECT_TRUE(may_cut());
  EXPECT_EQ(dimension, 0u);
  EXPECT_EQ(grain, 1u);
  Prepare("copy", R"(,"instances":[1])");
  EXPECT_FALSE(may_cut());
  Prepare("copy", R"(,"instances":[64])", /*is_checked=*/true);
  EXPECT_FALSE(may_cut());
}

}  // namespace
}  // namespace hpvm::engine
