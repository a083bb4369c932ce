// SPDX-License-Identifier: Apache-2.0
// Tests runs over several devices whose kernels are C++ functions: repetitions that hand values over, devices that
// are lost, stops and failures while work is in flight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
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
using testing::FunctionDeviceCounts;
using testing::FunctionDeviceOptions;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::KernelFunctions;

using Tensor = std::vector<int32_t>;

int32_t* I32(const FunctionCall& call, size_t argument) {
  return reinterpret_cast<int32_t*>(call.arguments[argument].data);
}
size_t Count(const FunctionCall& call, size_t argument) { return call.arguments[argument].bytes / sizeof(int32_t); }

// Updates each element of argument `to`, in unsigned arithmetic, because it wraps.
template <typename Update>
testing::KernelFunction Each(size_t to, Update update) {
  return [=](const FunctionCall& call) {
    for (size_t i = 0; i < Count(call, to); ++i) {
      uint32_t values[3] = {};
      for (size_t argument = 0; argument < call.arguments.size() && argument < 3; ++argument) {
        values[argument] = static_cast<uint32_t>(I32(call, argument)[i]);
      }
      I32(call, to)[i] = static_cast<int32_t>(update(values));
    }
    return ir::TrapCode::kNone;
  };
}

// Blocks launches of "gate" until it is opened, and records their first elements in order.
struct Gate {
  std::atomic<bool> is_open{true};
  std::chrono::microseconds pause{0};  // Duration of a launch.
  std::mutex mutex;
  std::vector<int32_t> passed;  // Guarded by mutex.
};

KernelFunctions MakeKernels(Gate& gate) {
  KernelFunctions kernels;
  kernels["gate"] = [&gate](const FunctionCall& call) {
    while (!gate.is_open) {
      std::this_thread::yield();
    }
    std::this_thread::sleep_for(gate.pause);
    std::lock_guard lock(gate.mutex);
    gate.passed.push_back(I32(call, 0)[0]);
    return ir::TrapCode::kNone;
  };
  kernels["zero"] = Each(0, [](const uint32_t*) { return 0u; });
  kernels["add1"] = Each(0, [](const uint32_t* v) { return v[0] + 1; });
  kernels["triple"] = Each(0, [](const uint32_t* v) { return v[0] * 3; });
  kernels["make7"] = Each(0, [](const uint32_t* v) { return v[0] + 7; });
  kernels["join"] = Each(2, [](const uint32_t* v) { return 2 * v[0] + v[1] + 5; });
  kernels["mix"] = Each(1, [](const uint32_t* v) { return 3 * v[1] + v[0]; });
  kernels["next"] = Each(1, [](const uint32_t* v) { return v[0] + 1; });
  // b = 1 when a's first element is at least 5, else 0.
  kernels["is5"] = [](const FunctionCall& call) {
    I32(call, 1)[0] = I32(call, 0)[0] >= 5 ? 1 : 0;
    return ir::TrapCode::kNone;
  };
  // data[0] += k.
  kernels["addk"] = [](const FunctionCall& call) {
    I32(call, 0)[0] += static_cast<int32_t>(call.arguments[1].scalar);
    return ir::TrapCode::kNone;
  };
  kernels["trap5"] = [](const FunctionCall& call) {
    ++I32(call, 0)[0];
    return I32(call, 0)[0] >= 5 ? ir::TrapCode::kDivideByZero : ir::TrapCode::kNone;
  };
  kernels["spin"] = [](const FunctionCall& call) {
    while (call.stop->load() == 0) {
      std::this_thread::yield();
    }
    return ir::TrapCode::kStopped;
  };
  return kernels;
}

FunctionDeviceOptions Gpu(const std::string& id) {
  FunctionDeviceOptions options;
  options.id = id;
  options.kind = DeviceKind::kGpu;
  options.artifact_kind = ArtifactKind::kOpenCl;
  options.host_visible = false;
  options.runs_inline = false;
  return options;
}

class FileModules final : public ModuleSource {
 public:
  StatusOr<std::span<const uint8_t>> Find(const graph::Module&) override { return std::span<const uint8_t>(bytes_); }

 private:
  std::vector<uint8_t> bytes_ = {0, 'a', 's', 'm'};
};

std::string On(const std::string& device) { return R"(,"devices":[")" + device + "\"]"; }
std::string Hint(const std::string& device) { return R"(,"hints":[")" + device + "\"]"; }

