// SPDX-License-Identifier: Apache-2.0
// Long loops on every Vulkan device. Mesa's llvmpipe ends all loops of a vector of instances after 65,535 rounds in
// total: there a launch with more rounds fails with kLoopsCut, and is correct elsewhere.
#include "gtest/gtest.h"

#include "compiler/ir/loops_cut.h"
#include "compiler/ir/text/text.h"
#include "tests/gpu/device_run.h"

namespace hpvm::gpu_test {
namespace {

std::vector<std::string> VulkanDevices() {
  std::vector<std::string> found = Devices();
  std::erase_if(found, [](const std::string& name) { return name.rfind("vulkan", 0) != 0; });
  return found;
}

ir::Module Parse(const std::string& text) {
  StatusOr<ir::Module> module = ir::ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  return module.ok() ? *std::move(module) : ir::Module{};
}

// r[i] = the exclusive or of 1 to n[i]. Instances with an odd number use another copy of the loop.
constexpr char kCount[] = R"(module "m"
param buffer inout "r"
param buffer in "n"
entry f0
func f0 "f" (%r: i32, %n: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %i: i32 = instance_id.i32 %zero
  %o: i32 = shl.i32 %i, %two
  %np: i32 = add.i32 %n, %o
  %rp: i32 = add.i32 %r, %o
  %count: i32 = load.i32 flat %np
  %side: i32 = and.i32 %i, %one
  %sum: i32 = if both %side {
    %odd: i32 = loop again (%k: i32 = %zero, %s: i32 = %zero) {
      %next: i32 = add.i32 %k, %one
      %x: i32 = xor.i32 %s, %next
      %more: i32 = lt_u.i32 %next, %count
      if choice %more {
        continue again (%next, %x)
      } else {
        br again (%x)
      }
      trap 1
    }
    br both (%odd)
  } else {
    %even: i32 = loop again2 (%k2: i32 = %zero, %s2: i32 = %zero) {
      %next2: i32 = add.i32 %k2, %one
      %x2: i32 = xor.i32 %next2, %s2
      %more2: i32 = lt_u.i32 %next2, %count
      if choice2 %more2 {
        continue again2 (%next2, %x2)
      } else {
        br again2 (%x2)
      }
      trap 1
    }
    br both (%even)
  }
  store.i32 flat %rp, %sum
  return ()
}
)";

// Instances with n[i] = 0 never end, in a loop without an exit; the others write 7.
constexpr char kEndless[] = R"(module "m"
param buffer inout "r"
param buffer in "n"
entry f0
func f0 "f" (%r: i32, %n: i32) -> () {
  %zero: i32 = const.i32 0
  %two: i32 = const.i32 2
  %seven: i32 = const.i32 7
  %i: i32 = instance_id.i32 %zero
  %o: i32 = shl.i32 %i, %two
  %np: i32 = add.i32 %n, %o
  %rp: i32 = add.i32 %r, %o
  %go: i32 = load.i32 flat %np
  if ends %go {
    br ends ()
  } else {
    loop again () {
      continue again ()
    }
    trap 1
  }
  store.i32 flat %rp, %seven
  return ()
}
)";

// In groups of ten: lanes beyond the group would loop without end; instances count to 100.
constexpr char kBeyond[] = R"(module "m"
uses barrier
param buffer inout "r"
param buffer in "n"
entry f0
func f0 "f" (%r: i32, %n: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %ten: i32 = const.i32 10
  %end: i32 = const.i32 100
  %l: i32 = local_id.i32 %zero
  %i: i32 = instance_id.i32 %zero
  %o: i32 = shl.i32 %i, %two
  %rp: i32 = add.i32 %r, %o
  %beyond: i32 = le_u.i32 %ten, %l
  loop wait () {
    if stays %beyond {
      continue wait ()
    } else {
      br wait ()
    }
    trap 1
  }
  barrier
  %sum: i32 = loop again (%k: i32 = %zero) {
    %next: i32 = add.i32 %k, %one
    %more: i32 = lt_u.i32 %next, %end
    if choice %more {
      continue again (%next)
    } else {
      br again (%next)
    }
    trap 1
  }
  store.i32 flat %rp, %sum
  return ()
}
)";

// r[i] = 1000 and n[i] rounds, each an atomic addition, in groups of ten.
constexpr char kAtomicRounds[] = R"(module "m"
uses barrier
param buffer inout "r"
param buffer in "n"
entry f0
func f0 "f" (%r: i32, %n: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %thousand: i32 = const.i32 1000
  %i: i32 = instance_id.i32 %zero
  %o: i32 = shl.i32 %i, %two
  %np: i32 = add.i32 %n, %o
  %rp: i32 = add.i32 %r, %o
  %count: i32 = load.i32 flat %np
  barrier
  loop again (%k: i32 = %zero) {
    %old: i32 = atomic_add.i32 flat %rp, %one
    %next: i32 = add.i32 %k, %one
    %more: i32 = lt_u.i32 %next, %count
    if choice %more {
      continue again (%next)
    } else {
      br again ()
    }
    trap 1
  }
  %rounds: i32 = load.i32 flat %rp
  %sum: i32 = add.i32 %rounds, %thousand
  store.i32 flat %rp, %sum
  return ()
}
)";

