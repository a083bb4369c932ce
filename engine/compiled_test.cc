// SPDX-License-Identifier: Apache-2.0
// Tests the engine with the real compiler, the interpreter and the CPU: WebAssembly in, results out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/registry.h"
#include "engine/engine.h"
#include "engine/testing/document.h"
#include "engine/testing/in_process_compiler.h"

namespace hpvm::engine {
namespace {

using ::testing::AllOf;
using testing::Document;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::InProcessCompiler;
using testing::WasmFromText;

using Tensor = std::vector<int32_t>;

// Each instance handles one element; the address of element i of a buffer at $p is $p + 4i.
constexpr std::string_view kModule = R"((module
  (import "hpvm" "instance_id" (func $id (param i32) (result i32)))
  (import "hpvm" "print" (func $print (param i32 i32)))
  (memory 1)
  (data (i32.const 64) "value %d\n\00")
  (func $at (param $base i32) (result i32)
    (i32.add (local.get $base) (i32.shl (call $id (i32.const 0)) (i32.const 2))))
  (func (export "add1") (param $d i32) (local $p i32)
    (local.set $p (call $at (local.get $d)))
    (i32.store (local.get $p) (i32.add (i32.load (local.get $p)) (i32.const 1))))
  (func (export "make7") (param $d i32) (local $p i32)
    (local.set $p (call $at (local.get $d)))
    (i32.store (local.get $p) (i32.add (i32.load (local.get $p)) (i32.const 7))))
  (func (export "join") (param $a i32) (param $b i32) (param $c i32)
    (i32.store (call $at (local.get $c))
      (i32.add (i32.shl (i32.load (call $at (local.get $a))) (i32.const 1)) (i32.load (call $at (local.get $b))))))
  (func (export "mix") (param $a i32) (param $b i32) (local $p i32)
    (local.set $p (call $at (local.get $b)))
    (i32.store (local.get $p)
      (i32.add (i32.mul (i32.load (local.get $p)) (i32.const 3)) (i32.load (call $at (local.get $a))))))
  (func (export "peek") (param $x i32) (param $d i32) (param $n i32) (local $p i32)
    (local.set $p (call $at (local.get $d)))
    (i32.store (local.get $p)
      (i32.add (i32.load (i32.add (local.get $p) (i32.shl (local.get $n) (i32.const 2)))) (i32.const 1))))
  (func (export "scale") (param $d i32) (param $k i32) (local $p i32)
    (local.set $p (call $at (local.get $d)))
    (i32.store (local.get $p) (i32.mul (i32.load (local.get $p)) (local.get $k))))
  (func $divide (export "divide") (param $d i32) (local $p i32)
    (local.set $p (call $at (local.get $d)))
    (i32.store (local.get $p) (i32.div_s (i32.const 100) (i32.load (local.get $p)))))
  (func (export "outside") (param $d i32)
    (i32.store offset=1048576 (local.get $d) (i32.const 1)))
  (func (export "say") (param $d i32) (local $p i32)
    (local.set $p (call $at (local.get $d)))
    (i32.store (i32.const 1024) (i32.load (local.get $p)))
    (call $print (i32.const 64) (i32.const 1024))
    (i32.store (local.get $p) (i32.div_s (i32.const 100) (i32.load (local.get $p)))))
  (func (export "race") (param $a i32) (param $b i32)
    (i32.store (local.get $b) (i32.load (call $at (local.get $a)))))
  (func (export "spin") (param $d i32)
    (loop $again (i32.store (local.get $d) (i32.add (i32.load (local.get $d)) (i32.const 1))) (br $again)))
))";

class OneModule final : public ModuleSource {
 public:
  StatusOr<std::span<const uint8_t>> Find(const graph::Module& module) override {
    return std::span<const uint8_t>(bytes_);
  }

 private:
  std::vector<uint8_t> bytes_ = WasmFromText(kModule);
};

class CompiledTest : public ::testing::Test {
 protected:
  CompiledTest() {
    for (const char* name : {"cpu", "interp", "null"}) {
      StatusOr<std::unique_ptr<Device>> device = backends::CreateDevice(name, hub_, {.cpu_threads = 2});
      HPVMD_CHECK(device.ok());
      devices_.push_back(*std::move(device));
    }
    engine_ =
        std::make_unique<Engine>(EngineOptions{.devices = {devices_[0].get(), devices_[1].get(), devices_[2].get()},
                                               .checker = devices_[1].get(),
                                               .hub = &hub_,
                                               .compiler = &compiler_,
                                               .clock = &RealClock(),
                                               .graph_limits = {}});
  }