class RunTest : public ::testing::Test {
 protected:
  void Devices(const std::vector<FunctionDeviceOptions>& devices) {
    engine_.reset();
    devices_.clear();
    counts_.assign(devices.size(), {});
    std::vector<Device*> borrowed;
    for (size_t i = 0; i < devices.size(); ++i) {
      devices_.push_back(CreateFunctionDevice(hub_, kernels_, devices[i], &counts_[i]));
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
    return outcome->graph;
  }

  static Binding Bind(Tensor& tensor) {
    return {.type = ElementType::kI32,
            .shape = {tensor.size()},
            .data = reinterpret_cast<uint8_t*>(tensor.data()),
            .bytes = tensor.size() * sizeof(int32_t)};
  }

  // Allocates outputs in outputs_.
  Status Run(PreparedGraph& graph, std::map<std::string, Tensor>& inputs, RunRequest request = {}) {
    for (auto& [name, tensor] : inputs) {
      request.inputs.try_emplace(name, Bind(tensor));
    }
    outputs_.clear();
    lost_.clear();
    request.lost_devices = &lost_;
    request.allocate_output = [&](const std::string& name, ElementType, const std::vector<uint64_t>&,
                                  uint64_t bytes) -> StatusOr<uint8_t*> {
      // Deliberately not zeroed.
      outputs_[name].assign((bytes + 3) / sizeof(int32_t), -1);
      return reinterpret_cast<uint8_t*>(outputs_[name].data());
    };
    StatusOr<RunResult> result = engine_->Run(graph, request);
    if (result.ok()) {
      result_ = *std::move(result);
    }
    return result.status();
  }

  Hub hub_;
  Gate gate_;
  const KernelFunctions kernels_ = MakeKernels(gate_);
  FunctionCompiler compiler_{kernels_};
  FileModules modules_;
  std::vector<FunctionDeviceCounts> counts_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Engine> engine_;
  RunResult result_;
  std::map<std::string, Tensor> outputs_;
  std::vector<std::string> lost_;
};

// x -> add1 -> triple -> y, each on its own device.
Document Chain(const std::string& first, const std::string& second) {
  Document d;
  d.Input("x");
  d.Output("y");
  d.Node("a", "add1", {"inout data"}, first);
  d.Node("b", "triple", {"inout data"}, second);
  d.Edge("x", "a.data");
  d.Edge("a.data", "b.data");
  d.Edge("b.data", "y");
  return d;
}

uint32_t Chained(uint32_t x, uint32_t repetitions) {
  for (uint32_t i = 0; i < repetitions; ++i) {
    x = (x + 1) * 3;
  }
  return x;
}

// The output of each repetition is the input of the next, on one device and over two; the caller's input is
// unchanged.
TEST_F(RunTest, RotationsHandValuesOver) {
  for (const bool has_copy_lanes : {false, true}) {
    FunctionDeviceOptions gpu = Gpu("opencl:0");
    gpu.has_copy_lanes = has_copy_lanes;
    Devices({{}, gpu});
    for (const auto& [first, second] : std::vector<std::pair<std::string, std::string>>{
             {"cpu", "cpu"}, {"gpu", "gpu"}, {"cpu", "gpu"}, {"gpu", "cpu"}}) {
      auto graph = Prepare(Chain(On(first), On(second)));
      ASSERT_NE(graph, nullptr);
      for (const uint32_t repeat : {1u, 2u, 3u, 4u, 7u, 100u}) {
        SCOPED_TRACE(first + " " + second + " " + std::to_string(repeat));
        std::map<std::string, Tensor> inputs = {{"x", {0, 1, 2, 3}}};
        ASSERT_TRUE(Run(*graph, inputs, {.repeat = repeat, .rotations = {{"y", "x"}}}).ok());
        for (uint32_t i = 0; i < 4; ++i) {
          EXPECT_EQ(static_cast<uint32_t>(outputs_["y"][i]), Chained(i, repeat));
        }
        EXPECT_THAT(inputs["x"], ElementsAre(0, 1, 2, 3));
        EXPECT_EQ(result_.repetitions, repeat);
        EXPECT_FALSE(result_.is_converged);
        EXPECT_EQ(result_.nodes_run, 2 * repeat);
        for (const NodeRecord& node : result_.nodes) {
          EXPECT_EQ(node.runs, repeat) << node.path;
          EXPECT_GE(node.total_ns, node.end_ns - node.start_ns) << node.path;
        }
      }
      // Without rotations every repetition starts from the same inputs.
      std::map<std::string, Tensor> inputs = {{"x", {0, 1, 2, 3}}};
      ASSERT_TRUE(Run(*graph, inputs, {.repeat = 5}).ok());
      EXPECT_THAT(outputs_["y"], ElementsAre(3, 6, 9, 12));
    }
  }
}

// Two outputs trade places, one of which is an input passed on unchanged, and one output is only written.
TEST_F(RunTest, RotationsHappenAtOnce) {
  Devices({{}, Gpu("opencl:0")});
  Document d;
  d.Input("a");
  d.Input("b");
  d.Output("p");
  d.Output("q");
  d.Output("sum");
  d.Node("inc", "add1", {"inout data"}, On("gpu"));
  d.Node("join", "join", {"in a", "in b", "out c"}, On("cpu"));
  d.Edge("a", "inc.data");
  d.Edge("inc.data", "p");
  d.Edge("b", "q");
  d.Edge("a", "join.a");
  d.Edge("b", "join.b");
  d.Edge("join.c", "sum");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  for (const uint32_t repeat : {1u, 2u, 5u}) {
    std::map<std::string, Tensor> inputs = {{"a", {10, 20, 30, 40}}, {"b", {1, 2, 3, 4}}};
    ASSERT_TRUE(Run(*graph, inputs, {.repeat = repeat, .rotations = {{"p", "b"}, {"q", "a"}}}).ok());
    int32_t a = 10, b = 1, p = 0, q = 0, sum = 0;
    for (uint32_t i = 0; i < repeat; ++i) {
      p = a + 1;
      q = b;
      sum = 2 * a + b + 5;
      b = p;
      a = q;
    }
    EXPECT_EQ(outputs_["p"][0], p) << repeat;
    EXPECT_EQ(outputs_["q"][0], q) << repeat;
    EXPECT_EQ(outputs_["sum"][0], sum) << repeat;
    EXPECT_THAT(inputs["a"], ElementsAre(10, 20, 30, 40));
    EXPECT_THAT(inputs["b"], ElementsAre(1, 2, 3, 4));
  }
}

Document Counter(const std::string& next, const std::string& test) {
  Document d("i32", "[1]");
  d.Input("x");
  d.Output("y");
  d.Output("done");
  d.Node("next", "next", {"in a", "out b"}, next);
  d.Node("test", "is5", {"in a", "out b"}, test);
  d.Edge("x", "next.a");
  d.Edge("next.b", "y");
  d.Edge("next.b", "test.a");
  d.Edge("test.b", "done");
  return d;
}

// A run ends with the repetition whose output is nonzero, wherever that was computed.
TEST_F(RunTest, UntilEndsTheRun) {
  Devices({{}, Gpu("opencl:0")});
  for (const auto& [next, test] : std::vector<std::pair<std::string, std::string>>{
           {"cpu", "cpu"}, {"gpu", "gpu"}, {"cpu", "gpu"}, {"gpu", "cpu"}}) {
    SCOPED_TRACE(next + " " + test);
    auto graph = Prepare(Counter(On(next), On(test)));
    ASSERT_NE(graph, nullptr);
    for (const int32_t from : {0, 3, 4, 9, 0}) {
      std::map<std::string, Tensor> inputs = {{"x", {from}}};
      ASSERT_TRUE(Run(*graph, inputs, {.repeat = 50, .rotations = {{"y", "x"}}, .until = "done"}).ok());
      EXPECT_THAT(outputs_["y"], ElementsAre(std::max(from + 1, 5)));
      EXPECT_THAT(outputs_["done"], ElementsAre(1));
      EXPECT_EQ(result_.repetitions, static_cast<uint32_t>(std::max(1, 5 - from)));
      EXPECT_TRUE(result_.is_converged);
    }
    std::map<std::string, Tensor> inputs = {{"x", {0}}};
    ASSERT_TRUE(Run(*graph, inputs, {.repeat = 3, .rotations = {{"y", "x"}}, .until = "done"}).ok());
    EXPECT_EQ(result_.repetitions, 3u);
    EXPECT_FALSE(result_.is_converged);
    EXPECT_THAT(outputs_["y"], ElementsAre(3));
    // Also with a single repetition, and with repetitions without rotations.
    inputs["x"] = {7};
    ASSERT_TRUE(Run(*graph, inputs, {.repeat = 1, .until = "done"}).ok());
    EXPECT_TRUE(result_.is_converged);
    ASSERT_TRUE(Run(*graph, inputs, {.repeat = 9, .until = "done"}).ok());
    EXPECT_EQ(result_.repetitions, 1u);
  }
}

// A kernel's scalar that a rotation feeds is read again for each repetition.
TEST_F(RunTest, RotatedScalars) {
  Devices({{}, Gpu("opencl:0")});
  for (const std::string device : {"cpu", "gpu"}) {
    Document d("i32", "[]");
    d.Input("k");
    d.Input("x");
    d.Output("k2");
    d.Output("y");
    d.Node("grow", "add1", {"inout data"}, On(device));
    d.Node("add", "addk", {"inout data"},
           R"(,"scalars":[{"name":"k","type":"i32","value":{"input":"k"}}])" + On(device));
    d.Edge("k", "grow.data");
    d.Edge("grow.data", "k2");
    d.Edge("x", "add.data");
    d.Edge("add.data", "y");
    auto graph = Prepare(d);
    ASSERT_NE(graph, nullptr);
    int32_t k = 10, x = 1, k2 = 0, y = 0;
    const auto scalar = [](int32_t& value) {
      return Binding{.type = ElementType::kI32, .shape = {}, .data = reinterpret_cast<uint8_t*>(&value), .bytes = 4};
    };
    RunRequest request{.repeat = 4, .rotations = {{"k2", "k"}, {"y", "x"}}};
    request.inputs = {{"k", scalar(k)}, {"x", scalar(x)}};
    request.outputs = {{"k2", scalar(k2)}, {"y", scalar(y)}};
    ASSERT_TRUE(engine_->Run(*graph, request).ok());
    EXPECT_EQ(k2, 14);
    EXPECT_EQ(y, 1 + 10 + 11 + 12 + 13);
  }
}

// Faults of rotations and `until` are reported in sentences.
TEST_F(RunTest, RefusesBadRepetitions) {
  Devices({{}});
  Document d;
  d.Input("x");
  d.InputOf("short", "i32", "[3]");
  d.InputOf("wide", "f32", "[4]");
  d.Output("y");
  d.Output("z");
  d.OutputOf("half", "f16", "[1]");
  d.Node("a", "add1", {"inout data"});
  d.Edge("x", "a.data");
  d.Edge("a.data", "y");
  d.Edge("x", "z");
  d.RawNode("h", R"({"ports":[{"name":"data","access":"out","type":"f16","shape":[1]}],)"
                 R"("variants":[{"module":"m","entry":"make7"}]})");
  d.Edge("h.data", "half");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  struct Case {
    const char* name;
    std::vector<Rotation> rotations;
    std::string until;
    const char* want;
  };
  const Case cases[] = {
      {"no output",
       {{"w", "x"}},
       "",
       "A rotation names the output \"w\", which the graph does not have; its outputs are: y, z, half."},
      {"no input",
       {{"y", "y"}},
       "",
       "A rotation names the input \"y\", which the graph does not have; its inputs are: x, short, wide."},
      {"output twice", {{"y", "x"}, {"y", "wide"}}, "",
       "Two rotations name the port \"y\"; each port may be in one rotation."},
      {"input twice", {{"y", "x"}, {"z", "x"}}, "",
       "Two rotations name the port \"x\"; each port may be in one rotation."},
      {"shape",
       {{"y", "short"}},
       "",
       "Output \"y\" (i32 [4]) cannot become input \"short\" (i32 [3]): types and shapes must be equal."},
      {"type",
       {{"y", "wide"}},
       "",
       "Output \"y\" (i32 [4]) cannot become input \"wide\" (f32 [4]): types and shapes must be equal."},
      {"until nothing", {}, "w", "The end condition of the run names the output \"w\", which the graph does not have"},
      {"until an input", {}, "x", "The end condition of the run names the output \"x\""},
      {"until many", {}, "y", "The output \"y\", which ends the run, has the shape [4]; it must be one element."},
      {"until half",
       {},
       "half",
       "The output \"half\", which ends the run, has elements of type f16; only integers, bool, f32 and f64 can be "
       "tested for zero."},
  };
  std::vector<float> wide(4);
  for (const Case& c : cases) {
    for (const uint32_t repeat : {1u, 3u}) {
      SCOPED_TRACE(c.name);
      std::map<std::string, Tensor> inputs = {{"x", {1, 2, 3, 4}}, {"short", {1, 2, 3}}};
      RunRequest request{.repeat = repeat, .rotations = c.rotations, .until = c.until};
      request.inputs["wide"] = {
          .type = ElementType::kF32, .shape = {4}, .data = reinterpret_cast<uint8_t*>(wide.data()), .bytes = 16};
      // Also when a plan for these sizes already exists.
      for (int time = 0; time < 2; ++time) {
        const Status status = Run(*graph, inputs, request);
        EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
        EXPECT_THAT(Message(status), HasSubstr(c.want));
        ASSERT_TRUE(Run(*graph, inputs, {.inputs = {{"wide", request.inputs["wide"]}}, .repeat = repeat}).ok());
      }
    }
  }
}

// Hundreds of segments alternate between devices: more than are submitted ahead.
TEST_F(RunTest, LongAlternations) {
  for (const bool has_copy_lanes : {false, true}) {
    FunctionDeviceOptions first = Gpu("opencl:0"), second = Gpu("vulkan:0");
    first.has_copy_lanes = second.has_copy_lanes = has_copy_lanes;
    Devices({{}, first, second});
    Document d;
    d.Input("x");
    d.Output("y");
    std::string from = "x";
    uint32_t want = 2;
    const char* const devices[] = {"cpu:0", "opencl:0", "vulkan:0"};
    for (int i = 0; i < 400; ++i) {
      const std::string name = "n" + std::to_string(i);
      d.Node(name, i % 2 == 0 ? "add1" : "triple", {"inout data"}, On(devices[(i * 7 + i / 5) % 3]));
      d.Edge(from, name + ".data");
      from = name + ".data";
      want = i % 2 == 0 ? want + 1 : want * 3;
    }
    d.Edge(from, "y");
    auto graph = Prepare(d);
    ASSERT_NE(graph, nullptr);
    for (const uint32_t repeat : {1u, 3u}) {
      std::map<std::string, Tensor> inputs = {{"x", {2, 2, 2, 2}}};
      ASSERT_TRUE(Run(*graph, inputs, {.repeat = repeat}).ok());
      EXPECT_EQ(static_cast<uint32_t>(outputs_["y"][0]), want);
      EXPECT_EQ(result_.nodes_run, 400 * repeat);
    }
  }
}

// A trap in some repetition ends the run with the node's name and leaves nothing in flight; the next run works.
TEST_F(RunTest, TrapsBetweenRepetitions) {
  Devices({{}, Gpu("opencl:0")});
  for (const std::string device : {"cpu", "gpu"}) {
    auto graph = Prepare([&] {
      Document d;
      d.Input("x");
      d.Output("y");
      d.Node("other", "add1", {"inout data"}, On(device == "cpu" ? "gpu" : "cpu"));
      d.Node("bad", "trap5", {"inout data"}, On(device));
      d.Edge("x", "other.data");
      d.Edge("other.data", "bad.data");
      d.Edge("bad.data", "y");
      return d;
    }());
    ASSERT_NE(graph, nullptr);
    for (int time = 0; time < 3; ++time) {
      std::map<std::string, Tensor> inputs = {{"x", {0, 0, 0, 0}}};
      const Status status = Run(*graph, inputs, {.repeat = 100, .rotations = {{"y", "x"}}});
      EXPECT_TRUE(absl::IsAborted(status)) << status;
      EXPECT_THAT(Message(status), HasSubstr("Node \"bad\" trapped"));
      ASSERT_TRUE(Run(*graph, inputs, {.repeat = 2, .rotations = {{"y", "x"}}}).ok());
      EXPECT_EQ(outputs_["y"][0], 4);
    }
    EXPECT_THAT(lost_, IsEmpty());
  }
}

// A stop at any moment ends the run soon, whatever is in flight.
TEST_F(RunTest, StopsAtAnyMoment) {
  Devices({{}, Gpu("opencl:0")});
  auto graph = Prepare(Chain(On("gpu"), On("cpu")));
  ASSERT_NE(graph, nullptr);
  for (uint32_t i = 0; i < 30; ++i) {
    std::atomic<uint32_t> stop{0};
    std::thread stopper([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(137 * i));
      stop.store(1);
    });
    std::map<std::string, Tensor> inputs = {{"x", {0, 0, 0, 0}}};
    RunRequest request{.repeat = 0xffffffffu, .rotations = {{"y", "x"}}};
    request.stop = &stop;
    const Status status = Run(*graph, inputs, request);
    stopper.join();
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
  }
  std::map<std::string, Tensor> inputs = {{"x", {0, 0, 0, 0}}};
  RunRequest late{.repeat = 0xffffffffu, .rotations = {{"y", "x"}}};
  late.deadline = RealClock().Now() + std::chrono::milliseconds(20);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Run(*graph, inputs, late)));
  EXPECT_TRUE(Run(*graph, inputs).ok());
}

