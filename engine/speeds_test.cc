// SPDX-License-Identifier: Apache-2.0
// Tests several devices of given speeds, whose kernels are C++ functions: launches are cut over them, stencils
// exchange halos over repetitions, a device becomes slower and gets less work, and each device is lost at each of its
// first commands. The bytes are always the same. tests/gpu/many tests real drivers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/testing/document.h"
#include "engine/testing/function_device.h"

namespace hpvm::engine {
namespace {

using testing::AnyModule;
using testing::CreateFunctionDevice;
using testing::Document;
using testing::FunctionCall;
using testing::FunctionCompiler;
using testing::FunctionDeviceOptions;
using testing::KernelFunctions;

using Tensor = std::vector<int32_t>;

constexpr size_t kElements = 1 << 14;
constexpr uint64_t kSpeed = 2'000'000;  // Instances per second: a launch takes 8 ms, which is long compared with the
                                        // overhead of the machine.

int32_t& At(const FunctionCall& call, size_t argument, uint64_t index) {
  return reinterpret_cast<int32_t*>(call.arguments[argument].data)[index];
}

// Instance i loads the elements i .. i + loads - 1 of the first parameter and stores to element i + to of the second.
ir::BoundsProgram Neighbours(uint32_t loads, int64_t to) {
  ir::BoundsProgram program;
  program.atoms.push_back({.kind = ir::Atom::Kind::kInstanceId, .index = 0});
  const auto access = [&](uint32_t param, int64_t at) {
    ir::Polynomial offset = {{.factor = 4, .atoms = {ir::AtomId(0u)}}};
    if (at != 0) {
      offset.push_back({.factor = 4 * at, .atoms = {}});
    }
    program.accesses.push_back({.param = param,
                                .reach = 4,
                                .is_store = param == 1,
                                .offset = std::move(offset),
                                .width = 4,
                                .is_load = param == 0,
                                .is_certain = true});
  };
  for (uint32_t i = 0; i < loads; ++i) {
    access(0, i);
  }
  access(1, to);
  program.is_complete = program.is_separate = true;
  return program;
}

class SpeedsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    kernels_["mix"] = [](const FunctionCall& call) {
      const uint64_t i = call.instance[0];
      At(call, 1, i) = 3 * At(call, 0, i) + static_cast<int32_t>(i);
      return ir::TrapCode::kNone;
    };
    kernels_["heat"] = [](const FunctionCall& call) {
      const uint64_t i = call.instance[0];
      At(call, 1, i + 1) = (At(call, 0, i) + 2 * At(call, 0, i + 1) + At(call, 0, i + 2)) / 4 + 1;
      return ir::TrapCode::kNone;
    };
    compiler_.names_artifacts = true;
    compiler_.bounds["mix"] = Neighbours(1, 0);
    compiler_.bounds["heat"] = Neighbours(3, 1);
  }
  void TearDown() override { engine_.reset(); }

  void Start(size_t gpus) {
    graph_.reset();
    engine_.reset();
    devices_.clear();
    EngineOptions options;
    for (size_t i = 0; i <= gpus; ++i) {
      FunctionDeviceOptions device;
      if (i > 0) {
        speeds_[i - 1] = kSpeed;
        left_[i - 1] = -1;
        device.id = "opencl:" + std::to_string(i - 1);
        device.kind = DeviceKind::kGpu;
        device.artifact_kind = ArtifactKind::kOpenCl;
        device.host_visible = device.runs_inline = false;
        device.has_copy_lanes = true;
        device.instances_per_second = &speeds_[i - 1];
        device.commands_left = &left_[i - 1];
        device.operations_per_second = 1e8;
        device.link_bytes_per_second = link_bytes_per_second_;
        device.launch_delay = launch_delay_;
      }
      devices_.push_back(CreateFunctionDevice(hub_, kernels_, device));
      options.devices.push_back(devices_.back().get());
    }
    options.hub = &hub_;
    options.compiler = &compiler_;
    options.clock = &RealClock();
    engine_ = std::make_unique<Engine>(std::move(options));
  }