  std::shared_ptr<PreparedGraph> Prepare(const Document& document, const PrepareOptions& options = {}) {
    StatusOr<PrepareOutcome> outcome = engine_->Prepare(document.Text(), modules_, kNever, options);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome.ok() && !HasErrors(outcome->diagnostics)) << ToString(outcome->diagnostics);
    return outcome.ok() ? outcome->graph : nullptr;
  }

  static Binding Bind(Tensor& tensor) {
    return {.type = ElementType::kI32,
            .shape = {tensor.size()},
            .data = reinterpret_cast<uint8_t*>(tensor.data()),
            .bytes = tensor.size() * sizeof(int32_t)};
  }

  Status Run(PreparedGraph& graph, std::map<std::string, Tensor>& inputs, RunRequest request = {}) {
    for (auto& [name, tensor] : inputs) {
      request.inputs.try_emplace(name, Bind(tensor));
    }
    request.allocate_output = [&](const std::string& name, ElementType, const std::vector<uint64_t>&,
                                  uint64_t bytes) -> StatusOr<uint8_t*> {
      outputs_[name].assign(bytes / sizeof(int32_t), -1);
      return reinterpret_cast<uint8_t*>(outputs_[name].data());
    };
    StatusOr<RunResult> result = engine_->Run(graph, request);
    if (result.ok()) {
      result_ = *std::move(result);
    }
    return result.status();
  }

  Hub hub_;
  InProcessCompiler compiler_;
  OneModule modules_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Engine> engine_;
  RunResult result_;
  std::map<std::string, Tensor> outputs_;
};

Document Single(const std::string& entry, const std::string& more) {
  Document d("i32", "[\"n\"]");
  d.Input("x");
  d.Output("y");
  d.Node("node", entry, {"inout data"}, R"(,"instances":["n"])" + more);
  d.Edge("x", "node.data");
  d.Edge("node.data", "y");
  return d;
}

constexpr const char* kCpu = R"(,"devices":["cpu"])";
constexpr const char* kInterp = R"(,"devices":["interp"])";

// A replicated, nested update takes its index as a scalar, on each device; unrestricted nodes go to the CPU.
TEST_F(CompiledTest, NestedAndReplicated) {
  for (const std::string device : {"", kCpu, kInterp}) {
    SCOPED_TRACE(device);
    Document d("i32", "[\"n\"]");
    d.Input("x");
    d.Output("y");
    d.RawNode(
        "outer",
        R"({"ports":[{"name":"data","access":"inout","type":"i32","shape":["n"]}],)"
        R"("instances":[3],"index":["i"],"nodes":{"scale":)" +
            d.Leaf("scale", {"inout data"},
                   R"(,"scalars":[{"name":"k","type":"i32","value":"i+2"}],"instances":["n"])" + device) +
            R"(},"edges":[{"from":"data","to":"scale.data"},{"from":"scale.data","to":"data"}]})");
    d.Edge("x", "outer.data");
    d.Edge("outer.data", "y");
    auto graph = Prepare(d);
    ASSERT_NE(graph, nullptr);
    for (size_t n : {size_t{0}, size_t{1}, size_t{5}, size_t{1000}}) {
      std::map<std::string, Tensor> inputs = {{"x", Tensor(n, 3)}};
      const Status status = Run(*graph, inputs);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(outputs_["y"], Tensor(n, 72));
    }
    EXPECT_EQ(result_.nodes[0].device, device == kInterp ? "interp:0" : "cpu:0");
  }
}

// Bytes of an `out` buffer that no instance writes read as zero, whatever the memory held before.
TEST_F(CompiledTest, WhatNobodyWritesReadsAsZero) {
  for (const char* device : {"cpu", "interp"}) {
    SCOPED_TRACE(device);
    const std::string document =
        R"({"hpvm": 2, "modules": {"m": {"kind": "wasm", "source": {"file": "m.wasm"}}}, "inputs": {"x": "i32[n]"},
            "nodes": {"peek": {"args": ["x", "out i32[2 * n]", "n"], "instances": ["n"], "module": "m",
                               "devices": [")" +
        std::string(device) + R"("]}}, "outputs": {"y": "peek"}})";
    StatusOr<PrepareOutcome> outcome = engine_->Prepare(document, modules_, kNever);
    ASSERT_TRUE(outcome.ok() && outcome->graph != nullptr) << ToString(outcome->diagnostics);
    std::map<std::string, Tensor> inputs = {{"x", Tensor(3, 5)}};
    const Status status = Run(*outcome->graph, inputs);  // Run's outputs lie in memory full of -1.
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(outputs_["y"], ElementsAre(1, 1, 1, 0, 0, 0));
  }
}