// A failing launch on the CPU stops the work of this run on a driver's device.
TEST_F(RunTest, FailuresStopOtherDevices) {
  Devices({{}, Gpu("opencl:0")});
  Document d;
  d.Input("x");
  d.Output("y");
  d.Output("z");
  d.Node("busy", "spin", {"inout data"}, On("gpu"));
  d.Node("bad", "trap5", {"inout data"}, On("cpu"));
  d.Edge("x", "busy.data");
  d.Edge("busy.data", "y");
  d.Edge("x", "bad.data");
  d.Edge("bad.data", "z");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  std::map<std::string, Tensor> inputs = {{"x", {9, 0, 0, 0}}};
  const Status status = Run(*graph, inputs);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("Node \"bad\" trapped"));
}

// Returns a graph of random shape over the given devices; every node may run anywhere.
Document RandomGraph(uint32_t seed, const std::vector<std::string>& devices) {
  std::mt19937 random(seed);
  Document d("i32", "[64]");
  std::vector<std::string> values = {"x0", "x1"};
  d.Input("x0");
  d.Input("x1");
  const uint32_t nodes = 3 + random() % 20;
  for (uint32_t i = 0; i < nodes; ++i) {
    const std::string name = "n" + std::to_string(i);
    const std::string a = values[random() % values.size()], b = values[random() % values.size()];
    const std::string hint = Hint(devices[random() % devices.size()]);
    switch (random() % 5) {
      case 0:
        d.Node(name, "make7", {"out data"}, hint);
        values.push_back(name + ".data");
        break;
      case 1:
        d.Node(name, "join", {"in a", "in b", "out c"}, hint);
        d.Edge(a, name + ".a");
        d.Edge(b, name + ".b");
        values.push_back(name + ".c");
        break;
      case 2:
        d.Node(name, "mix", {"in a", "inout b"}, hint);
        d.Edge(a, name + ".a");
        d.Edge(b, name + ".b");
        values.push_back(name + ".b");
        break;
      default:
        d.Node(name, random() % 2 == 0 ? "add1" : "triple", {"inout data"}, hint);
        d.Edge(a, name + ".data");
        values.push_back(name + ".data");
    }
  }
  d.Output("y0");
  d.Output("y1");
  d.Edge(values.back(), "y0");
  d.Edge(values[random() % values.size()], "y1");
  return d;
}

