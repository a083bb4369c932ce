// SPDX-License-Identifier: Apache-2.0
// Tests the costs that an engine learns. Runs are simulated: the tests provide the timings.
#include "engine/costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/api/cost_record.h"
#include "engine/engine.h"
#include "engine/prepared_graph.h"
#include "engine/testing/document.h"
#include "engine/testing/function_device.h"

namespace hpvm::engine {
namespace {

using scheduler::Task;
using scheduler::Work;
using testing::CreateFunctionDevice;
using testing::Document;
using testing::FunctionCall;
using testing::FunctionCompiler;
using testing::FunctionDeviceOptions;
using testing::KernelFunctions;

constexpr uint64_t kElements = 1 << 20;

class NoModules final : public ModuleSource {
 public:
  StatusOr<std::span<const uint8_t>> Find(const graph::Module&) override { return NotFound("There is none."); }
};

// Names artifacts and keeps their costs, as the compiler's cache does.
class KeepingCompiler final : public CompilerService {
 public:
  explicit KeepingCompiler(const KernelFunctions& functions) : compiler_(functions) {}
  StatusOr<CompileOutcome> Compile(const CompileRequest& request, Time deadline) override {
    StatusOr<CompileOutcome> outcome = compiler_.Compile(request, deadline);
    if (outcome.ok() && outcome->artifact.has_value() && names) {
      outcome->artifact->name = HashOf(request.entry + std::to_string(static_cast<int>(request.target)));
      outcome->artifact->costs = kept[outcome->artifact->name];
    }
    return outcome;
  }
  void KeepCosts(const Sha256& name, std::span<const uint8_t> record) override {
    kept[name].assign(record.begin(), record.end());
    ++keeps;
  }

  bool names = true;
  std::map<Sha256, std::vector<uint8_t>> kept;
  int keeps = 0;

 private:
  FunctionCompiler compiler_;
};

FunctionDeviceOptions Gpu() {
  FunctionDeviceOptions options;
  options.id = "opencl:0";
  options.kind = DeviceKind::kGpu;
  options.artifact_kind = ArtifactKind::kOpenCl;
  options.host_visible = false;
  options.runs_inline = false;
  return options;
}

// Advances by a fixed amount with each call.
class LeapingClock final : public Clock {
 public:
  Time Now() const override { return Time(now_ns_ += leap_ns); }
  int64_t WallNs() const override { return 0; }
  std::atomic<int64_t> leap_ns{0};

 private:
  mutable std::atomic<int64_t> now_ns_{1};
};

class CostsTest : public ::testing::Test {
 protected:
  CostsTest() {
    kernels_["add"] = [](const FunctionCall&) { return ir::TrapCode::kNone; };
    Start({{}, Gpu()});
  }

  void Start(const std::vector<FunctionDeviceOptions>& devices, bool measures_transfers = false) {
    graph_.reset();
    engine_.reset();
    devices_.clear();
    std::vector<Device*> borrowed;
    for (const FunctionDeviceOptions& options : devices) {
      devices_.push_back(CreateFunctionDevice(hub_, kernels_, options));
      borrowed.push_back(devices_.back().get());
    }
    EngineOptions options;
    options.devices = borrowed;
    options.hub = &hub_;
    options.compiler = &compiler_;
    options.clock = &clock_;
    options.measures_transfers = measures_transfers;
    engine_ = std::make_unique<Engine>(std::move(options));
    Prepare(1);
  }

  // Prepares a chain of nodes that run one kernel.
  void Prepare(size_t nodes) {
    Document d("i32", "[\"n\"]");
    d.Input("x");
    d.Output("y");
    std::string from = "x";
    for (size_t i = 0; i < nodes; ++i) {
      const std::string name = "n" + std::to_string(i);
      d.Node(name, "add", {"inout data"}, R"(,"instances":["n"])");
      d.Edge(from, name + ".data");
      from = name + ".data";
    }
    d.Edge(from, "y");
    std::string text = d.Text();
    const std::string known = R"({"m":{"kind":"wasm","source":{"file":"m.wasm"}}})";
    text.replace(text.find(known), known.size(), R"({"m":{"kind":"wasm","source":{"inline":"AGFzbQ=="}}})");
    StatusOr<PrepareOutcome> outcome = engine_->Prepare(text, modules_, kNever);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ASSERT_NE(outcome->graph, nullptr) << ToString(outcome->diagnostics);
    graph_ = outcome->graph;
    flat_ = *graph::Flatten(graph_->graph, {static_cast<int64_t>(kElements)});
    state_ = {};
  }

