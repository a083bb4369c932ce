// SPDX-License-Identifier: Apache-2.0
// Tests the engine with devices whose kernels are C++ functions: everything except compilers and real devices.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/prepared_graph.h"
#include "engine/testing/document.h"
#include "engine/testing/function_device.h"

namespace hpvm::engine {
namespace {

using ::testing::AllOf;
using testing::CreateFunctionDevice;
using testing::Document;
using ::testing::ElementsAre;
using testing::FunctionCall;
using testing::FunctionCompiler;
using testing::FunctionDeviceOptions;
using ::testing::HasSubstr;
using testing::KernelFunctions;

using Tensor = std::vector<int32_t>;

int32_t* I32(const FunctionCall& call, size_t argument) {
  return reinterpret_cast<int32_t*>(call.arguments[argument].data);
}
size_t Count(const FunctionCall& call, size_t argument) { return call.arguments[argument].bytes / sizeof(int32_t); }

// Returns the kernels, most of which expect a single instance; they use unsigned arithmetic, because it wraps.
KernelFunctions MakeKernels() {
  KernelFunctions kernels;
  const auto each = [](auto update) {
    return [update](const FunctionCall& call) {
      for (size_t i = 0; i < Count(call, 0); ++i) {
        I32(call, 0)[i] = static_cast<int32_t>(update(static_cast<uint32_t>(I32(call, 0)[i])));
      }
      return ir::TrapCode::kNone;
    };
  };
  kernels["add1"] = each([](uint32_t v) { return v + 1; });
  kernels["triple"] = each([](uint32_t v) { return v * 3; });
  // Updates an `out` port, which reads as zero.
  kernels["make7"] = each([](uint32_t v) { return v + 7; });
  // c = 2a + b.
  kernels["join"] = [](const FunctionCall& call) {
    for (size_t i = 0; i < Count(call, 2); ++i) {
      I32(call, 2)
      [i] = static_cast<int32_t>(2u * static_cast<uint32_t>(I32(call, 0)[i]) + static_cast<uint32_t>(I32(call, 1)[i]));
    }
    return ir::TrapCode::kNone;
  };
  // b = 3b + a.
  kernels["mix"] = [](const FunctionCall& call) {
    for (size_t i = 0; i < Count(call, 1); ++i) {
      I32(call, 1)
      [i] = static_cast<int32_t>(3u * static_cast<uint32_t>(I32(call, 1)[i]) + static_cast<uint32_t>(I32(call, 0)[i]));
    }
    return ir::TrapCode::kNone;
  };
  // data[i] *= factor, one instance per element; scalars follow the port.
  kernels["scale"] = [](const FunctionCall& call) {
    I32(call, 0)[call.instance[0]] *= static_cast<int32_t>(call.arguments[1].scalar);
    return ir::TrapCode::kNone;
  };
  kernels["trap"] = [](const FunctionCall& call) {
    return call.instance[0] == 2 ? ir::TrapCode::kDivideByZero : ir::TrapCode::kNone;
  };
  kernels["spin"] = [](const FunctionCall& call) {
    while (call.stop->load() == 0) {
      std::this_thread::yield();
    }
    return ir::TrapCode::kStopped;
  };
  return kernels;
}

class FileModules final : public ModuleSource {
 public:
  StatusOr<std::span<const uint8_t>> Find(const graph::Module& module) override {
    if (module.file == "missing.wasm") {
      return NotFound("File \"missing.wasm\" was not uploaded.");
    }
    return std::span<const uint8_t>(bytes_);
  }

 private:
  std::vector<uint8_t> bytes_ = {0, 'a', 's', 'm'};
};

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() { Devices({{}}); }

  void Devices(const std::vector<FunctionDeviceOptions>& devices) {
    engine_.reset();
    devices_.clear();
    std::vector<Device*> borrowed;
    for (const FunctionDeviceOptions& options : devices) {
      devices_.push_back(CreateFunctionDevice(hub_, kernels_, options));
      borrowed.push_back(devices_.back().get());
    }
    engine_ = std::make_unique<Engine>(EngineOptions{
        .devices = borrowed, .hub = &hub_, .compiler = &compiler_, .clock = &RealClock(), .graph_limits = {}});
  }