// Devices are lost at any moment: the results equal those of a run without losses, nodes are counted once, and later
// runs do without the lost devices.
TEST_F(RunTest, RunsGoOnWithoutLostDevices) {
  uint32_t losses = 0, kept_nodes = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::atomic<int64_t> left[2] = {static_cast<int64_t>(random() % 24), static_cast<int64_t>(random() % 60)};
    FunctionDeviceOptions first = Gpu("opencl:0"), second = Gpu("vulkan:0");
    first.has_copy_lanes = random() % 2 == 0;
    first.commands_left = &left[0];
    second.commands_left = &left[1];
    Devices({{}, first, second});
    auto graph = Prepare(RandomGraph(seed, {"cpu:0", "opencl:0", "vulkan:0"}));
    ASSERT_NE(graph, nullptr);
    std::map<std::string, Tensor> inputs = {{"x0", Tensor(64)}, {"x1", Tensor(64)}};
    for (int32_t i = 0; i < 64; ++i) {
      inputs["x0"][static_cast<size_t>(i)] = i * 7;
      inputs["x1"][static_cast<size_t>(i)] = 1000 - i;
    }
    const std::map<std::string, Tensor> before = inputs;
    RunRequest request{.repeat = static_cast<uint32_t>(1 + random() % 3)};
    if (random() % 2 == 0) {
      request.rotations = {{"y0", "x1"}};
    }
    const Status status = Run(*graph, inputs, request);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(inputs, before);
    EXPECT_EQ(result_.lost_devices, lost_.size());
    EXPECT_EQ(result_.repetitions, request.repeat);
    losses += result_.lost_devices;
    const std::map<std::string, Tensor> got = outputs_;
    const std::vector<std::string> lost = lost_;
    std::set<std::string> paths;
    for (const NodeRecord& node : result_.nodes) {
      EXPECT_TRUE(paths.insert(node.path).second) << node.path;
      kept_nodes += !lost.empty() && node.device == lost[0] ? 1 : 0;
    }
    EXPECT_EQ(paths.size() * request.repeat, result_.nodes_run);
    // Runs again, without the lost devices.
    left[0] = left[1] = -1;
    ASSERT_TRUE(Run(*graph, inputs, request).ok());
    EXPECT_EQ(outputs_, got);
    for (const NodeRecord& node : result_.nodes) {
      EXPECT_THAT(lost, ::testing::Not(::testing::Contains(node.device)));
    }
    graph.reset();
    Devices({{}});
    graph = Prepare(RandomGraph(seed, {"cpu:0"}));
    ASSERT_NE(graph, nullptr);
    ASSERT_TRUE(Run(*graph, inputs, request).ok());
    EXPECT_EQ(outputs_, got);
  }
  EXPECT_GT(losses, 100u);
  // Some results of a lost device that were in host memory were not computed again.
  EXPECT_GT(kept_nodes, 0u);
}