class LoopsTest : public ::testing::TestWithParam<std::string> {
 protected:
  LoopsTest() : device_(GetParam()) {}

  bool CutsLoops() const { return device_.info().gpu.is_processor; }

  // Runs one instance per count, in groups of `group`; the results are in `results`.
  ir::TrapCode Run(const char* kernel, std::vector<uint32_t> counts, uint32_t group = 8) {
    StatusOr<Artifact> artifact = device_.Compile(Parse(kernel));
    EXPECT_TRUE(artifact.ok()) << artifact.status();
    StatusOr<std::unique_ptr<Executable>> executable = device_.Load(*std::move(artifact));
    EXPECT_TRUE(executable.ok()) << executable.status();
    results.assign(counts.size(), 0);
    ir::Launch launch;
    launch.extent = {counts.size(), 1, 1};
    launch.group = {group, 1, 1};
    const uint64_t bytes = counts.size() * 4;
    launch.arguments = {{reinterpret_cast<uint8_t*>(results.data()), bytes, 0},
                        {reinterpret_cast<uint8_t*>(counts.data()), bytes, 0}};
    const StatusOr<ir::TrapReport> trap = device_.Launch(**executable, launch);
    EXPECT_TRUE(trap.ok()) << trap.status();
    return trap.ok() ? trap->code : ir::TrapCode::kHost;
  }

  void ExpectCounted(const std::vector<uint32_t>& counts) {
    for (size_t i = 0; i < counts.size(); ++i) {
      const std::array<uint32_t, 4> by_rest{counts[i], 1, counts[i] + 1, 0};
      EXPECT_EQ(results[i], by_rest[counts[i] % 4]) << "instance " << i << ", " << counts[i] << " rounds";
    }
  }

  DeviceRun device_;
  std::vector<uint32_t> results;
};

TEST_P(LoopsTest, ShortLoopsRun) {
  const std::vector<uint32_t> counts{1, 2, 3, 30'000, 5, 6, 30'000, 8, 9};
  EXPECT_EQ(Run(kCount, counts), ir::TrapCode::kNone);
  ExpectCounted(counts);
}

// One instance has the long loop, or two have half of it each: the driver's limit is not their fault.
TEST_P(LoopsTest, LongLoopsAreRightOrFailByName) {
  for (const std::vector<uint32_t>& counts : std::vector<std::vector<uint32_t>>{
           {100'000}, {1, 2, 3, 100'000, 5, 6, 7, 8}, {40'000, 40'000, 1, 1, 1, 1, 1, 1}}) {
    const ir::TrapCode code = Run(kCount, counts);
    EXPECT_EQ(code, CutsLoops() ? ir::kLoopsCut : ir::TrapCode::kNone);
    if (code == ir::TrapCode::kNone) {
      ExpectCounted(counts);
    }
  }
}

// Nothing follows a loop without an exit, and yet it must not count as complete.
TEST_P(LoopsTest, EndlessLoopsFailByName) {
  if (!CutsLoops()) {
    GTEST_SKIP() << "The device runs endless loops until its process is killed.";
  }
  EXPECT_EQ(Run(kEndless, {0}), ir::kLoopsCut);
  EXPECT_EQ(Run(kEndless, {1, 1, 0, 1, 1, 1, 1, 1, 1}), ir::kLoopsCut);
  EXPECT_EQ(Run(kEndless, {1, 1, 1}), ir::TrapCode::kNone);
  EXPECT_EQ(results, std::vector<uint32_t>(3, 7));
}

// llvmpipe runs a group of ten as two vectors: six lanes of the second are not instances, but their loops counted.
TEST_P(LoopsTest, LanesBeyondAGroupDoNotLoop) {
  EXPECT_EQ(Run(kBeyond, std::vector<uint32_t>(10, 1), 10), ir::TrapCode::kNone);
  EXPECT_EQ(results, std::vector<uint32_t>(10, 100));
}

// llvmpipe treats a memory barrier as one at which the vectors of a group wait for each other, and drops the others
// when one of them has ended: our atomics use none there.
TEST_P(LoopsTest, VectorsOfAGroupGoAroundDifferentlyOften) {
  const std::vector<uint32_t> counts{7, 1, 2, 9, 4, 5, 6, 7, 2, 1};
  EXPECT_EQ(Run(kAtomicRounds, counts, 10), ir::TrapCode::kNone);
  for (size_t i = 0; i < counts.size(); ++i) {
    EXPECT_EQ(results[i], 1000 + counts[i]) << "instance " << i;
  }
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  name[name.find(':')] = '_';
  return name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LoopsTest);
INSTANTIATE_TEST_SUITE_P(All, LoopsTest, ::testing::ValuesIn(VulkanDevices()), TestName);

}  // namespace
}  // namespace hpvm::gpu_test