  uint32_t ChoiceOn(const std::string& device) const {
    const std::vector<scheduler::Candidate>& candidates = graph_->candidates[flat_.nodes[0].leaf.index];
    for (uint32_t i = 0; i < candidates.size(); ++i) {
      if (graph_->facts[candidates[i].device].id == device) {
        return i;
      }
    }
    ADD_FAILURE() << "no candidate on " << device;
    return 0;
  }

  // Feeds timings as if every node had run on `device` for `ns` each.
  CostReview Feed(const std::string& device, int64_t ns, Duration run = std::chrono::milliseconds(100),
                  bool is_shared = false) {
    std::vector<Task> tasks;
    std::vector<NodeTiming> timings;
    const uint32_t choice = ChoiceOn(device);
    for (uint32_t i = 0; i < flat_.nodes.size(); ++i) {
      tasks.push_back({.node = graph::FlatNodeId(i),
                       .choice = choice,
                       .box = {.count = flat_.nodes[i].extent},
                       .is_part = is_part_});
      timings.push_back({.start_ns = 1000, .end_ns = 1000 + ns, .is_shared = is_shared, .is_settled = is_settled_});
    }
    return graph_->costs->Feed(*graph_, flat_, tasks, timings, run, &state_);
  }

  scheduler::Cost CostOn(const std::string& device) const {
    const std::unique_ptr<PlanCosts> costs = graph_->costs->ForPlan(*graph_, flat_, false);
    const uint32_t choice = ChoiceOn(device);
    const Work work = costs->Of(graph::FlatNodeId(0u), choice, {.count = flat_.nodes[0].extent});
    const uint32_t index = graph_->candidates[flat_.nodes[0].leaf.index][choice].device;
    return costs->Run(work, index, graph_->facts[index]);
  }

  KernelCostRecord RecordOf(const std::string& device) const {
    std::vector<KernelCostRecord> records;
    EXPECT_TRUE(ListKernels(*graph_, 100, &records));
    for (const KernelCostRecord& record : records) {
      if (graph_->facts[record.device].id == device) {
        return record;
      }
    }
    return {};
  }