  void Prepare(const std::string& entry, const std::string& extent) {
    Document d("i32", "[\"n\"]");
    d.Input("x");
    d.Output("y");
    d.Node("node", entry, {"in a", "out b"}, ",\"instances\":[\"" + extent + "\"],\"devices\":[\"opencl\"]");
    d.Edge("x", "node.a");
    d.Edge("node.b", "y");
    StatusOr<PrepareOutcome> outcome = engine_->Prepare(d.Text(), modules_, kNever);
    ASSERT_TRUE(outcome.ok() && outcome->graph != nullptr)
        << outcome.status() << (outcome.ok() ? ToString(outcome->diagnostics) : "");
    graph_ = outcome->graph;
  }

  StatusOr<Tensor> Run(uint32_t repeat) {
    Tensor x(kElements), y(kElements, -1);
    for (size_t i = 0; i < kElements; ++i) {
      x[i] = static_cast<int32_t>(i * 7919 % 1000);
    }
    const auto bind = [&](Tensor& tensor) {
      return Binding{.type = ElementType::kI32,
                     .shape = {kElements},
                     .data = reinterpret_cast<uint8_t*>(tensor.data()),
                     .bytes = kElements * sizeof(int32_t)};
    };
    RunRequest request{.repeat = repeat, .lost_devices = &lost_};
    request.inputs["x"] = bind(x);
    request.outputs["y"] = bind(y);
    if (repeat > 1) {
      request.rotations = {{.output = "y", .input = "x"}};
    }
    HPVMD_ASSIGN_OR_RETURN(const RunResult result, engine_->Run(*graph_, request));
    share_.clear();
    pieces_ = 0;
    for (const NodeRecord& node : result.nodes) {
      ++pieces_;
      share_[node.device] += node.count == 0 ? kElements : node.count;
    }
    return y;
  }

  // Computes the result with the functions, one instance after another.
  Tensor Expected(const std::string& entry, size_t instances, uint32_t repeat) const {
    Tensor x(kElements), y(kElements);
    for (size_t i = 0; i < kElements; ++i) {
      x[i] = static_cast<int32_t>(i * 7919 % 1000);
    }
    for (uint32_t turn = 0; turn < repeat; ++turn) {
      std::vector<ir::Argument> arguments = {
          {.data = reinterpret_cast<uint8_t*>(x.data()), .bytes = kElements * sizeof(int32_t)},
          {.data = reinterpret_cast<uint8_t*>(y.data()), .bytes = kElements * sizeof(int32_t)}};
      y.assign(kElements, 0);
      FunctionCall call{.extent = {instances, 1, 1}, .arguments = arguments};
      for (call.instance[0] = 0; call.instance[0] < instances; ++call.instance[0]) {
        kernels_.at(entry)(call);
      }
      std::swap(x, y);
    }
    return x;
  }

  // Runs until `is_so` holds for the shares; returns false if it never does.
  template <typename Condition>
  bool RunUntil(const Tensor& expected, int runs_max, Condition is_so) {
    for (int run = 0; run < runs_max; ++run) {
      const StatusOr<Tensor> y = Run(1);
      EXPECT_TRUE(y.ok()) << y.status();
      if (!y.ok() || *y != expected) {
        ADD_FAILURE() << "other bytes in run " << run;
        return false;
      }
      if (is_so()) {
        return true;
      }
    }
    return false;
  }

  Hub hub_;
  KernelFunctions kernels_;
  FunctionCompiler compiler_{kernels_};
  AnyModule modules_;
  double link_bytes_per_second_ = 1e11;
  std::chrono::nanoseconds launch_delay_{0};
  std::array<std::atomic<uint64_t>, 4> speeds_{};
  std::array<std::atomic<int64_t>, 4> left_{};
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<PreparedGraph> graph_;
  std::vector<std::string> lost_;
  std::map<std::string, uint64_t> share_;  // Instances of the last run, keyed by device.
  size_t pieces_ = 0;                      // Number of pieces of its launches.
};

