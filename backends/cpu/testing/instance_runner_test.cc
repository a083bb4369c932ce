// SPDX-License-Identifier: Apache-2.0
// Tests instances in the caller's memory: what they leave there, and modules that call each other.
#include "backends/cpu/testing/instance_runner.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "compiler/back/llvm/llvm_back.h"
#include "compiler/ir/text/text.h"

namespace hpvm::cpu {
namespace {

using ir::TrapCode;

std::unique_ptr<InstanceRunner> Load(const std::string& text) {
  const StatusOr<ir::Module> module = ir::ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  if (!module.ok()) {
    return nullptr;
  }
  const StatusOr<Artifact> artifact = EmitCpuImage(*module, *HostCpuTarget());
  EXPECT_TRUE(artifact.ok()) << artifact.status();
  StatusOr<std::unique_ptr<InstanceRunner>> runner = InstanceRunner::Load(*artifact, module->reference_types);
  EXPECT_TRUE(runner.ok()) << runner.status();
  return runner.ok() ? *std::move(runner) : nullptr;
}

// The memory and state of a linked module.
struct Store {
  explicit Store(uint64_t bytes = 65536, uint64_t bytes_max = 65536)
      : memory(bytes_max), state(64), storage{memory.data(), bytes, bytes_max, globals.data(), state.data()} {}
  std::vector<uint8_t> memory;
  std::vector<uint64_t> globals{7};
  std::vector<uint8_t> state;
  ir::InstanceStorage storage;
};

ir::TrapReport RunIn(InstanceRunner& runner, Store& store, uint64_t argument, ir::HostCalls* host = nullptr) {
  ir::Launch launch;
  launch.arguments = {{nullptr, 0, argument}};
  launch.instance = &store.storage;
  launch.host = host;
  const StatusOr<ir::TrapReport> report = runner.Run(launch);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : ir::TrapReport{};
}

// Memory, state, globals and growth persist from one run to the next.
TEST(InstanceRunnerTest, KeepsWhatInstancesLeave) {
  std::unique_ptr<InstanceRunner> runner = Load(R"(module "kept"
memory 65536 262144
global mut i32 7
state 64
param i32 "n"
entry f0
func f0 "add" (%n: i32) -> () {
  %z: i32 = const.i32 0
  %a: i32 = load.i32 module %z + 600
  %a2: i32 = add.i32 %a, %n
  store.i32 module %z + 600, %a2
  %b: i32 = load.i32 state %z + 8
  %b2: i32 = add.i32 %b, %n
  store.i32 state %z + 8, %b2
  %c: i32 = global_get.i32 g0
  %c2: i32 = add.i32 %c, %n
  global_set.i32 g0 %c2
  %g: i32 = memory_grow %n
  return ()
}
)");
  ASSERT_NE(runner, nullptr);
  Store store(65536, 3 * 65536);
  EXPECT_EQ(RunIn(*runner, store, 1).code, TrapCode::kNone);
  EXPECT_EQ(store.storage.memory_bytes, 2 * 65536u);
  EXPECT_EQ(RunIn(*runner, store, 2).code, TrapCode::kNone);  // Does not fit any more.
  EXPECT_EQ(store.storage.memory_bytes, 2 * 65536u);
  EXPECT_EQ(store.memory[600], 3);
  EXPECT_EQ(store.state[8], 3);
  EXPECT_EQ(store.globals[0], 10u);
}

// Grows the memory by a page and returns a sum; or runs another module, or the same again.
class Others final : public ir::HostCalls {
 public:
  Others(InstanceRunner& next, Store& store) : next_(next), store_(store) {}
  TrapCode Call(uint32_t reference, uint32_t type, std::span<uint64_t> values) override {
    EXPECT_EQ(type, 0u);
    EXPECT_EQ(values.size(), 1u);
    deepest = std::max(deepest, ++depth_);
    if (reference == 1) {
      store_.storage.memory_bytes += 65536;
      values[0] += 100;
    }
    const TrapCode code = reference == 2   ? RunIn(next_, store_, values[0], this).code
                          : reference == 1 ? TrapCode::kNone
                                           : TrapCode::kHost;
    --depth_;
    return code;
  }
  uint32_t deepest = 0;

 private:
  InstanceRunner& next_;
  Store& store_;
  uint32_t depth_ = 0;
};

constexpr char kCaller[] = R"(module "caller"
memory 65536 262144
uses linked
state 64
reftype (i32) -> (i32)
first_reference 10
param i32 "r"
entry f0
func f0 "call" (%r: i32) -> () {
  %z: i32 = const.i32 0
  %v: i32 = call_ref r0 (%r, %r)
  store.i32 state %z, %v
  %s: i32 = memory_size
  store.i32 state %z + 4, %s
  %last: i32 = const.i32 131068
  store.i32 module %last, %r
  return ()
}
)";

// A function of another module receives and returns values, and memory that it grew is visible afterwards.
TEST(InstanceRunnerTest, CallsOtherModules) {
  std::unique_ptr<InstanceRunner> runner = Load(kCaller);
  ASSERT_NE(runner, nullptr);
  Store store(65536, 2 * 65536);
  Others others(*runner, store);
  EXPECT_EQ(RunIn(*runner, store, 1, &others).code, TrapCode::kNone);
  EXPECT_EQ(store.state[0], 101);
  EXPECT_EQ(store.state[4], 2);
  EXPECT_EQ(store.memory[131068], 1);
  EXPECT_EQ(RunIn(*runner, store, 3, &others).code, TrapCode::kHost);
  EXPECT_EQ(RunIn(*runner, store, 0, &others).code, TrapCode::kUninitializedElement);
  EXPECT_EQ(RunIn(*runner, store, 1, nullptr).code, TrapCode::kHost);
}

// Modules that call each other without end exhaust the stack, and the next run starts afresh.
TEST(InstanceRunnerTest, NestedRunsShareTheStack) {
  std::unique_ptr<InstanceRunner> runner = Load(kCaller);
  ASSERT_NE(runner, nullptr);
  Store store(2 * 65536, 2 * 65536);
  Others others(*runner, store);
  EXPECT_EQ(RunIn(*runner, store, 2, &others).code, TrapCode::kStackOverflow);
  EXPECT_GT(others.deepest, 50u);
  EXPECT_EQ(RunIn(*runner, store, 2, &others).code, TrapCode::kStackOverflow);
}

// Launches and storage on which the image cannot run are refused.
TEST(InstanceRunnerTest, Refusals) {
  std::unique_ptr<InstanceRunner> runner = Load(kCaller);
  ASSERT_NE(runner, nullptr);
  Store store;
  ir::Launch launch;
  launch.arguments = {{nullptr, 0, 1}};
  EXPECT_FALSE(runner->Run(launch).ok());
  launch.instance = &store.storage;
  launch.extent = {2, 1, 1};
  EXPECT_FALSE(runner->Run(launch).ok());
  launch.extent = {1, 1, 1};
  launch.arguments.clear();
  EXPECT_FALSE(runner->Run(launch).ok());
  launch.arguments = {{nullptr, 0, 1}};
  store.storage.memory_bytes_max = 5 * 65536;
  EXPECT_FALSE(runner->Run(launch).ok());
}

}  // namespace
}  // namespace hpvm::cpu