  std::shared_ptr<PreparedGraph> Prepare(const Document& document) {
    StatusOr<PrepareOutcome> outcome = engine_->Prepare(document.Text(), modules_, kNever);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    if (!outcome.ok()) {
      return nullptr;
    }
    EXPECT_FALSE(HasErrors(outcome->diagnostics)) << ToString(outcome->diagnostics);
    summary_ = outcome->summary;
    diagnostics_ = outcome->diagnostics;
    return outcome->graph;
  }

  static Binding Bind(Tensor& tensor) {
    return {.type = ElementType::kI32,
            .shape = {tensor.size()},
            .data = reinterpret_cast<uint8_t*>(tensor.data()),
            .bytes = tensor.size() * sizeof(int32_t)};
  }

  // Runs with the given inputs; outputs are allocated in outputs_.
  Status Run(PreparedGraph& graph, std::map<std::string, Tensor>& inputs, RunRequest request = {}) {
    for (auto& [name, tensor] : inputs) {
      request.inputs.try_emplace(name, Bind(tensor));
    }
    request.allocate_output = [&](const std::string& name, ElementType type, const std::vector<uint64_t>& shape,
                                  uint64_t bytes) -> StatusOr<uint8_t*> {
      // Deliberately not zeroed.
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
  const KernelFunctions kernels_ = MakeKernels();
  FunctionCompiler compiler_{kernels_};
  FileModules modules_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Engine> engine_;
  GraphSummary summary_;
  Diagnostics diagnostics_;
  RunResult result_;
  std::map<std::string, Tensor> outputs_;
};

Document Diamond() {
  Document d;
  d.Input("x");
  d.Output("y");
  d.Node("left", "add1", {"inout data"});
  d.Node("right", "triple", {"inout data"});
  d.Node("join", "join", {"in a", "in b", "out c"});
  d.Edge("x", "left.data");
  d.Edge("x", "right.data");
  d.Edge("left.data", "join.a");
  d.Edge("right.data", "join.b");
  d.Edge("join.c", "y");
  return d;
}

// The simplest graph with a fan-out and a join; the input is not written, although both branches update in place.
TEST_F(EngineTest, Diamond) {
  auto graph = Prepare(Diamond());
  ASSERT_NE(graph, nullptr);
  std::map<std::string, Tensor> inputs = {{"x", {1, 2, 3, 4}}};
  ASSERT_TRUE(Run(*graph, inputs).ok());
  EXPECT_THAT(outputs_["y"], ElementsAre(7, 12, 17, 22));
  EXPECT_THAT(inputs["x"], ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(result_.nodes_run, 3u);
  ASSERT_EQ(result_.nodes.size(), 3u);
  EXPECT_EQ(result_.nodes[2].path, "join");
  EXPECT_EQ(result_.nodes[2].device, "cpu:0");
  EXPECT_GE(result_.nodes[0].start_ns, 0);
  EXPECT_LE(result_.nodes[0].end_ns, result_.nodes[2].start_ns);
  EXPECT_EQ(summary_.leaf_nodes, 3u);
  EXPECT_EQ(summary_.edges, 5u);
  EXPECT_THAT(summary_.devices, ElementsAre("cpu:0"));
}

// Equal (module, entry, parameters) are compiled once, however many nodes use them.
TEST_F(EngineTest, CompilesEachKernelOnce) {
  Document d;
  d.Input("x");
  d.Output("y");
  std::string from = "x";
  for (int i = 0; i < 50; ++i) {
    d.Node("n" + std::to_string(i), i % 2 == 0 ? "add1" : "triple", {"inout data"});
    d.Edge(from, "n" + std::to_string(i) + ".data");
    from = "n" + std::to_string(i) + ".data";
  }
  d.Edge(from, "y");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(compiler_.compiles, 2u);
  std::map<std::string, Tensor> inputs = {{"x", {0, 1, 2, 3}}};
  uint32_t want[] = {0, 1, 2, 3};
  for (int i = 0; i < 50; ++i) {
    for (uint32_t& v : want) {
      v = i % 2 == 0 ? v + 1 : v * 3;
    }
  }
  // Runs twice: the second run uses the first one's plan. Repeated runs start from the same inputs.
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(Run(*graph, inputs, {.repeat = 3}).ok());
    EXPECT_EQ(std::memcmp(outputs_["y"].data(), want, sizeof(want)), 0);
    EXPECT_EQ(result_.nodes_run, 150u);
  }
  EXPECT_EQ(graph->plans.size(), 1u);
}

// One value goes to a reader, two writers and an output: each of them sees the original value.
TEST_F(EngineTest, CopiesOnWriteForOtherReaders) {
  Document d;
  d.Input("x");
  for (const char* name : {"made", "more", "tripled", "copy"}) {
    d.Output(name);
  }
  d.Node("make", "make7", {"out data"});
  d.Node("grow", "add1", {"inout data"});
  d.Node("triple", "triple", {"inout data"});
  d.Edge("make.data", "grow.data");
  d.Edge("make.data", "triple.data");
  d.Edge("make.data", "made");
  d.Edge("grow.data", "more");
  d.Edge("triple.data", "tripled");
  d.Edge("x", "copy");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  std::map<std::string, Tensor> inputs = {{"x", {5, 6, 7, 8}}};
  ASSERT_TRUE(Run(*graph, inputs).ok());
  EXPECT_THAT(outputs_["made"], ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(outputs_["more"], ElementsAre(8, 8, 8, 8));
  EXPECT_THAT(outputs_["tripled"], ElementsAre(21, 21, 21, 21));
  EXPECT_THAT(outputs_["copy"], ElementsAre(5, 6, 7, 8));
}

// Symbols come from shapes; a few sizes are remembered; given symbols must agree.
TEST_F(EngineTest, SymbolsAndPlanCache) {
  Document d("i32", "[\"n\"]");
  d.Input("x");
  d.Output("y");
  d.Node("scale", "scale", {"inout data"}, R"(,"scalars":[{"name":"k","type":"i32","value":"n+1"}],"instances":["n"])");
  d.Edge("x", "scale.data");
  d.Edge("scale.data", "y");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(summary_.symbols, ElementsAre("n"));
  for (int32_t n : {1, 2, 3, 4, 5, 6, 1, 2}) {
    std::map<std::string, Tensor> inputs = {{"x", Tensor(static_cast<size_t>(n), 10)}};
    ASSERT_TRUE(Run(*graph, inputs).ok());
    EXPECT_EQ(outputs_["y"], Tensor(static_cast<size_t>(n), 10 * (n + 1)));
    EXPECT_LE(graph->plans.size(), kPlansMax);
  }
  Tensor x(3, 1);
  const auto shapes = engine_->OutputShapes(*graph, {{"x", Bind(x)}}, {});
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  EXPECT_THAT(shapes->at("y").shape, ElementsAre(3u));
  EXPECT_EQ(shapes->at("y").bytes, 12u);
  std::map<std::string, Tensor> inputs = {{"x", x}};
  EXPECT_TRUE(absl::IsInvalidArgument(Run(*graph, inputs, {.symbols = {{"n", 4}}})));
  EXPECT_TRUE(Run(*graph, inputs, {.symbols = {{"n", 3}}}).ok());
}

// Without instances nothing runs: an update keeps its data, and new data reads as zero.
TEST_F(EngineTest, ZeroInstancesDoNothing) {
  Document d("i32", "[\"n\"]");
  d.Input("x");
  d.Output("y");
  d.OutputOf("z", "i32", "[2]");
  d.Node("never", "trap", {"inout data"}, R"(,"instances":["n-4"])");
  d.RawNode("empty", R"({"ports":[{"name":"data","access":"out","type":"i32","shape":[2]}],"instances":["n-4"],)"
                     R"("variants":[{"module":"m","entry":"make7"}]})");
  d.Edge("x", "never.data");
  d.Edge("never.data", "y");
  d.Edge("empty.data", "z");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  std::map<std::string, Tensor> inputs = {{"x", {1, 2, 3, 4}}};
  ASSERT_TRUE(Run(*graph, inputs).ok());
  EXPECT_THAT(outputs_["y"], ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(outputs_["z"], ElementsAre(0, 0));
}

// Callers may treat tensors without elements like others, bound to null or not.
TEST_F(EngineTest, EmptyTensors) {
  Document d("i32", "[\"n\"]");
  d.Input("x");
  d.Output("y");
  d.Node("a", "add1", {"inout data"});
  d.Node("b", "triple", {"inout data"});
  d.Edge("x", "a.data");
  d.Edge("a.data", "b.data");
  d.Edge("b.data", "y");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  std::map<std::string, Tensor> inputs = {{"x", {}}};
  ASSERT_TRUE(Run(*graph, inputs).ok());
  EXPECT_TRUE(outputs_["y"].empty());
}

// A scalar from a rank-0 input is read in each run, although the plan is reused.
TEST_F(EngineTest, ScalarsFromInputs) {
  Document d;
  d.Input("x");
  d.InputOf("factor", "i32", "[]");
  d.Output("y");
  d.Node("scale", "scale", {"inout data"},
         R"(,"scalars":[{"name":"k","type":"i32","value":{"input":"factor"}}],"instances":[4])");
  d.Edge("x", "scale.data");
  d.Edge("scale.data", "y");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  for (int32_t factor : {3, -5}) {
    std::map<std::string, Tensor> inputs = {{"x", {1, 2, 3, 4}}};
    RunRequest request;
    request.inputs["factor"] = {
        .type = ElementType::kI32, .shape = {}, .data = reinterpret_cast<uint8_t*>(&factor), .bytes = 4};
    ASSERT_TRUE(Run(*graph, inputs, request).ok());
    EXPECT_THAT(outputs_["y"], ElementsAre(factor, 2 * factor, 3 * factor, 4 * factor));
  }
  EXPECT_EQ(graph->plans.size(), 1u);
}

// Nested internal nodes vanish; a replicated node runs its replicas in turn on one buffer, each with its index.
TEST_F(EngineTest, NestedAndReplicated) {
  Document d;
  d.Input("x");
  d.Output("y");
  const std::string port = R"({"name":"data","access":"inout","type":"i32","shape":[4]})";
  d.RawNode("outer", R"({"ports":[)" + port + R"(],"instances":[3],"index":["i"],"nodes":{"inner":{"ports":[)" + port +
                         R"(],"nodes":{"scale":)" +
                         d.Leaf("scale", {"inout data"},
                                R"(,"scalars":[{"name":"k","type":"i32","value":"i+2"}],"instances":[4])") +
                         R"(},"edges":[{"from":"data","to":"scale.data"},{"from":"scale.data","to":"data"}]}},)" +
                         R"("edges":[{"from":"data","to":"inner.data"},{"from":"inner.data","to":"data"}]})");
  d.Edge("x", "outer.data");
  d.Edge("outer.data", "y");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  std::map<std::string, Tensor> inputs = {{"x", {1, 2, 3, 4}}};
  ASSERT_TRUE(Run(*graph, inputs).ok());
  EXPECT_THAT(outputs_["y"], ElementsAre(24, 48, 72, 96));
  ASSERT_EQ(result_.nodes.size(), 3u);
  EXPECT_EQ(result_.nodes[2].path, "outer[2]/inner/scale");
}

Document OneNode(const std::string& entry, const std::string& more) {
  Document d;
  d.Input("x");
  d.Output("y");
  d.Node("first", "add1", {"inout data"});
  d.Node("second", entry, {"inout data"}, more);
  d.Edge("x", "first.data");
  d.Edge("first.data", "second.data");
  d.Edge("second.data", "y");
  return d;
}

// A trap names node, reason, instance, function and byte, and the next run works.
TEST_F(EngineTest, TrapsNameTheirPlace) {
  auto graph = Prepare(OneNode("trap", R"(,"instances":["4"])"));
  ASSERT_NE(graph, nullptr);
  std::map<std::string, Tensor> inputs = {{"x", {1, 2, 3, 4}}};
  for (int run = 0; run < 2; ++run) {
    const Status status = Run(*graph, inputs);
    EXPECT_TRUE(absl::IsAborted(status));
    EXPECT_EQ(Message(status), "Node \"second\" trapped: " + std::string(ir::Name(ir::TrapCode::kDivideByZero)) +
                                   " in instance (2, 0, 0), function \"trap\", byte 117 of module \"m\".");
  }
}

// The stop word ends a kernel in flight with kCancelled, or with kDeadlineExceeded once the deadline has passed.
TEST_F(EngineTest, StopAndDeadline) {
  auto graph = Prepare(OneNode("spin", ""));
  ASSERT_NE(graph, nullptr);
  std::map<std::string, Tensor> inputs = {{"x", {1, 2, 3, 4}}};
  for (const bool is_late : {false, true}) {
    std::atomic<uint32_t> stop{0};
    std::thread stopper([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      stop.store(1);
    });
    RunRequest request;
    request.stop = &stop;
    request.deadline = is_late ? RealClock().Now() + std::chrono::milliseconds(10) : kNever;
    const Status status = Run(*graph, inputs, request);
    stopper.join();
    EXPECT_EQ(status.code(), is_late ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kCancelled) << status;
    EXPECT_THAT(Message(status), HasSubstr("node \"second\""));
  }
  EXPECT_TRUE(absl::IsDeadlineExceeded(Run(*graph, inputs, {.deadline = RealClock().Now()})));
}

// Runs of one graph take turns, from any number of threads; a waiting run obeys its stop word.
TEST_F(EngineTest, RunsTakeTurns) {
  auto spinning = Prepare(OneNode("spin", ""));
  ASSERT_NE(spinning, nullptr);
  std::atomic<uint32_t> stop_first{0}, stop_second{1};
  Tensor x = {1, 2, 3, 4}, y(4), z(4);
  RunRequest request;
  request.inputs["x"] = Bind(x);
  request.outputs["y"] = Bind(y);
  request.stop = &stop_first;
  std::thread first([&] { EXPECT_TRUE(absl::IsCancelled(engine_->Run(*spinning, request).status())); });
  RunRequest waiting = request;
  waiting.outputs["y"] = Bind(z);
  waiting.stop = &stop_second;
  EXPECT_TRUE(absl::IsCancelled(engine_->Run(*spinning, waiting).status()));
  stop_first.store(1);
  first.join();
  auto graph = Prepare(Diamond());
  ASSERT_NE(graph, nullptr);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int32_t i = 0; i < 50; ++i) {
        Tensor in = {t, i, 3, 4}, out(4);
        RunRequest mine;
        mine.inputs["x"] = Bind(in);
        mine.outputs["y"] = Bind(out);
        EXPECT_TRUE(engine_->Run(*graph, mine).ok());
        EXPECT_THAT(out, ElementsAre(5 * t + 2, 5 * i + 2, 17, 22));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// Bindings that do not fit are refused with the port and both values, before anything runs.
TEST_F(EngineTest, RefusesBadBindings) {
  auto graph = Prepare(Diamond());
  ASSERT_NE(graph, nullptr);
  Tensor x = {1, 2, 3, 4}, y(4), both(6);
  const Binding good = Bind(x);
  struct Case {
    const char* name;
    std::map<std::string, Binding> inputs, outputs;
    const char* want;
  };
  Binding wrong_type = good, wrong_shape = good, wrong_rank = good, short_bytes = good, no_memory = good, huge = good;
  wrong_type.type = ElementType::kF32;
  wrong_shape.shape = {5};
  wrong_shape.bytes = 20;
  wrong_rank.shape = {2, 2};
  short_bytes.bytes = 12;
  no_memory.data = nullptr;
  huge.shape = {uint64_t{1} << 62, 4};
  Binding out = Bind(y), out_shape = Bind(y);
  out_shape.shape = {2, 2};
  Binding overlap_in = Bind(both), overlap_out = Bind(both);
  overlap_in.shape = overlap_out.shape = {4};
  overlap_in.bytes = overlap_out.bytes = 16;
  overlap_out.data += 8;
  const Case cases[] = {
      {"missing input", {}, {}, "Input \"x\" is not bound."},
      {"unknown input", {{"x", good}, {"z", good}}, {}, "The graph has no input \"z\"; its inputs are: x."},
      {"misspelt input", {{"X", good}}, {}, "The graph has no input \"X\"; its inputs are: x."},
      {"type", {{"x", wrong_type}}, {}, "Input \"x\" has elements of type f32; the graph declares i32."},
      {"extent", {{"x", wrong_shape}}, {}, "x"},
      {"rank", {{"x", wrong_rank}}, {}, "x"},
      {"bytes", {{"x", short_bytes}}, {}, "Input \"x\" of shape [4] needs 16 bytes; 12 are bound."},
      {"no memory", {{"x", no_memory}}, {}, "Input \"x\" (16 bytes) is bound to no memory."},
      {"overflow", {{"x", huge}}, {}, "has more than 2^63 bytes."},
      {"no output", {{"x", good}}, {}, "Output \"y\" (16 bytes) is not bound."},
      {"unknown output", {{"x", good}}, {{"y", out}, {"z", out}}, "The graph has no output \"z\"; its outputs are: y."},
      {"output shape",
       {{"x", good}},
       {{"y", out_shape}},
       "Output \"y\" is bound with shape [2, 2]; the graph gives [4]."},
      {"overlap",
       {{"x", overlap_in}},
       {{"y", overlap_out}},
       "Ports \"x\" and \"y\" share memory; an output must have its own."},
      {"alias", {{"x", good}}, {{"y", good}}, "share memory"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    RunRequest request;
    request.inputs = c.inputs;
    request.outputs = c.outputs;
    const Status status = engine_->Run(*graph, request).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Message(status), HasSubstr(c.want));
  }
  RunRequest request;
  request.inputs["x"] = good;
  request.outputs["y"] = out;
  request.symbols["q"] = 1;
  EXPECT_TRUE(absl::IsInvalidArgument(engine_->Run(*graph, request).status()));
  request.symbols.clear();
  request.repeat = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(engine_->Run(*graph, request).status()));
  request.repeat = 1;
  ASSERT_TRUE(engine_->Run(*graph, request).ok());
  EXPECT_THAT(y, ElementsAre(7, 12, 17, 22));
}

// A symbol that no shape determines must be given.
TEST_F(EngineTest, UnsolvedSymbol) {
  Document d("i32", "[\"n*2\"]");
  d.Symbol("n");
  d.Input("x");
  d.Output("y");
  d.Node("a", "add1", {"inout data"});
  d.Edge("x", "a.data");
  d.Edge("a.data", "y");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  std::map<std::string, Tensor> inputs = {{"x", {1, 2, 3, 4}}};
  const Status status = Run(*graph, inputs);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("\"n\""));
  EXPECT_TRUE(Run(*graph, inputs, {.symbols = {{"n", 2}}}).ok());
}

// Two inputs may be the same memory; neither is changed.
TEST_F(EngineTest, InputsMayShareMemory) {
  Document d;
  d.Input("a");
  d.Input("b");
  d.Output("y");
  d.Node("mix", "mix", {"in a", "inout b"});
  d.Edge("a", "mix.a");
  d.Edge("b", "mix.b");
  d.Edge("mix.b", "y");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  Tensor x = {1, 2, 3, 4};
  std::map<std::string, Tensor> none;
  RunRequest request;
  request.inputs = {{"a", Bind(x)}, {"b", Bind(x)}};
  ASSERT_TRUE(Run(*graph, none, request).ok());
  EXPECT_THAT(outputs_["y"], ElementsAre(4, 8, 12, 16));
  EXPECT_THAT(x, ElementsAre(1, 2, 3, 4));
}

// Faults of modules are reported at the variant or module that names them.
TEST_F(EngineTest, PrepareReportsModules) {
  Document d = OneNode("no_such_entry", "");
  StatusOr<PrepareOutcome> outcome = engine_->Prepare(d.Text(), modules_, kNever);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->graph, nullptr);
  EXPECT_EQ(ToString(outcome->diagnostics),
            "/nodes/second/variants/0 at byte 8: Module \"m\", entry \"no_such_entry\": There is no exported function "
            "\"no_such_entry\".");
  outcome = engine_->Prepare(d.Text(R"({"file":"missing.wasm"})"), modules_, kNever);
  ASSERT_TRUE(outcome.ok());
  EXPECT_THAT(ToString(outcome->diagnostics), HasSubstr("/modules/m: Module \"m\" cannot be read"));
  outcome = engine_->Prepare(Diamond().Text("{\"sha256\":\"" + std::string(64, '0') + "\"}"), modules_, kNever);
  ASSERT_TRUE(outcome.ok());
  EXPECT_THAT(ToString(outcome->diagnostics), HasSubstr("/modules/m: Module \"m\" has the hash "));
  outcome = engine_->Prepare("{", modules_, kNever);
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(HasErrors(outcome->diagnostics));
}

// A restriction that no device satisfies gives kFailedPrecondition and names the node.
TEST_F(EngineTest, NoDeviceForNode) {
  const StatusOr<PrepareOutcome> outcome =
      engine_->Prepare(OneNode("triple", R"(,"devices":["gpu"])").Text(), modules_, kNever);
  EXPECT_TRUE(absl::IsFailedPrecondition(outcome.status())) << outcome.status();
  EXPECT_THAT(Message(outcome.status()), AllOf(HasSubstr("/nodes/second"), HasSubstr("cpu:0")));
}

// The interpreter runs nodes that the CPU refuses, with a warning; nodes that the CPU accepts never run there.
TEST_F(EngineTest, FallsBackToTheReferenceDevice) {
  const FunctionDeviceOptions interp{
      .id = "interp:0", .kind = DeviceKind::kInterp, .artifact_kind = ArtifactKind::kInterp};
  compiler_.barrier_entries = {"triple"};
  Devices({interp, {.supports_barrier = false}});
  auto graph = Prepare(OneNode("triple", ""));
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(ToString(diagnostics_),
              AllOf(HasSubstr("\"second\" runs on device interp:0"), HasSubstr("It has no barriers.")));
  std::map<std::string, Tensor> inputs = {{"x", {1, 2, 3, 4}}};
  ASSERT_TRUE(Run(*graph, inputs).ok());
  EXPECT_THAT(outputs_["y"], ElementsAre(6, 9, 12, 15));
  EXPECT_EQ(result_.nodes[0].device, "cpu:0");
  EXPECT_EQ(result_.nodes[1].device, "interp:0");
  // The same holds for a compile that only the CPU's back end refuses.
  compiler_.barrier_entries.clear();
  compiler_.refused[ArtifactKind::kCpuImage] = {"triple"};
  graph = Prepare(OneNode("triple", ""));
  ASSERT_NE(graph, nullptr);
  ASSERT_TRUE(Run(*graph, inputs).ok());
  EXPECT_EQ(result_.nodes[1].device, "interp:0");
}

// Temporaries larger than the device's memory are refused with both numbers, as soon as sizes are known.
TEST_F(EngineTest, RefusesTooMuchMemory) {
  Devices({{.memory_bytes = 20}});
  const StatusOr<PrepareOutcome> outcome = engine_->Prepare(Diamond().Text(), modules_, kNever);
  EXPECT_TRUE(absl::IsResourceExhausted(outcome.status())) << outcome.status();
  EXPECT_THAT(Message(outcome.status()),
              AllOf(HasSubstr("node \"left\""), HasSubstr("512 bytes against 10"), HasSubstr("device cpu:0")));
}

// Random graphs on every mix of devices match direct evaluation.
TEST_F(EngineTest, RandomGraphsMatchDirectEvaluation) {
  const FunctionDeviceOptions interp{
      .id = "interp:0", .kind = DeviceKind::kInterp, .artifact_kind = ArtifactKind::kInterp};
  const FunctionDeviceOptions gpu0{
      .id = "gpu:0", .kind = DeviceKind::kGpu, .host_visible = false, .runs_inline = false};
  FunctionDeviceOptions gpu1 = gpu0;
  gpu1.id = "gpu:1";
  FunctionDeviceOptions exporter = gpu0, importer = gpu1;
  exporter.silicon = importer.silicon = "one";
  exporter.exports_memory = importer.imports_memory = true;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(seed);
    SeededRng rng(seed);
    importer.fails_to_import = seed % 4 == 3;
    Devices(seed % 2 == 0 ? std::vector<FunctionDeviceOptions>{{}, interp, gpu0, gpu1}
                          : std::vector<FunctionDeviceOptions>{importer, {}, interp, exporter});

    const char* devices[] = {"", R"(,"devices":["cpu"])", R"(,"devices":["interp:0"])", R"(,"devices":["gpu:0"])",
                             R"(,"devices":["gpu:1"])"};
    const uint64_t device_kinds = 1 + rng.Below(5);
    Document d;
    std::map<std::string, Tensor> inputs;
    // Maps endpoints to contents by direct evaluation.
    std::vector<std::pair<std::string, Tensor>> values;
    for (uint64_t i = 0; i <= rng.Below(3); ++i) {
      const std::string name = "x" + std::to_string(i);
      d.Input(name);
      for (int k = 0; k < 4; ++k) {
        inputs[name].push_back(static_cast<int32_t>(rng.Next()));
      }
      values.push_back({name, inputs[name]});
    }
    const auto combine = [](uint32_t fa, const Tensor& a, uint32_t fb, const Tensor& b, uint32_t add) {
      Tensor out(4);
      for (int k = 0; k < 4; ++k) {
        out[k] = static_cast<int32_t>(fa * static_cast<uint32_t>(a[k]) + fb * static_cast<uint32_t>(b[k]) + add);
      }
      return out;
    };
    for (uint64_t n = 0; n < 1 + rng.Below(40); ++n) {
      const std::string name = "n" + std::to_string(n);
      const std::string device = devices[rng.Below(device_kinds)];
      const auto [a_name, a] = values[rng.Below(values.size())];
      const auto [b_name, b] = values[values.size() - 1 - rng.Below(std::min<size_t>(values.size(), 3))];
      switch (rng.Below(4)) {
        case 0:
          d.Node(name, "add1", {"inout data"}, device);
          d.Edge(b_name, name + ".data");
          values.push_back({name + ".data", combine(1, b, 0, b, 1)});
          break;
        case 1:
          d.Node(name, "make7", {"out data"}, device);
          values.push_back({name + ".data", Tensor(4, 7)});
          break;
        case 2:
          d.Node(name, "join", {"in a", "in b", "out c"}, device);
          d.Edge(a_name, name + ".a");
          d.Edge(b_name, name + ".b");
          values.push_back({name + ".c", combine(2, a, 1, b, 0)});
          break;
        default:
          d.Node(name, "mix", {"in a", "inout b"}, device);
          d.Edge(a_name, name + ".a");
          d.Edge(b_name, name + ".b");
          values.push_back({name + ".b", combine(1, a, 3, b, 0)});
      }
    }
    std::map<std::string, Tensor> want;
    for (uint64_t o = 0; o < 1 + rng.Below(4); ++o) {
      const auto& [name, value] = values[values.size() - 1 - rng.Below(std::min<size_t>(values.size(), 8))];
      d.Output("y" + std::to_string(o));
      d.Edge(name, "y" + std::to_string(o));
      want["y" + std::to_string(o)] = value;
    }
    auto graph = Prepare(d);
    ASSERT_NE(graph, nullptr);
    const std::map<std::string, Tensor> before = inputs;
    for (int run = 0; run < 2; ++run) {
      outputs_.clear();
      const Status status = Run(*graph, inputs);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(outputs_, want);
      ASSERT_EQ(inputs, before);
    }
  }
}

// A kernel that fails on a queueing device fails the run with its name, and later runs work.
TEST_F(EngineTest, FailuresOnQueueingDevices) {
  Devices({{}, {.id = "gpu:0", .kind = DeviceKind::kGpu, .host_visible = false, .runs_inline = false}});
  Document d;
  d.Input("x");
  d.Output("y");
  d.Node("bad", "trap", {"inout data"}, R"(,"devices":["gpu"],"instances":[4])");
  d.Node("after", "add1", {"inout data"}, R"(,"devices":["cpu"])");
  d.Edge("x", "bad.data");
  d.Edge("bad.data", "after.data");
  d.Edge("after.data", "y");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  std::map<std::string, Tensor> inputs = {{"x", {1, 2, 3, 4}}};
  for (int run = 0; run < 3; ++run) {
    const Status status = Run(*graph, inputs);
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(Message(status), HasSubstr("Node \"bad\" trapped"));
  }
}

}  // namespace
}  // namespace hpvm::engine
