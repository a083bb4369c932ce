// SPDX-License-Identifier: Apache-2.0
// Tests graphs of many small launches on many small buffers, on devices with drivers that are made to copy as
// discrete GPUs do, with lanes and through staging memory.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/device.h"
#include "backends/registry.h"
#include "backends/vulkan/device.h"
#include "engine/engine.h"
#include "engine/testing/document.h"
#include "engine/testing/in_process_compiler.h"

namespace hpvm::engine {
namespace {

using testing::Document;
using testing::InProcessCompiler;
using testing::WasmFromText;

using Tensor = std::vector<int32_t>;

constexpr std::string_view kModule = R"((module
  (import "hpvm" "instance_id" (func $id (param i32) (result i32)))
  (memory 1)
  (func $at (param $base i32) (result i32)
    (i32.add (local.get $base) (i32.shl (call $id (i32.const 0)) (i32.const 2))))
  (func (export "step") (param $d i32) (local $p i32)
    (local.set $p (call $at (local.get $d)))
    (i32.store (local.get $p) (i32.add (i32.mul (i32.load (local.get $p)) (i32.const 3)) (i32.const 1))))
  (func (export "mix") (param $a i32) (param $b i32) (local $p i32)
    (local.set $p (call $at (local.get $b)))
    (i32.store (local.get $p)
      (i32.add (i32.mul (i32.load (local.get $p)) (i32.const 3)) (i32.load (call $at (local.get $a))))))
))";

class OneModule final : public ModuleSource {
 public:
  StatusOr<std::span<const uint8_t>> Find(const graph::Module&) override { return std::span<const uint8_t>(bytes_); }

 private:
  std::vector<uint8_t> bytes_ = WasmFromText(kModule);
};

// Forwards all calls, and counts submissions.
class CountingDevice final : public Device {
 public:
  CountingDevice(Hub& hub, std::unique_ptr<Device> device) : Device(hub), device_(std::move(device)) {}
  const DeviceInfo& info() const override { return device_->info(); }
  Support Supports(const KernelNeeds& needs) const override { return device_->Supports(needs); }
  StatusOr<std::unique_ptr<Executable>> Load(Artifact artifact, const Patience& patience) override {
    return device_->Load(std::move(artifact), patience);
  }
  StatusOr<std::unique_ptr<Buffer>> Allocate(const BufferSpec& spec) override { return device_->Allocate(spec); }
  Status Submit(const Submission& submission) override {
    ++submissions;
    return device_->Submit(submission);
  }

  std::atomic<int> submissions{0};

 private:
  const std::unique_ptr<Device> device_;
};

StatusOr<std::unique_ptr<Device>> Open(const std::string& name, Hub& hub) {
  return name == "vulkan:0" ? CreateVulkanDevice(name, hub, {.as_discrete = true})
                            : CreateOpenClDevice(name, hub, {.always_stage = true, .has_copy_lanes = true});
}

class SmallBuffersTest : public ::testing::TestWithParam<const char*> {};

// Uses buffers of all sizes around the plan's alignment; some launches read a second buffer of the same size.
TEST_P(SmallBuffersTest, FewSubmissionsGiveTheRightBytes) {
  constexpr int kBuffers = 150, kLaunches = 600, kOfASize = 10;
  Hub hub;
  StatusOr<std::unique_ptr<Device>> opened = Open(GetParam(), hub);
  if (absl::IsNotFound(opened.status())) {
    GTEST_SKIP() << Message(opened.status());
  }
  ASSERT_TRUE(opened.ok()) << opened.status();
  CountingDevice device(hub, *std::move(opened));
  StatusOr<std::unique_ptr<Device>> cpu = backends::CreateDevice("cpu", hub, {.cpu_threads = 1});
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  InProcessCompiler compiler;
  OneModule modules;
  Engine engine({.devices = {cpu->get(), &device},
                 .hub = &hub,
                 .compiler = &compiler,
                 .clock = &RealClock(),
                 .graph_limits = {}});

  SeededRng rng(5);
  std::vector<Tensor> inputs, outputs(kBuffers), expected;
  std::vector<std::string> current;
  Document d;
  const auto shape = [&](int buffer) { return "[" + std::to_string(inputs[buffer].size()) + "]"; };
  for (int b = 0; b < kBuffers; ++b) {
    Tensor& tensor = inputs.emplace_back(1 + static_cast<size_t>(b / kOfASize) * 19);  // Up to 1,068 bytes.
    for (int32_t& element : tensor) {
      element = static_cast<int32_t>(rng.Next());
    }
    outputs[b].resize(tensor.size());
    current.push_back("x" + std::to_string(b));
    d.InputOf(current.back(), "i32", shape(b));
    d.OutputOf("y" + std::to_string(b), "i32", shape(b));
  }
  expected = inputs;
  for (int i = 0; i < kLaunches; ++i) {
    const int b = i % kBuffers, other = b / kOfASize * kOfASize + static_cast<int>(rng.Below(kOfASize));
    const bool is_mixed = other != b && rng.Below(4) == 0;
    const std::string name = "n" + std::to_string(i);
    Document of_size("i32", shape(b));
    d.RawNode(name,
              of_size.Leaf(is_mixed ? "mix" : "step",
                           is_mixed ? std::vector<std::string>{"in a", "inout b"} : std::vector<std::string>{"inout b"},
                           ",\"instances\":" + shape(b) + ",\"devices\":[\"" + GetParam() + "\"]"));
    if (is_mixed) {
      d.Edge(current[other], name + ".a");
    }
    d.Edge(current[b], name + ".b");
    current[b] = name + ".b";
    for (size_t k = 0; k < expected[b].size(); ++k) {
      const auto old = static_cast<uint32_t>(expected[b][k]);
      expected[b][k] = static_cast<int32_t>(old * 3 + (is_mixed ? static_cast<uint32_t>(expected[other][k]) : 1));
    }
  }
  RunRequest request;
  const auto bind = [](Tensor& tensor) {
    return Binding{.type = ElementType::kI32,
                   .shape = {tensor.size()},
                   .data = reinterpret_cast<uint8_t*>(tensor.data()),
                   .bytes = tensor.size() * sizeof(int32_t)};
  };
  for (int b = 0; b < kBuffers; ++b) {
    d.Edge(current[b], "y" + std::to_string(b));
    request.inputs["x" + std::to_string(b)] = bind(inputs[b]);
    request.outputs["y" + std::to_string(b)] = bind(outputs[b]);
  }
  StatusOr<PrepareOutcome> outcome = engine.Prepare(d.Text(), modules, kNever, {});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_FALSE(HasErrors(outcome->diagnostics)) << ToString(outcome->diagnostics);
  for (int run = 0; run < 3; ++run) {
    SCOPED_TRACE(run);
    device.submissions = 0;
    for (Tensor& output : outputs) {
      std::fill(output.begin(), output.end(), -1);
    }
    const StatusOr<RunResult> result = engine.Run(*outcome->graph, request);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(outputs, expected);
    // Each of the three lanes submits a few times, whatever a launch costs: with every copy at 1 us it would be over
    // a hundred.
    EXPECT_LE(device.submissions, 40);
    RecordProperty("submissions", device.submissions);
  }
}

INSTANTIATE_TEST_SUITE_P(Drivers, SmallBuffersTest, ::testing::Values("opencl:0", "vulkan:0"),
                         [](const auto& info) { return std::string(info.param).substr(0, 6); });

}  // namespace
}  // namespace hpvm::engine
