// SPDX-License-Identifier: Apache-2.0
// Tests device memory under the daemon's limits: counting, reclaiming, refusals.
#include "engine/device_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/prepared_graph.h"
#include "engine/testing/document.h"
#include "engine/testing/function_device.h"

namespace hpvm::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::CreateFunctionDevice;
using testing::Document;
using testing::FunctionCall;
using testing::FunctionCompiler;
using testing::FunctionDeviceOptions;
using testing::KernelFunctions;

constexpr uint64_t kBytes = 4096;  // Bytes of a run with kElements.
constexpr size_t kElements = kBytes / sizeof(int32_t);

// Provides bytes that only the compiler would read.
class AnyModule final : public ModuleSource {
 public:
  StatusOr<std::span<const uint8_t>> Find(const graph::Module&) override {
    return std::span<const uint8_t>(kBytesOfIt);
  }

 private:
  static constexpr uint8_t kBytesOfIt[] = {0, 'a', 's', 'm'};
};

class DeviceMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    kernels_["add1"] = [this](const FunctionCall& call) {
      if (beside_) {
        std::exchange(beside_, nullptr)();
      }
      auto* data = reinterpret_cast<int32_t*>(call.arguments[0].data);
      for (size_t i = 0; i < call.arguments[0].bytes / sizeof(int32_t); ++i) {
        ++data[i];
      }
      return ir::TrapCode::kNone;
    };
    Start(~uint64_t{0});
  }

  void Start(uint64_t driver_bytes_max) {
    engine_.reset();
    FunctionDeviceOptions gpu;
    gpu.id = "opencl:0";
    gpu.kind = DeviceKind::kGpu;
    gpu.artifact_kind = ArtifactKind::kOpenCl;
    gpu.host_visible = gpu.runs_inline = false;
    gpu.driver_bytes_max = driver_bytes_max;
    cpu_ = CreateFunctionDevice(hub_, kernels_, {});
    gpu_ = CreateFunctionDevice(hub_, kernels_, gpu);
    engine_ = std::make_unique<Engine>(
        EngineOptions{.devices = {cpu_.get(), gpu_.get()},
                      .hub = &hub_,
                      .compiler = &compiler_,
                      .clock = &RealClock(),
                      .graph_limits = {},
                      .device_limits = {{&page_.entries[0], &page_}, {&page_.entries[1], &page_}}});
  }

  std::shared_ptr<PreparedGraph> Prepare() {
    Document d("i32", "[\"n\"]");
    d.Input("x");
    d.Output("y");
    d.Node("node", "add1", {"inout data"}, R"(,"devices":["opencl:0"])");
    d.Edge("x", "node.data");
    d.Edge("node.data", "y");
    StatusOr<PrepareOutcome> outcome = engine_->Prepare(d.Text(), modules_, kNever, {});
    EXPECT_TRUE(outcome.ok() && outcome->graph != nullptr)
        << outcome.status() << (outcome.ok() ? ToString(outcome->diagnostics) : "");
    return outcome.ok() ? outcome->graph : nullptr;
  }

  Status Run(PreparedGraph& graph, size_t elements = kElements) {
    std::vector<int32_t> x(elements, 1), y(elements);
    const auto bind = [&](std::vector<int32_t>& tensor) {
      return Binding{.type = ElementType::kI32,
                     .shape = {elements},
                     .data = reinterpret_cast<uint8_t*>(tensor.data()),
                     .bytes = elements * sizeof(int32_t)};
    };
    RunRequest request;
    request.inputs["x"] = bind(x);
    request.outputs["y"] = bind(y);
    request.shortage = &shortage_;
    const StatusOr<RunResult> result = engine_->Run(graph, request);
    if (result.ok()) {
      EXPECT_EQ(y, std::vector<int32_t>(elements, 2));
    }
    return result.status();
  }

  DeviceMemory::Usage Usage() { return engine_->device_memory().Measure()[1]; }

  Hub hub_;
  GrantPage page_{};
  KernelFunctions kernels_;
  std::function<void()> beside_;
  FunctionCompiler compiler_{kernels_};
  AnyModule modules_;
  std::unique_ptr<Device> cpu_, gpu_;
  std::unique_ptr<Engine> engine_;
  DeviceShortage shortage_;
};

