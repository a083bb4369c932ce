// SPDX-License-Identifier: Apache-2.0
// Tests plans under limits: launches in parts, budgets that force values out of memory, graphs that fit nowhere.
#include "engine/plan.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/prepared_graph.h"
#include "engine/testing/document.h"
#include "engine/testing/function_device.h"

namespace hpvm::engine {
namespace {

using ::testing::AllOf;
using testing::AnyModule;
using testing::CreateFunctionDevice;
using testing::Document;
using testing::FunctionCall;
using testing::FunctionCompiler;
using testing::FunctionDeviceOptions;
using ::testing::HasSubstr;
using testing::KernelFunctions;

using Tensor = std::vector<int32_t>;

template <typename Function>
testing::KernelFunction Element(Function function) {
  return [function](const FunctionCall& call) {
    const auto at = [&](size_t i) -> int32_t& {
      return reinterpret_cast<int32_t*>(call.arguments[i].data)[call.instance[0]];
    };
    function(at);
    return ir::TrapCode::kNone;
  };
}

// Instance i of the kernel accesses element i of every parameter, and stores to the last one.
ir::BoundsProgram ByElement(uint32_t params) {
  ir::BoundsProgram program;
  program.atoms.push_back({.kind = ir::Atom::Kind::kInstanceId, .index = 0});
  for (uint32_t param = 0; param < params; ++param) {
    const bool is_store = param + 1 == params;
    program.accesses.push_back({.param = param,
                                .reach = 4,
                                .is_store = is_store,
                                .offset = {{.factor = 4, .atoms = {ir::AtomId(0u)}}},
                                .width = 4,
                                .is_load = !is_store,
                                .is_certain = true});
  }
  program.is_complete = program.is_separate = true;
  return program;
}

FunctionDeviceOptions Gpu(const std::string& id) {
  FunctionDeviceOptions gpu;
  gpu.id = id;
  gpu.kind = DeviceKind::kGpu;
  gpu.artifact_kind = ArtifactKind::kOpenCl;
  gpu.host_visible = gpu.runs_inline = false;
  return gpu;
}

class PlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    kernels_["triple"] = Element([](auto at) { at(1) = 3 * at(0) + 1; });
    kernels_["add"] = Element([](auto at) { at(2) = at(0) + at(1); });
    compiler_.bounds["triple"] = ByElement(2);
    compiler_.bounds["add"] = ByElement(3);
  }
  void TearDown() override {
    engine_.reset();
    if (spill_ >= 0) {
      close(spill_);
    }
  }

  void Start(const std::vector<FunctionDeviceOptions>& devices, EngineOptions options = {}) {
    engine_.reset();
    devices_.clear();
    for (const FunctionDeviceOptions& device : devices) {
      devices_.push_back(CreateFunctionDevice(hub_, kernels_, device));
      options.devices.push_back(devices_.back().get());
    }
    options.hub = &hub_;
    options.compiler = &compiler_;
    options.clock = &RealClock();
    engine_ = std::make_unique<Engine>(std::move(options));
  }

  // Returns the sum of `leaves` tensors made from x, all made before the first is added.
  static std::string Sum(size_t leaves, const std::string& where, const std::string& shape = "[\"n\"]") {
    Document d("i32", shape);
    d.Input("x");
    d.Output("y");
    const std::string more = R"(,"instances":)" + shape + where;
    for (size_t i = 0; i < leaves; ++i) {
      const std::string name = "make" + std::to_string(i);
      d.Node(name, "triple", {"in a", "out b"}, more);
      d.Edge(i == 0 ? "x" : "make" + std::to_string(i - 1) + ".b", name + ".a");
    }
    std::string sum = "make" + std::to_string(leaves - 1) + ".b";
    for (size_t i = 0; i + 1 < leaves; ++i) {
      const std::string name = "add" + std::to_string(i);
      d.Node(name, "add", {"in a", "in b", "out c"}, more);
      d.Edge(sum, name + ".a");
      d.Edge("make" + std::to_string(i) + ".b", name + ".b");
      sum = name + ".c";
    }
    d.Edge(sum, "y");
    return d.Text();
  }
  static int32_t SumOf(int32_t x, size_t leaves) {
    uint32_t value = static_cast<uint32_t>(x), sum = 0;
    for (size_t i = 0; i < leaves; ++i) {
      value = 3 * value + 1;
      sum += value;
    }
    return static_cast<int32_t>(sum);
  }