// When a device is lost in one graph's run, another graph notices it on requesting memory for a plan, and also
// continues without it. When no other device may run a node, the run fails with the device.
TEST_F(RunTest, LossesAreFoundWhereMemoryIsWanted) {
  std::atomic<int64_t> left{-1};
  FunctionDeviceOptions gpu = Gpu("vulkan:0");
  gpu.commands_left = &left;
  Devices({{}, gpu});
  auto first = Prepare(Chain(Hint("gpu"), Hint("gpu"))), second = Prepare(Chain(Hint("gpu"), Hint("gpu")));
  auto only = Prepare(Chain(On("cpu"), On("gpu")));
  ASSERT_TRUE(first != nullptr && second != nullptr && only != nullptr);
  std::map<std::string, Tensor> inputs = {{"x", {1, 2, 3, 4}}};
  ASSERT_TRUE(Run(*first, inputs).ok());
  ASSERT_EQ(result_.nodes[0].device, "vulkan:0");
  left = 0;
  for (PreparedGraph* graph : {first.get(), second.get()}) {
    ASSERT_TRUE(Run(*graph, inputs).ok());
    EXPECT_THAT(outputs_["y"], ElementsAre(6, 9, 12, 15));
    EXPECT_EQ(result_.nodes[0].device, "cpu:0");
    EXPECT_EQ(result_.lost_devices, 1u);
    EXPECT_THAT(lost_, ElementsAre("vulkan:0"));
  }
  const Status status = Run(*only, inputs);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("vulkan:0"));
  EXPECT_THAT(lost_, ElementsAre("vulkan:0"));
}