// A plan's buffers count while the plan is kept; a running graph is not idle, and releasing it frees the memory.
TEST_F(DeviceMemoryTest, CountsWhatPlansHold) {
  std::shared_ptr<PreparedGraph> graph = Prepare();
  EXPECT_EQ(Usage().bytes, 0u);
  beside_ = [this] {
    EXPECT_EQ(Usage().bytes, kBytes);
    EXPECT_EQ(Usage().idle_bytes, 0u);
  };
  ASSERT_TRUE(Run(*graph).ok());
  EXPECT_FALSE(beside_);
  EXPECT_EQ(Usage().bytes, kBytes);
  EXPECT_EQ(Usage().idle_bytes, kBytes);
  const uint64_t changes = engine_->device_memory().changes();
  ASSERT_TRUE(Run(*graph).ok());
  EXPECT_EQ(engine_->device_memory().changes(), changes);
  graph.reset();
  EXPECT_EQ(Usage().bytes, 0u);
  EXPECT_GT(engine_->device_memory().changes(), changes);
}

// Reclaim takes memory only from graphs that do not run, no more than requested, and their next run builds plans
// anew.
TEST_F(DeviceMemoryTest, ReclaimsFromIdleGraphs) {
  const std::shared_ptr<PreparedGraph> a = Prepare(), b = Prepare();
  ASSERT_TRUE(Run(*a).ok());
  ASSERT_TRUE(Run(*a, 2 * kElements).ok());
  ASSERT_TRUE(Run(*b).ok());
  EXPECT_EQ(Usage().bytes, 4 * kBytes);
  EXPECT_EQ(engine_->device_memory().Reclaim(*gpu_, 4 * kBytes), 0u);
  EXPECT_EQ(engine_->device_memory().Reclaim(*gpu_, 3 * kBytes), kBytes);
  EXPECT_EQ(Usage().bytes, 3 * kBytes);
  beside_ = [this] { EXPECT_EQ(engine_->device_memory().Reclaim(*gpu_, 0), kBytes); };
  ASSERT_TRUE(Run(*a, 2 * kElements).ok());
  EXPECT_FALSE(beside_);
  EXPECT_EQ(Usage().bytes, 2 * kBytes);
  EXPECT_EQ(engine_->device_memory().Reclaim(*gpu_, 0), 2 * kBytes);
  EXPECT_EQ(Usage().bytes, 0u);
  EXPECT_TRUE(Run(*b).ok());
}

// Beyond the entry's limit, idle graphs first release memory; then the run fails, with the sizes requested and held.
TEST_F(DeviceMemoryTest, KeepsWithinTheGrant) {
  page_.entries[1].bytes_max.store(2 * kBytes);
  const std::shared_ptr<PreparedGraph> a = Prepare(), b = Prepare();
  ASSERT_TRUE(Run(*a, 2 * kElements).ok());
  ASSERT_TRUE(Run(*b).ok());
  EXPECT_EQ(Usage().bytes, kBytes);
  const Status refused = Run(*b, 3 * kElements);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(refused), AllOf(HasSubstr("8192"), HasSubstr("12288"), HasSubstr("opencl:0")));
  EXPECT_EQ(shortage_.device, "");  // The limit is the tenant's own: nobody else can help.
  page_.entries[1].bytes_max.store(0);
  EXPECT_TRUE(Run(*b, 3 * kElements).ok());
}

// The page's limit applies to all devices together.
TEST_F(DeviceMemoryTest, KeepsWithinThePage) {
  page_.device_bytes_max.store(kBytes);
  const std::shared_ptr<PreparedGraph> graph = Prepare();
  EXPECT_TRUE(Run(*graph).ok());
  EXPECT_EQ(Run(*graph, kElements + 1).code(), absl::StatusCode::kResourceExhausted);
}

// When a driver refuses, idle memory is released first; a second refusal is reported.
TEST_F(DeviceMemoryTest, TellsOfShortage) {
  Start(2 * kBytes);
  const std::shared_ptr<PreparedGraph> a = Prepare(), b = Prepare();
  ASSERT_TRUE(Run(*a, 2 * kElements).ok());
  ASSERT_TRUE(Run(*b, 2 * kElements).ok());
  EXPECT_EQ(shortage_.device, "");
  EXPECT_EQ(Run(*b, 3 * kElements).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(shortage_.device, "opencl:0");
  EXPECT_EQ(shortage_.bytes, 3 * kBytes);
  EXPECT_EQ(Usage().bytes, 0u);
}

// A graph may outlive its engine.
TEST_F(DeviceMemoryTest, OutlivesTheEngine) {
  std::shared_ptr<PreparedGraph> graph = Prepare();
  ASSERT_TRUE(Run(*graph).ok());
  engine_.reset();
  graph.reset();
}

}  // namespace
}  // namespace hpvm::engine