  std::shared_ptr<PreparedGraph> Prepare(const std::string& document) {
    StatusOr<PrepareOutcome> outcome = engine_->Prepare(document, modules_, kNever);
    EXPECT_TRUE(outcome.ok() && outcome->graph != nullptr)
        << outcome.status() << (outcome.ok() ? ToString(outcome->diagnostics) : "");
    return outcome.ok() ? outcome->graph : nullptr;
  }

  // Computes y for x = 0, 1, 2 ...
  StatusOr<Tensor> Run(PreparedGraph& graph, size_t elements) {
    Tensor x(elements), y(elements, -1);
    for (size_t i = 0; i < elements; ++i) {
      x[i] = static_cast<int32_t>(i);
    }
    const auto bind = [&](Tensor& tensor) {
      return Binding{.type = ElementType::kI32,
                     .shape = {elements},
                     .data = reinterpret_cast<uint8_t*>(tensor.data()),
                     .bytes = elements * sizeof(int32_t)};
    };
    RunRequest request{.deadline = deadline_, .may_experiment = may_experiment_, .shortage = shortage_};
    request.inputs["x"] = bind(x);
    request.outputs["y"] = bind(y);
    HPVMD_ASSIGN_OR_RETURN(result_, engine_->Run(graph, request));
    return y;
  }

  // Returns tasks for every node on `device` (an index).
  static std::vector<scheduler::Task> TasksOn(const PreparedGraph& graph, const graph::FlatGraph& flat,
                                              uint32_t device) {
    std::vector<scheduler::Task> tasks;
    for (uint32_t node = 0; node < flat.nodes.size(); ++node) {
      const std::vector<scheduler::Candidate>& candidates = graph.candidates[flat.nodes[node].leaf.index];
      for (uint32_t choice = 0; choice < candidates.size(); ++choice) {
        if (candidates[choice].device == device) {
          tasks.push_back({.node = graph::FlatNodeId(node),
                           .choice = choice,
                           .device = device,
                           .box = {.count = flat.nodes[node].extent}});
        }
      }
    }
    return tasks;
  }

  // Puts a plan that runs everything on `device` in front of the graph's other plans.
  Plan* PlanOn(PreparedGraph& graph, size_t elements, uint32_t device) {
    const graph::SymbolValues symbols = {static_cast<int64_t>(elements)};
    const StatusOr<graph::FlatGraph> flat = graph::Flatten(graph.graph, symbols);
    EXPECT_TRUE(flat.ok());
    const std::vector<scheduler::Task> tasks = TasksOn(graph, *flat, device);
    StatusOr<std::unique_ptr<Plan>> plan = BuildPlan(graph, {.symbols = symbols, .tasks = &tasks});
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok()) {
      return nullptr;
    }
    (*plan)->input_shapes = {{elements}, {}};
    graph.plans.insert(graph.plans.begin(), *std::move(plan));
    return graph.plans.front().get();
  }

  void ExpectSum(const StatusOr<Tensor>& y, size_t leaves) {
    ASSERT_TRUE(y.ok()) << y.status();
    for (size_t i = 0; i < y->size(); ++i) {
      ASSERT_EQ((*y)[i], SumOf(static_cast<int32_t>(i), leaves)) << i;
    }
  }

  int SpillFd() {
    spill_ = memfd_create("spill", MFD_CLOEXEC);
    return spill_;
  }

  Hub hub_;
  KernelFunctions kernels_;
  FunctionCompiler compiler_{kernels_};
  AnyModule modules_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Engine> engine_;
  RunResult result_;
  Time deadline_ = kNever;
  bool may_experiment_ = true;
  DeviceShortage* shortage_ = nullptr;
  int spill_ = -1;
};

constexpr size_t kLeaves = 8;
constexpr size_t kElements = 4096;
constexpr uint64_t kBytes = kElements * sizeof(int32_t);
const char* const kOnGpu = R"(,"devices":["opencl:0"])";