// The best placement known for other sizes is forgotten when it uses a lost device.
TEST_F(RunTest, LostDevicesAreForgottenForAllSizes) {
  std::atomic<int64_t> left{-1};
  FunctionDeviceOptions gpu = Gpu("vulkan:0");
  gpu.commands_left = &left;
  Devices({{}, gpu});
  Document d("i32", "[\"n\"]");
  d.Input("x");
  d.Output("y");
  d.Node("a", "add1", {"inout data"}, Hint("gpu"));
  d.Edge("x", "a.data");
  d.Edge("a.data", "y");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  std::map<std::string, Tensor> four = {{"x", {1, 2, 3, 4}}}, two = {{"x", {1, 2}}};
  ASSERT_TRUE(Run(*graph, four).ok());
  // For the other size: a plan on the processor, although the GPU has turned out to be better.
  ASSERT_TRUE(Run(*graph, two).ok());
  const std::vector<scheduler::Task> on_gpu = graph->plans.front()->tasks;
  ASSERT_EQ(on_gpu.front().device, 1u);
  std::vector<scheduler::Task> on_cpu = on_gpu;
  on_cpu.front().device = 0;
  const std::vector<scheduler::Candidate>& candidates =
      graph->candidates[graph->plans.front()->flat.nodes[0].leaf.index];
  on_cpu.front().choice =
      static_cast<uint32_t>(std::ranges::find(candidates, 0u, &scheduler::Candidate::device) - candidates.begin());
  StatusOr<std::unique_ptr<Plan>> plan = BuildPlan(*graph, {.symbols = {2}, .tasks = &on_cpu});
  ASSERT_TRUE(plan.ok()) << plan.status();
  (*plan)->input_shapes = {{2}, {}};
  // The GPU plan is the champion to which the next run returns.
  (*plan)->review.other_tasks = on_gpu;
  (*plan)->review.is_challenger = true;
  graph->plans.front() = *std::move(plan);
  left = 0;
  ASSERT_TRUE(Run(*graph, four).ok());
  EXPECT_EQ(result_.lost_devices, 1u);
  const Status status = Run(*graph, two);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(result_.lost_devices, 0u);
  EXPECT_THAT(outputs_["y"], ElementsAre(2, 3));
}