// Prints of kernels are returned with node and instance, in order, on every device, also from a run that traps.
TEST_F(CompiledTest, Prints) {
  for (const char* device : {"cpu", "interp"}) {
    SCOPED_TRACE(device);
    auto graph = Prepare(Single("say", R"(,"devices":[")" + std::string(device) + R"("])"));
    ASSERT_NE(graph, nullptr);
    for (const int32_t last : {4, 0}) {
      std::map<std::string, Tensor> inputs = {{"x", {1, 2, last}}};
      RunLog log;
      const Status status = Run(*graph, inputs, {.repeat = last == 0 ? 1u : 2u, .log = &log});
      EXPECT_EQ(status.ok(), last != 0) << status;
      std::vector<std::string> lines;
      for (const RunLog::Line& line : log.lines) {
        EXPECT_EQ(line.node, "node");
        lines.push_back(std::to_string(line.instance[0]) + " " + line.text);
      }
      if (last == 0) {
        EXPECT_THAT(lines, ::testing::Contains("2 value 0"));
      } else {
        EXPECT_THAT(lines, ElementsAre("0 value 1", "1 value 2", "2 value 4", "0 value 1", "1 value 2", "2 value 4"));
      }
      EXPECT_EQ(log.lines_dropped, 0u);
    }
  }
}