// A device holds half of the graph's simultaneous values: values move to host memory and back.
TEST_F(PlanTest, OverflowsToTheHost) {
  Start({{}, Gpu("opencl:0")}, {.device_bytes_max = 4 * kBytes});
  const auto graph = Prepare(Sum(kLeaves, kOnGpu));
  ASSERT_NE(graph, nullptr);
  for (int again = 0; again < 2; ++again) {
    ExpectSum(Run(*graph, kElements), kLeaves);
  }
  const Plan& plan = *graph->plans.front();
  EXPECT_GT(plan.residency.evictions, 0u);
  EXPECT_EQ(plan.residency.spills, 0u);
  EXPECT_GT(plan.body.moved_bytes, 2 * kBytes);
  EXPECT_EQ(plan.body.spilled_bytes, 0u);
  EXPECT_LE(plan.device_bytes.of(devices_[1].get()), 4 * kBytes);
}

// Neither the device nor the host may hold all values: the rest goes to disk.
TEST_F(PlanTest, OverflowsToTheDisk) {
  Start({{}, Gpu("opencl:0")}, {.host_bytes_max = 2 * kBytes,
                                .device_bytes_max = 4 * kBytes,
                                .spill_fd = SpillFd(),
                                .spill_bytes_max = 64 * kBytes});
  const auto graph = Prepare(Sum(kLeaves, kOnGpu));
  ASSERT_NE(graph, nullptr);
  for (int again = 0; again < 2; ++again) {
    ExpectSum(Run(*graph, kElements), kLeaves);
  }
  const Plan& plan = *graph->plans.front();
  EXPECT_GT(plan.residency.spills, 0u);
  EXPECT_GT(plan.body.spilled_bytes, 0u);
  EXPECT_LE(plan.temporary_bytes, 2 * kBytes);
}

// Host memory alone overflows to disk.
TEST_F(PlanTest, HostMemoryOverflowsToTheDisk) {
  Start({{}}, {.host_bytes_max = 4 * kBytes, .spill_fd = SpillFd(), .spill_bytes_max = 64 * kBytes});
  const auto graph = Prepare(Sum(kLeaves, ""));
  ASSERT_NE(graph, nullptr);
  ExpectSum(Run(*graph, kElements), kLeaves);
  EXPECT_GT(graph->plans.front()->body.spilled_bytes, 0u);
}

// Without a file, with a file that is too small, and with one on a full disk, a sentence gives the sizes.
TEST_F(PlanTest, NowhereToGoIsSaid) {
  Start({{}}, {.host_bytes_max = 4 * kBytes});
  auto graph = Prepare(Sum(kLeaves, ""));
  ASSERT_NE(graph, nullptr);
  Status status = Run(*graph, kElements).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("node \""), HasSubstr(std::to_string(4 * kBytes))));
  Start({{}}, {.host_bytes_max = 4 * kBytes, .spill_fd = SpillFd(), .spill_bytes_max = kBytes});
  graph = Prepare(Sum(kLeaves, ""));
  ASSERT_NE(graph, nullptr);
  status = Run(*graph, kElements).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  const int full = open("/dev/full", O_RDWR | O_CLOEXEC);
  Start({{}}, {.host_bytes_max = 4 * kBytes, .spill_fd = full, .spill_bytes_max = 64 * kBytes});
  close(full);
  graph = Prepare(Sum(kLeaves, ""));
  ASSERT_NE(graph, nullptr);
  status = Run(*graph, kElements).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("spill file cannot be written"), HasSubstr("No space left")));
}

// Sizes that no run can change are checked when the graph is prepared.
TEST_F(PlanTest, WhatCanNeverFitIsRefusedWhenPrepared) {
  Start({{}, Gpu("opencl:0")}, {.device_bytes_max = 2 * kBytes});
  const StatusOr<PrepareOutcome> outcome = engine_->Prepare(Sum(2, kOnGpu, "[4096]"), modules_, kNever);
  EXPECT_TRUE(absl::IsResourceExhausted(outcome.status())) << outcome.status();
  EXPECT_THAT(Message(outcome.status()),
              AllOf(HasSubstr("node \"add0\""), HasSubstr(std::to_string(3 * kBytes) + " bytes against " +
                                                          std::to_string(2 * kBytes) + " on device opencl:0")));
  // The graph would fit elsewhere, and a smaller graph does fit.
  EXPECT_TRUE(engine_->Prepare(Sum(2, "", "[4096]"), modules_, kNever).ok());
  const auto graph = Prepare(Sum(2, kOnGpu, "[512]"));
  ASSERT_NE(graph, nullptr);
  EXPECT_NE(graph->flat, nullptr);
  ExpectSum(Run(*graph, 512), 2);
  EXPECT_EQ(graph->flat, nullptr);  // The plan has taken it.
}