// A launch is cut over all devices.
TEST_F(SpeedsTest, CutsOverAll) {
  for (const size_t gpus : {2, 3, 4}) {
    Start(gpus);
    Prepare("mix", "n");
    ASSERT_NE(graph_, nullptr);
    EXPECT_TRUE(RunUntil(Expected("mix", kElements, 1), 60, [&] { return share_.size() == gpus; })) << gpus;
  }
}

// Each part's halo goes to its neighbours between repetitions.
TEST_F(SpeedsTest, HalosOverRepetitions) {
  Start(3);
  Prepare("heat", "n-2");
  ASSERT_NE(graph_, nullptr);
  bool is_split = false;
  for (int run = 0; run < 20 && !is_split; ++run) {
    const StatusOr<Tensor> y = Run(12);
    ASSERT_TRUE(y.ok()) << y.status();
    ASSERT_EQ(*y, Expected("heat", kElements - 2, 12)) << run;
    is_split = share_.size() == 3;
  }
  EXPECT_TRUE(is_split);
}

// A device that takes four times as long as its equals soon gets a matching share.
TEST_F(SpeedsTest, TheSlowOneGetsLess) {
  Start(3);
  Prepare("mix", "n");
  ASSERT_NE(graph_, nullptr);
  const Tensor expected = Expected("mix", kElements, 1);
  ASSERT_TRUE(RunUntil(expected, 60, [&] { return share_.size() == 3 && share_["opencl:2"] > kElements / 4; }));
  speeds_[2] = kSpeed / 4;
  EXPECT_TRUE(RunUntil(expected, 400, [&] {
    return share_.size() >= 2 && share_["opencl:2"] < kElements / 5 && share_["opencl:0"] > kElements / 4;
  }));
}

// Slow links make pieces look profitable. When they are not, because of delays that no timing shows, each device's
// share soon becomes one piece.
TEST_F(SpeedsTest, PiecesThatDoNotPayGo) {
  link_bytes_per_second_ = 8e6;
  launch_delay_ = std::chrono::milliseconds(3);
  Start(2);
  Prepare("mix", "n");
  ASSERT_NE(graph_, nullptr);
  const Tensor expected = Expected("mix", kElements, 1);
  ASSERT_TRUE(RunUntil(expected, 60, [&] { return share_.size() == 2 && pieces_ > 2; }));
  size_t whole = 0;
  EXPECT_TRUE(RunUntil(expected, 300, [&] {
    whole = share_.size() == 2 && pieces_ == 2 ? whole + 1 : 0;
    return whole == 20;
  }));
}

// A device is lost at each of its first commands: the run continues on the others and gives the same bytes.
TEST_F(SpeedsTest, LossesAtEachCommand) {
  const Tensor expected = Expected("mix", kElements, 1), heat = Expected("heat", kElements - 2, 4);
  for (const bool repeats : {false, true}) {
    int losses = 0;
    for (int64_t command = 0; command < 8; ++command) {
      Start(3);
      Prepare(repeats ? "heat" : "mix", repeats ? "n-2" : "n");
      ASSERT_NE(graph_, nullptr);
      lost_.clear();
      left_[1] = command;
      // A device that was slow by chance has no share for a while, so the test runs long enough for it to reach the
      // command.
      int after = 0;
      bool is_lost = false;
      for (int run = 0; run < 60 && after < 3; ++run) {
        const StatusOr<Tensor> y = Run(repeats ? 4 : 1);
        ASSERT_TRUE(y.ok()) << y.status() << " at command " << command;
        ASSERT_EQ(*y, repeats ? heat : expected) << "at command " << command << ", run " << run;
        is_lost |= !lost_.empty();
        after += is_lost ? 1 : 0;
      }
      losses += is_lost ? 1 : 0;
    }
    EXPECT_GE(losses, 4) << repeats;
  }
}

}  // namespace
}  // namespace hpvm::engine