// A checked graph runs on the checker, whatever its document allows, and finds a fault that runs do not expose.
TEST_F(CompiledTest, Checks) {
  Document d("i32", "[\"n\"]");
  d.Input("x");
  d.Output("y");
  d.Node("node", "race", {"in a", "out b"}, std::string(R"(,"instances":["n"])") + kCpu);
  d.Edge("x", "node.a");
  d.Edge("node.b", "y");
  std::map<std::string, Tensor> inputs = {{"x", {1, 2, 3}}};
  for (const bool check : {false, true}) {
    auto graph = Prepare(d, {.check = check});
    ASSERT_NE(graph, nullptr);
    RunLog log;
    const Status status = Run(*graph, inputs, {.log = &log});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(result_.nodes[0].device, check ? "interp:0" : "cpu:0");
    ASSERT_EQ(log.findings.size(), check ? 1u : 0u);
    if (check) {
      EXPECT_EQ(log.findings[0].node, "node");
      EXPECT_EQ(log.findings[0].finding.kind, "race");
      EXPECT_EQ(log.findings[0].finding.buffer, "b");
      EXPECT_THAT(log.findings[0].finding.place, HasSubstr("of module \"m\""));
      EXPECT_FALSE(log.check_incomplete);
    }
  }
  Engine without(EngineOptions{.devices = {devices_[0].get()},
                               .checker = nullptr,
                               .hub = &hub_,
                               .compiler = &compiler_,
                               .clock = &RealClock(),
                               .graph_limits = {}});
  EXPECT_EQ(without.Prepare(d.Text(), modules_, kNever, {.check = true}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Traps of real kernels report reason, instance, node, and the byte of the module.
TEST_F(CompiledTest, Traps) {
  for (const std::string device : {kCpu, kInterp}) {
    SCOPED_TRACE(device);
    auto graph = Prepare(Single("divide", device));
    ASSERT_NE(graph, nullptr);
    std::map<std::string, Tensor> inputs = {{"x", {1, 2, 5, 0, 4}}};
    for (int run = 0; run < 2; ++run) {
      const Status status = Run(*graph, inputs);
      EXPECT_TRUE(absl::IsAborted(status)) << status;
      EXPECT_THAT(Message(status),
                  AllOf(HasSubstr("Node \"node\" trapped: " + std::string(ir::Name(ir::TrapCode::kDivideByZero))),
                        HasSubstr("instance (3, 0, 0)"), HasSubstr("byte "), HasSubstr("module \"m\"")));
    }
    inputs["x"] = {1, 2, 5, 10, 4};
    ASSERT_TRUE(Run(*graph, inputs).ok());
    EXPECT_THAT(outputs_["y"], ElementsAre(100, 50, 20, 10, 25));
    graph = Prepare(Single("outside", device));
    ASSERT_NE(graph, nullptr);
    const Status status = Run(*graph, inputs);
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr(std::string(ir::Name(ir::TrapCode::kOutOfBounds))), HasSubstr("(4 bytes)")));
  }
}

// A kernel that never returns ends soon after the stop word is set.
TEST_F(CompiledTest, StopsAKernelThatNeverReturns) {
  for (const std::string device : {kCpu, kInterp}) {
    SCOPED_TRACE(device);
    auto graph = Prepare(Single("spin", device));
    ASSERT_NE(graph, nullptr);
    std::map<std::string, Tensor> inputs = {{"x", {1, 2}}};
    std::atomic<uint32_t> stop{0};
    std::thread stopper([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      stop.store(1);
    });
    RunRequest request;
    request.stop = &stop;
    const Status status = Run(*graph, inputs, request);
    stopper.join();
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
  }
}

// The null device runs nothing, and is used only when it is named.
TEST_F(CompiledTest, NullDeviceOnlyWhenNamed) {
  auto graph = Prepare(Single("divide", R"(,"devices":["null"])"));
  ASSERT_NE(graph, nullptr);
  std::map<std::string, Tensor> inputs = {{"x", {0, 0}}};
  ASSERT_TRUE(Run(*graph, inputs).ok());
  EXPECT_EQ(result_.nodes[0].device, "null:0");
}

// A missing entry is reported at the variant that names it.
TEST_F(CompiledTest, MissingEntry) {
  const StatusOr<PrepareOutcome> outcome = engine_->Prepare(Single("absent", "").Text(), modules_, kNever);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(ToString(outcome->diagnostics), AllOf(HasSubstr("/nodes/node/variants/0"), HasSubstr("\"absent\"")));
}

// Random graphs of integer kernels on the CPU, the interpreter and both match direct evaluation.
TEST_F(CompiledTest, RandomGraphsMatchDirectEvaluation) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    SeededRng rng(seed);
    const size_t n = 1 + rng.Below(300);
    const uint64_t choice = rng.Below(3);
    const auto device = [&] {
      return std::string(choice == 0 ? kCpu : choice == 1 || rng.Below(2) == 0 ? kInterp : kCpu);
    };
    Document d("i32", "[\"n\"]");
    std::map<std::string, Tensor> inputs;
    std::vector<std::pair<std::string, Tensor>> values;
    for (uint64_t i = 0; i <= rng.Below(2); ++i) {
      const std::string name = "x" + std::to_string(i);
      d.Input(name);
      for (size_t k = 0; k < n; ++k) {
        inputs[name].push_back(static_cast<int32_t>(rng.Next()));
      }
      values.push_back({name, inputs[name]});
    }
    const auto combine = [n](uint32_t fa, const Tensor& a, uint32_t fb, const Tensor& b, uint32_t add) {
      Tensor out(n);
      for (size_t k = 0; k < n; ++k) {
        out[k] = static_cast<int32_t>(fa * static_cast<uint32_t>(a[k]) + fb * static_cast<uint32_t>(b[k]) + add);
      }
      return out;
    };
    for (uint64_t i = 0; i < 1 + rng.Below(25); ++i) {
      const std::string name = "n" + std::to_string(i);
      const std::string more = R"(,"instances":["n"])" + device();
      const auto [a_name, a] = values[rng.Below(values.size())];
      const auto [b_name, b] = values[values.size() - 1 - rng.Below(std::min<size_t>(values.size(), 3))];
      switch (rng.Below(4)) {
        case 0:
          d.Node(name, "add1", {"inout data"}, more);
          d.Edge(b_name, name + ".data");
          values.push_back({name + ".data", combine(1, b, 0, b, 1)});
          break;
        case 1:
          d.Node(name, "make7", {"out data"}, more);
          values.push_back({name + ".data", Tensor(n, 7)});
          break;
        case 2:
          d.Node(name, "join", {"in a", "in b", "out c"}, more);
          d.Edge(a_name, name + ".a");
          d.Edge(b_name, name + ".b");
          values.push_back({name + ".c", combine(2, a, 1, b, 0)});
          break;
        default:
          d.Node(name, "mix", {"in a", "inout b"}, more);
          d.Edge(a_name, name + ".a");
          d.Edge(b_name, name + ".b");
          values.push_back({name + ".b", combine(1, a, 3, b, 0)});
      }
    }
    std::map<std::string, Tensor> want;
    for (uint64_t o = 0; o < 1 + rng.Below(3); ++o) {
      const auto& [name, value] = values[values.size() - 1 - rng.Below(std::min<size_t>(values.size(), 6))];
      d.Output("y" + std::to_string(o));
      d.Edge(name, "y" + std::to_string(o));
      want["y" + std::to_string(o)] = value;
    }
    auto graph = Prepare(d);
    ASSERT_NE(graph, nullptr);
    for (int run = 0; run < 2; ++run) {
      outputs_.clear();
      const Status status = Run(*graph, inputs);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(outputs_, want);
    }
  }
}

}  // namespace
}  // namespace hpvm::engine