// Sources of challengers with several devices: placed anew twice, and each device alone.
constexpr uint32_t kAnew = 0, kPlaced = 2;
constexpr uint32_t OnDevice(uint32_t device) { return kPlaced + device; }

// Makes the judge want a challenger from `source`, for a plan that usually takes `usual`.
void Seek(PlanReview& review, uint32_t source, Duration usual) {
  review.judge = scheduler::PlanJudge(OnDevice(2), kPlaced);
  const scheduler::PlanJudge::Run run{.ns = static_cast<double>(usual.count()), .promises = source == 0};
  for (int i = 0; i < 200; ++i) {
    review.seeks = review.judge.After(run) == scheduler::PlanJudge::Step::kTry;
    if (review.seeks && review.judge.source() == source) {
      return;
    }
    if (review.seeks) {
      review.judge.Refuse();
    }
  }
  ADD_FAILURE() << "Nobody seeks from " << source;
}

// When there is no room for a better plan, the nodes run where they ran before.
TEST_F(PlanTest, NoRoomForABetterPlanLeavesTheOldOne) {
  FunctionDeviceOptions full = Gpu("opencl:0");
  full.driver_bytes_max = kBytes;
  Start({{}, full});
  const auto graph = Prepare(Sum(kLeaves, R"(,"hints":["gpu"])"));
  ASSERT_NE(graph, nullptr);
  DeviceShortage shortage;
  shortage_ = &shortage;
  const Status alone = Run(*graph, kElements).status();
  ASSERT_TRUE(absl::IsResourceExhausted(alone)) << alone;
  EXPECT_EQ(shortage.device, "opencl:0");
  for (const uint32_t source : {kAnew, OnDevice(1)}) {
    shortage = {};
    graph->plans.clear();
    Plan* const old = PlanOn(*graph, kElements, 0);
    ASSERT_NE(old, nullptr);
    Seek(old->review, source, Duration(1'000'000));
    for (int again = 0; again < 2; ++again) {
      ExpectSum(Run(*graph, kElements), kLeaves);
      EXPECT_EQ(shortage.device, "");
      ASSERT_FALSE(graph->plans.empty());
      EXPECT_EQ(graph->plans.front()->tasks.front().device, 0u);
      EXPECT_FALSE(graph->plans.front()->review.judge.has_challenger());
    }
  }
}

// A run whose deadline is near, or that does not permit experiments, does not try plans that may be worse: it neither
// begins a trial nor continues one.
TEST_F(PlanTest, RunsWithoutTimeAreNotForTrials) {
  Start({{}, Gpu("opencl:0"), Gpu("opencl:1")});
  const auto graph = Prepare(Sum(2, ""));
  ASSERT_NE(graph, nullptr);
  constexpr Duration kUsual = std::chrono::minutes(10);
  Plan* const plan = PlanOn(*graph, kElements, 0);
  plan->makespan = kUsual;
  Seek(plan->review, OnDevice(1), kUsual);
  const auto device = [&] { return graph->plans.front()->tasks.front().device; };
  const auto is_trial = [&] { return graph->plans.front()->review.is_challenger; };
  deadline_ = RealClock().Now() + std::chrono::minutes(20);
  ExpectSum(Run(*graph, kElements), 2);
  EXPECT_EQ(device(), 0u);
  deadline_ = kNever;
  may_experiment_ = false;
  Seek(graph->plans.front()->review, OnDevice(1), kUsual);
  ExpectSum(Run(*graph, kElements), 2);
  EXPECT_EQ(device(), 0u);
  may_experiment_ = true;
  Seek(graph->plans.front()->review, OnDevice(1), kUsual);
  ExpectSum(Run(*graph, kElements), 2);
  EXPECT_EQ(device(), 1u);
  EXPECT_TRUE(is_trial());
  // In the middle of the trial, the best known plan runs. The result of that pair depends on microseconds; the next
  // pair is tried.
  deadline_ = RealClock().Now() + std::chrono::minutes(20);
  ExpectSum(Run(*graph, kElements), 2);
  EXPECT_EQ(device(), 0u);
  EXPECT_FALSE(is_trial());
  deadline_ = RealClock().Now() + std::chrono::hours(200);
  Seek(graph->plans.front()->review, OnDevice(1), kUsual);
  ExpectSum(Run(*graph, kElements), 2);
  EXPECT_TRUE(is_trial());
  EXPECT_NE(device(), 0u);
}