// Runs of one graph take turns in order of arrival.
TEST_F(RunTest, TurnsAreInOrder) {
  constexpr int32_t kRuns = 8;
  Devices({{}});
  Document d;
  d.Input("x");
  d.Output("y");
  d.Node("a", "gate", {"inout data"});
  d.Edge("x", "a.data");
  d.Edge("a.data", "y");
  auto graph = Prepare(d);
  ASSERT_NE(graph, nullptr);
  gate_.is_open = false;
  std::atomic<uint32_t> stop{0};
  std::vector<std::thread> threads;
  const auto waiting = [&] {
    std::lock_guard lock(graph->mutex);
    return graph->waiting.size() + (graph->is_running ? 1 : 0);
  };
  for (int32_t i = 0; i < kRuns; ++i) {
    threads.emplace_back([&, i] {
      Tensor x = {i, 0, 0, 0}, y(4);
      RunRequest request;
      request.inputs["x"] = Bind(x);
      request.outputs["y"] = Bind(y);
      request.stop = i == 3 ? &stop : nullptr;
      EXPECT_EQ(engine_->Run(*graph, request).ok(), i != 3);
    });
    while (waiting() != static_cast<size_t>(i) + 1) {
      std::this_thread::yield();
    }
  }
  stop = 1;  // A run in the middle gives up.
  threads[3].join();
  gate_.is_open = true;
  for (int32_t i = 0; i < kRuns; ++i) {
    if (i != 3) {
      threads[static_cast<size_t>(i)].join();
    }
  }
  EXPECT_THAT(gate_.passed, ElementsAre(0, 1, 2, 4, 5, 6, 7));
}