  Hub hub_;
  LeapingClock clock_;
  KernelFunctions kernels_;
  KeepingCompiler compiler_{kernels_};
  NoModules modules_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<PreparedGraph> graph_;
  graph::FlatGraph flat_;
  FeedState state_;
  bool is_settled_ = true, is_part_ = false;  // For the launches that are fed.
};

// Costs are estimates until there is a measurement, which is then compared with the estimate for the other device.
TEST_F(CostsTest, LearnsFromRuns) {
  EXPECT_TRUE(CostOn("cpu:0").is_estimate);
  EXPECT_EQ(RecordOf("cpu:0").instances, 0u);
  const CostReview review = Feed("cpu:0", 5'000'000);
  EXPECT_EQ(review.first_samples, 1u);
  EXPECT_EQ(review.measured_ns, 5e6);
  EXPECT_EQ(CostOn("cpu:0"), (scheduler::Cost{.time = Duration(5'000'000), .is_estimate = false}));
  EXPECT_TRUE(CostOn("opencl:0").is_estimate);
  const KernelCostRecord cpu = RecordOf("cpu:0"), gpu = RecordOf("opencl:0");
  EXPECT_EQ(cpu.kernel, "m/add");
  EXPECT_EQ(cpu.instances, kElements);
  EXPECT_EQ(cpu.samples, 1u);
  EXPECT_NEAR(cpu.measured_ns, 5e6, 1);
  EXPECT_GT(cpu.estimate_ns, 0);
  EXPECT_EQ(gpu.instances, kElements);
  EXPECT_EQ(gpu.samples, 0u);
  EXPECT_EQ(gpu.measured_ns, 0);
  Feed("cpu:0", 5'000'000);
  EXPECT_EQ(RecordOf("cpu:0").samples, 2u);
}

// A share of the total time of different launches is not a sample.
TEST_F(CostsTest, SharesAreNoSamples) {
  const CostReview review = Feed("opencl:0", 5'000'000, std::chrono::milliseconds(100), /*is_shared=*/true);
  EXPECT_EQ(review.first_samples, 0u);
  EXPECT_TRUE(CostOn("opencl:0").is_estimate);
  Feed("opencl:0", 7'000'000);
  EXPECT_EQ(CostOn("opencl:0").time, Duration(7'000'000));
}

// Experimental launches of a device count provisionally until the device has settled.
TEST_F(CostsTest, ExperimentsAreNoSamples) {
  is_settled_ = false;
  EXPECT_FALSE(Feed("opencl:0", 9'000'000).is_settled);
  Feed("opencl:0", 8'000'000);
  EXPECT_EQ(CostOn("opencl:0").time, Duration(8'000'000));
  is_settled_ = true;
  EXPECT_TRUE(Feed("opencl:0", 3'000'000).is_settled);
  EXPECT_EQ(CostOn("opencl:0").time, Duration(3'000'000));
  EXPECT_EQ(RecordOf("opencl:0").samples, 1u);
}

// Devices of one kind share their samples; a device that takes twice as long as the others gets a factor.
TEST_F(CostsTest, ASlowTwinHasAFactor) {
  FunctionDeviceOptions twin = Gpu();
  twin.id = "opencl:1";
  Start({{}, Gpu(), twin});
  for (int i = 0; i < 60; ++i) {
    Feed("opencl:0", 2'000'000, std::chrono::seconds(1));
    Feed("opencl:1", 4'000'000, std::chrono::seconds(1));
  }
  EXPECT_NEAR(static_cast<double>(CostOn("opencl:0").time.count()), 2e6, 2e5);
  EXPECT_NEAR(static_cast<double>(CostOn("opencl:1").time.count()), 4e6, 4e5);
  // The device has recovered.
  for (int i = 0; i < 60; ++i) {
    Feed("opencl:0", 2'000'000, std::chrono::seconds(1));
    Feed("opencl:1", 2'000'000, std::chrono::seconds(1));
  }
  EXPECT_NEAR(static_cast<double>(CostOn("opencl:1").time.count()), 2e6, 2e5);
}

// Parts of a cut launch are not compared as if another device were idle.
TEST_F(CostsTest, PartsAreNotReplaced) {
  Feed("cpu:0", 10'000);
  Feed("cpu:0", 10'000);
  is_part_ = true;
  for (int i = 0; i < 4; ++i) {
    const CostReview review = Feed("opencl:0", 900'000);
    EXPECT_EQ(review.best_ns, 900'000);
    EXPECT_FALSE(review.should_replan);
  }
}

// The list ends at the requested length.
TEST_F(CostsTest, ListsAtMost) {
  Feed("cpu:0", 1000);
  std::vector<KernelCostRecord> records;
  EXPECT_FALSE(ListKernels(*graph_, 1, &records));
  EXPECT_EQ(records.size(), 1u);
}

// A candidate that may be better is pinned, by one launch of the plan and only a few times; after it was measured,
// the better candidate stays.
TEST_F(CostsTest, AsksForSamples) {
  Prepare(4);
  const double gpu_ns = static_cast<double>(CostOn("opencl:0").time.count());
  const auto cpu_ns = static_cast<int64_t>(gpu_ns * 1.2);  // Including the transfer, the other candidate looks slower,
                                                           // but not by much.
  EXPECT_TRUE(graph_->costs->ForPlan(*graph_, flat_, false)->pins().empty());
  CostReview review = Feed("cpu:0", cpu_ns);
  EXPECT_TRUE(review.wants_samples);
  EXPECT_TRUE(review.should_replan);
  int asked = 0;
  while (asked < 10) {
    const std::unique_ptr<PlanCosts> costs = graph_->costs->ForPlan(*graph_, flat_, true);
    if (costs->pins().empty()) {
      break;
    }
    ++asked;
    ASSERT_EQ(costs->pins().size(), 1u);
    EXPECT_EQ(costs->pins()[0].node, graph::FlatNodeId(0u));
  }
  EXPECT_GT(asked, 0);
  EXPECT_LE(asked, 3);
}

// A device whose estimate is much slower is not tried.
TEST_F(CostsTest, LeavesTheHopelessAlone) {
  const double gpu_ns = static_cast<double>(CostOn("opencl:0").time.count());
  const CostReview review = Feed("cpu:0", static_cast<int64_t>(gpu_ns / 10));
  EXPECT_FALSE(review.wants_samples);
  EXPECT_FALSE(review.should_replan);
  EXPECT_TRUE(graph_->costs->ForPlan(*graph_, flat_, true)->pins().empty());
}

// When another candidate turns out to be better, a new plan is requested, but not when nothing has changed since.
TEST_F(CostsTest, CallsForANewPlan) {
  for (int i = 0; i < 4; ++i) {
    Feed("opencl:0", 100'000);
  }
  CostReview review = Feed("cpu:0", 9'000'000);
  EXPECT_TRUE(review.should_replan);
  EXPECT_NEAR(review.best_ns, 100'000, 30'000);
  Feed("cpu:0", 9'000'000);
  review = Feed("opencl:0", 100'000);
  EXPECT_FALSE(review.should_replan);
}

// Histories of named kernels are available to other graphs of the engine, and to the next process.
TEST_F(CostsTest, KeepsHistories) {
  for (int i = 0; i < 20; ++i) {
    Feed("cpu:0", 2'000'000);
  }
  EXPECT_LE(compiler_.keeps, 6);
  Prepare(2);
  EXPECT_EQ(RecordOf("cpu:0").samples, 20u);
  Start({{}, Gpu()});
  EXPECT_GE(RecordOf("cpu:0").samples, 10u);
  EXPECT_FALSE(CostOn("cpu:0").is_estimate);
  EXPECT_NEAR(static_cast<double>(CostOn("cpu:0").time.count()), 2e6, 1e4);
  EXPECT_TRUE(CostOn("opencl:0").is_estimate);
  // Measurements on one device do not erase the kept history of another.
  for (int i = 0; i < 40; ++i) {
    Feed("opencl:0", 300'000);
  }
  Start({{}, Gpu()});
  EXPECT_FALSE(CostOn("cpu:0").is_estimate);
  EXPECT_FALSE(CostOn("opencl:0").is_estimate);
}

// Kernels that nobody keeps are measured, too, separately for each graph.
TEST_F(CostsTest, MeasuresUnnamedKernels) {
  compiler_.names = false;
  Prepare(1);
  Feed("cpu:0", 2'000'000);
  EXPECT_EQ(compiler_.keeps, 0);
  EXPECT_FALSE(CostOn("cpu:0").is_estimate);
  Prepare(1);
  EXPECT_TRUE(CostOn("cpu:0").is_estimate);
}

// Records are not trusted: only valid numbers are used.
TEST_F(CostsTest, RefusesBadRecords) {
  Feed("cpu:0", 2'000'000);
  const auto kept =
      std::find_if(compiler_.kept.begin(), compiler_.kept.end(), [](const auto& one) { return !one.second.empty(); });
  ASSERT_NE(kept, compiler_.kept.end());
  const std::vector<uint8_t> good = kept->second;
  SeededRng rng(3);
  for (int i = 0; i < 300; ++i) {
    std::vector<uint8_t>& bad = kept->second;
    bad = good;
    for (uint64_t n = rng.Below(6); n > 0; --n) {
      bad[rng.Below(bad.size())] = static_cast<uint8_t>(rng.Next());
    }
    Start({{}, Gpu()});
    const scheduler::Cost cost = CostOn("cpu:0");
    EXPECT_GE(cost.time.count(), 0);
    Feed("cpu:0", 1'000'000);
  }
}

// Large plans are examined in parts, and short runs hardly at all.
TEST_F(CostsTest, FeedingIsBounded) {
  Prepare(3000);
  EXPECT_EQ(static_cast<int64_t>(Feed("cpu:0", 1000, Duration(10'000)).measured_ns), 1000 * int64_t{kFedLaunchesMax});
  EXPECT_EQ(static_cast<int64_t>(Feed("cpu:0", 1000, Duration(10'000)).measured_ns), 1000 * int64_t{kFedLaunchesMax});
  double looked_ns = 0;
  for (int i = 0; i < 100; ++i) {
    looked_ns += Feed("cpu:0", 1000, Duration(10'000)).measured_ns;
  }
  EXPECT_LE(looked_ns, 1000.0 * 100);
  EXPECT_GT(looked_ns, 0);
}

// Transfers are estimates until the first plan measures them, if requested. When measuring takes too long, the next
// plan measures again.
TEST_F(CostsTest, MeasuresTransfers) {
  for (const bool measures : {false, true}) {
    Start({{}, Gpu()}, measures);
    std::vector<TransferCostRecord> records = ListTransfers(engine_->costs());
    ASSERT_EQ(records.size(), 2u);
    EXPECT_TRUE(records[0].is_estimate && records[1].is_estimate);
    EXPECT_EQ(records[0].source, TransferCostRecord::kHost);
    EXPECT_EQ(records[0].target, 1u);
    clock_.leap_ns = 1'000'000'000;
    graph_->costs->ForPlan(*graph_, flat_, false);
    records = ListTransfers(engine_->costs());
    EXPECT_TRUE(records[0].is_estimate && records[1].is_estimate);
    clock_.leap_ns = 0;
    for (int plan = 0; plan < 3; ++plan) {
      graph_->costs->ForPlan(*graph_, flat_, false);
    }
    records = ListTransfers(engine_->costs());
    for (const TransferCostRecord& record : records) {
      EXPECT_EQ(record.is_estimate, !measures);
      EXPECT_GT(record.bytes_per_second, 0);
      EXPECT_GE(record.start_ns, 0);
    }
  }
}

// Copies over a link determine its speed; several at once determine the host's speed.
TEST_F(CostsTest, CopiesSayHowQuickLinksAre) {
  double bytes_per_ns = 8, together_per_ns = 0;
  FunctionDeviceOptions gpu = Gpu();
  gpu.note_copy = [&](CopyMeter& meter, uint64_t bytes, bool is_up) {
    const double speed = together_per_ns > 0 ? together_per_ns : bytes_per_ns;
    meter.Note(together_per_ns > 0 ? &CopySums::together : is_up ? &CopySums::up : &CopySums::down, bytes,
               static_cast<int64_t>(static_cast<double>(bytes) / speed));
  };
  Start({{}, gpu});
  std::vector<uint8_t> memory(1 << 20);
  const std::unique_ptr<Buffer> host = MakeHostView(memory.data(), memory.size());
  const std::unique_ptr<Buffer> there = devices_[1]->Allocate({.bytes = memory.size()}).value();
  const std::unique_ptr<Timeline> timeline = devices_[1]->CreateTimeline();
  uint64_t value = 0;
  const auto copy = [&](bool is_up) {
    CommandList commands;
    commands.commands.push_back(
        CopyCommand{.source = is_up ? 0u : 1u, .target = is_up ? 1u : 0u, .bytes = memory.size()});
    Buffer* const table[] = {host.get(), there.get()};
    const TimelinePoint signal{timeline.get(), ++value};
    Submission submission;
    submission.commands = &commands;
    submission.buffers = table;
    submission.signals = {&signal, 1};
    ASSERT_TRUE(devices_[1]->Submit(submission).ok());
    ASSERT_TRUE(timeline->Wait(value, kNever).ok());
    Feed("opencl:0", 1000, Duration(1'000'000));
  };
  const auto up = [&] { return ListTransfers(engine_->costs())[0].bytes_per_second; };
  const auto down = [&] { return ListTransfers(engine_->costs())[1].bytes_per_second; };
  const double assumed = down();
  copy(/*is_up=*/true);
  EXPECT_EQ(up(), assumed) << "The first one touches fresh memory.";
  copy(/*is_up=*/true);
  EXPECT_NEAR(up(), 8e9, 1e6);
  EXPECT_EQ(down(), assumed);
  bytes_per_ns = 4;
  copy(/*is_up=*/true);
  EXPECT_NEAR(up(), 7e9, 1e6);
  copy(/*is_up=*/false);
  EXPECT_NEAR(down(), 4e9, 1e6);
  EXPECT_EQ(graph_->costs->ForPlan(*graph_, flat_, false)->HostCopyBytesPerSecond(), 0);
  together_per_ns = 10;
  copy(/*is_up=*/true);
  EXPECT_NEAR(up(), 7e9, 1e6);
  EXPECT_NEAR(graph_->costs->ForPlan(*graph_, flat_, false)->HostCopyBytesPerSecond(), 10e9, 1e6);
}

}  // namespace
}  // namespace hpvm::engine