// The kept results of a lost device count as temporaries in host memory: when there is no room for them, the work is
// repeated.
TEST_F(PlanTest, WhatIsKeptAfterALossCounts) {
  std::atomic<int64_t> left{-1};
  FunctionDeviceOptions gpu = Gpu("opencl:0");
  gpu.commands_left = &left;
  const std::string document = [] {
    Document d("i32", "[\"n\"]");
    d.Input("x");
    d.Output("y");
    std::string from = "x";
    for (int i = 0; i < 5; ++i) {
      const std::string name = "n" + std::to_string(i);
      d.Node(name, "triple", {"in a", "out b"},
             std::string(R"(,"instances":["n"],"hints":[")") + (i % 2 == 0 ? "gpu" : "cpu:0") + "\"]");
      d.Edge(from, name + ".a");
      from = name + ".b";
    }
    d.Edge(from, "y");
    return d.Text();
  }();
  const auto on_gpu = [&] { return std::ranges::count(result_.nodes, std::string("opencl:0"), &NodeRecord::device); };
  uint64_t temporary_bytes = 0;
  for (const bool is_tight : {false, true}) {
    Start({{}, gpu}, {.host_bytes_max = is_tight ? temporary_bytes : 0});
    const auto graph = Prepare(document);
    ASSERT_NE(graph, nullptr);
    left = 1000;
    const StatusOr<Tensor> want = Run(*graph, kElements);
    ASSERT_TRUE(want.ok()) << want.status();
    ASSERT_EQ(on_gpu(), 3);
    temporary_bytes = graph->plans.front()->temporary_bytes;
    ASSERT_GE(temporary_bytes, 2 * kBytes);
    left = 1000 - left - 2;  // The last launch is the one that is lost.
    const StatusOr<Tensor> got = Run(*graph, kElements);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, *want);
    EXPECT_EQ(result_.lost_devices, 1u);
    EXPECT_EQ(on_gpu(), is_tight ? 0 : 2);
    left = -1;
  }
}

// Two equal devices share one large launch, and the bytes equal those of one device.
TEST_F(PlanTest, PartsOfALaunchGiveTheSameBytes) {
  constexpr size_t kMany = 1 << 18;
  const std::string document = Sum(1, R"(,"devices":["gpu"])");
  FunctionDeviceOptions slow = Gpu("opencl:0"), other = Gpu("opencl:1");
  Start({{}, slow, other});
  const auto graph = Prepare(document);
  ASSERT_NE(graph, nullptr);
  // As placement would cut it, independently of present costs.
  std::vector<scheduler::Task> tasks;
  const uint64_t cut = kMany / 4;
  for (uint32_t part = 0; part < 2; ++part) {
    tasks.push_back({.node = graph::FlatNodeId(0u),
                     .choice = part,
                     .device = part + 1,
                     .box = {.first = {part == 0 ? 0 : cut, 0, 0}, .count = {part == 0 ? cut : kMany - cut, 1, 1}},
                     .is_part = true});
  }
  StatusOr<std::unique_ptr<Plan>> plan = BuildPlan(*graph, {.symbols = {static_cast<int64_t>(kMany)}, .tasks = &tasks});
  ASSERT_TRUE(plan.ok()) << plan.status();
  // Each part moves only the data that it needs: all data moves in and out once.
  EXPECT_EQ((*plan)->body.moved_bytes, 2 * kMany * sizeof(int32_t));
  (*plan)->input_shapes = {{kMany}, {}};
  graph->plans.push_back(*std::move(plan));
  ExpectSum(Run(*graph, kMany), 1);
  EXPECT_EQ(graph->plans.size(), 1u);
  EXPECT_EQ(graph->plans.front()->tasks.size(), 2u);
}

}  // namespace
}  // namespace hpvm::engine