// The seventh of ten repetitions fails, with several in flight: the six before it have run, and the trap is that of
// the seventh, also when the host reads a result after each.
TEST_F(RunTest, TrapsInTheMiddleOfRepetitionsInFlight) {
  for (const bool has_copy_lanes : {false, true}) {
    FunctionDeviceOptions first = Gpu("opencl:0"), second = Gpu("vulkan:0");
    first.has_copy_lanes = second.has_copy_lanes = has_copy_lanes;
    Devices({{}, first, second});
    Document d;
    d.Input("x");
    d.Output("y");
    d.OutputOf("z", "i32", "[1]");
    d.Node("note", "gate", {"inout data"}, On("opencl:0"));
    d.Node("bad", "trap5", {"inout data"}, On("vulkan:0"));
    d.RawNode("zero", R"({"ports":[{"name":"data","access":"out","type":"i32","shape":[1]}],)"
                      R"("variants":[{"module":"m","entry":"zero"}],"devices":["opencl:0"]})");
    d.Edge("x", "note.data");
    d.Edge("note.data", "bad.data");
    d.Edge("bad.data", "y");
    d.Edge("zero.data", "z");
    auto graph = Prepare(d);
    ASSERT_NE(graph, nullptr);
    for (const std::string until : {"", "z"}) {
      SCOPED_TRACE(until);
      gate_.passed.clear();
      std::map<std::string, Tensor> inputs = {{"x", {-2, 0, 0, 0}}};
      const Status status = Run(*graph, inputs, {.repeat = 10, .rotations = {{"y", "x"}}, .until = until});
      EXPECT_TRUE(absl::IsAborted(status)) << status;
      EXPECT_THAT(Message(status), HasSubstr("Node \"bad\" trapped"));
      EXPECT_THAT(gate_.passed, ElementsAre(-2, -1, 0, 1, 2, 3, 4));
      // Up to the sixth repetition, the run succeeds.
      ASSERT_TRUE(Run(*graph, inputs, {.repeat = 6, .rotations = {{"y", "x"}}, .until = until}).ok());
      EXPECT_EQ(outputs_["y"][0], 4);
      EXPECT_EQ(result_.repetitions, 6u);
    }
  }
}

// Wherever in ten repetitions a device is lost, or accepts nothing further, each counted repetition has run.
TEST_F(RunTest, RepetitionsThatCountHaveRun) {
  for (const bool is_refusal : {false, true}) {
    for (int64_t at = 0; at < 40; ++at) {
      SCOPED_TRACE(at);
      std::atomic<int64_t> left{at};
      FunctionDeviceOptions first = Gpu("opencl:0"), second = Gpu("vulkan:0");
      (is_refusal ? second.submissions_left : second.commands_left) = &left;
      Devices({{}, first, second});
      auto graph = Prepare([] {
        Document d;
        d.Input("x");
        d.Output("y");
        d.Output("z");
        d.Node("note", "gate", {"inout data"}, On("opencl:0"));
        d.Node("b", "add1", {"inout data"}, Hint("vulkan:0"));
        d.Edge("x", "note.data");
        d.Edge("x", "b.data");
        d.Edge("note.data", "y");
        d.Edge("b.data", "z");
        return d;
      }());
      ASSERT_NE(graph, nullptr);
      gate_.passed.clear();
      gate_.pause = std::chrono::microseconds(is_refusal ? 300 : 0);
      std::map<std::string, Tensor> inputs = {{"x", {1, 2, 3, 4}}};
      const Status status = Run(*graph, inputs, {.repeat = 10});
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(result_.repetitions, 10u);
      EXPECT_GE(gate_.passed.size(), 10u);
      EXPECT_THAT(outputs_["y"], ElementsAre(1, 2, 3, 4));
      EXPECT_THAT(outputs_["z"], ElementsAre(2, 3, 4, 5));
    }
  }
}

// When no other device may run a node, the run fails with the node and the device.
TEST_F(RunTest, LossesThatNobodyMakesUpFor) {
  std::atomic<int64_t> left{3};
  FunctionDeviceOptions gpu = Gpu("opencl:0");
  gpu.commands_left = &left;
  Devices({{}, gpu});
  auto graph = Prepare(Chain(On("cpu"), On("gpu")));
  ASSERT_NE(graph, nullptr);
  std::map<std::string, Tensor> inputs = {{"x", {1, 2, 3, 4}}};
  ASSERT_TRUE(Run(*graph, inputs).ok());
  for (int time = 0; time < 2; ++time) {
    const Status status = Run(*graph, inputs);
    EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("node \"b\""), HasSubstr("opencl:0")));
  }
}

}  // namespace
}  // namespace hpvm::engine
