// SPDX-License-Identifier: Apache-2.0
// Traps in kernels with barriers in loops, on every device and in every variant: the right instance is named, the
// launch ends, its group executes everything before the next barrier and nothing after it, other groups execute
// everything.
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "compiler/ir/text/text.h"
#include "tests/gpu/device_run.h"

namespace hpvm::gpu_test {
namespace {

constexpr uint32_t kGroup = 16, kInstances = 48;
constexpr uint32_t kInner = 3, kOuter = 2, kSteps = kInner * kOuter;
constexpr uint32_t kEnd = 100 + kSteps * (kSteps + 1) / 2 + kOuter * kInner;

// Two nested loops with a barrier at the head of the inner one, as in sorts. In step n, counted from 1, an instance
// writes n to r, reads group memory, far outside if n is its word of x, and writes n to s. After the loops it writes
// to s 100, the sum of what it read, and 3 for each turn of the outer loop. `head` follows the barrier, `more`
// decides about the next step by %next.
std::string Kernel(const std::string& head, const std::string& more) {
  return R"(module "m"
uses barrier
uses group_memory
param buffer inout "r"
param buffer inout "s"
param buffer in "x"
entry f0
func f0 "f" (%r: i32, %s: i32, %x: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %inner: i32 = const.i32 3
  %outer: i32 = const.i32 2
  %bytes: i32 = const.i32 64
  %far: i32 = const.i32 65536
  %hundred: i32 = const.i32 100
  %g: i32 = local_alloc %bytes
  %lid: i32 = local_id.i32 %zero
  %id: i32 = instance_id.i32 %zero
  %lo: i32 = shl.i32 %lid, %two
  %o: i32 = shl.i32 %id, %two
  %mine: i32 = add.i32 %g, %lo
  %rp: i32 = add.i32 %r, %o
  %sp: i32 = add.i32 %s, %o
  %xp: i32 = add.i32 %x, %o
  %end: i32 = loop again (%turn: i32 = %zero, %sum0: i32 = %zero, %n0: i32 = %zero) {
    %sum2: i32, %n2: i32 = loop step (%k: i32 = %zero, %sum: i32 = %sum0, %n: i32 = %n0) {
      barrier
      )" +
         head + R"(
      %now: i32 = add.i32 %n, %one
      store.i32 flat %rp, %now
      store.i32 flat %mine, %now
      %at: i32 = load.i32 flat %xp
      %is_here: i32 = eq.i32 %at, %now
      %shift: i32 = mul.i32 %is_here, %far
      %place: i32 = add.i32 %mine, %shift
      %v: i32 = load.i32 flat %place
      %sum1: i32 = add.i32 %sum, %v
      store.i32 flat %sp, %now
      %next: i32 = add.i32 %k, %one
      )" +
         more + R"(
      if s1 %more {
        continue step (%next, %sum1, %now)
      } else {
        br s1 ()
      }
      br step (%sum1, %now)
    }
    %turn1: i32 = add.i32 %turn, %one
    %three_more: i32 = add.i32 %sum2, %inner
    %is_more: i32 = lt_u.i32 %turn1, %outer
    if s2 %is_more {
      continue again (%turn1, %three_more, %n2)
    } else {
      br s2 ()
    }
    br again (%three_more)
  }
  barrier
  %other: i32 = load.i32 flat %g
  %all: i32 = add.i32 %end, %hundred
  store.i32 flat %sp, %all
  return ()
}
)";
}

class MeetingsTest : public ::testing::TestWithParam<std::string> {
 protected:
  // `trapping` traps in step `at`; none does when 0.
  static void Expect(DeviceRun& device, Executable& executable, uint32_t trapping, uint32_t at) {
    SCOPED_TRACE("instance " + std::to_string(trapping) + " in step " + std::to_string(at));
    std::vector<uint32_t> r(kInstances), s(kInstances), x(kInstances);
    x[trapping] = at;
    ir::Launch launch;
    launch.extent = {kInstances, 1, 1};
    launch.group = {kGroup, 1, 1};
    for (std::vector<uint32_t>* words : {&r, &s, &x}) {
      launch.arguments.push_back({reinterpret_cast<uint8_t*>(words->data()), words->size() * 4, 0});
    }
    const StatusOr<ir::TrapReport> trap = device.Launch(executable, launch);
    ASSERT_TRUE(trap.ok()) << trap.status();
    EXPECT_EQ(trap->code, at == 0 ? ir::TrapCode::kNone : ir::TrapCode::kOutOfBounds);
    if (at != 0) {
      EXPECT_EQ(trap->instance[0], trapping);
    }
    for (uint32_t i = 0; i < kInstances; ++i) {
      const bool ends = at != 0 && i / kGroup == trapping / kGroup;
      EXPECT_EQ(r[i], ends ? at : kSteps) << "instance " << i;
      EXPECT_EQ(s[i], !ends ? kEnd : i == trapping ? at - 1 : at) << "instance " << i;
    }
  }
};

TEST_P(MeetingsTest, GroupsEndAtTheNextBarrier) {
  const std::string by_count = "%more: i32 = lt_u.i32 %next, %inner";
  const struct {
    const char* name;
    std::string head, more;
  } kCases[] = {
      {"the way on is known", "", by_count},
      {"a barrier more that may not test", "barrier", by_count},
      // The trapping instance does not know the loop's exit: %n1 is read after the trap.
      {"the way on is read", "",
       "%n1: i32 = load.i32 flat %mine\n%part: i32 = rem_u.i32 %n1, %inner\n%more: i32 = ne.i32 %part, %zero"},
      {"the way on was read before", "%n1: i32 = load.i32 flat %rp\n%part: i32 = rem_u.i32 %n1, %inner",
       "%more: i32 = lt_u.i32 %part, %two"},
  };
  // PoCL also runs the code for GPUs.
  std::vector<GpuTarget> targets{DeviceRun(GetParam()).info().gpu};
  if (targets[0].is_processor && GetParam().starts_with("opencl")) {
    targets.push_back(targets[0]);
    targets[1].is_processor = false;
  }
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    const StatusOr<ir::Module> module = ir::ParseModule(Kernel(c.head, c.more));
    ASSERT_TRUE(module.ok()) << module.status();
    for (const GpuTarget& target : targets) {
      SCOPED_TRACE(target.is_processor ? "for a processor" : "for a GPU");
      for (uint32_t variant = 0, variants = 1; variant < variants; ++variant) {
        SCOPED_TRACE("variant " + std::to_string(variant));
        DeviceRun device(GetParam(), variant);
        const StatusOr<Artifact> artifact = device.CompileFor(target, *module, {});
        ASSERT_TRUE(artifact.ok()) << artifact.status();
        variants = static_cast<uint32_t>(artifact->gpu.variants.size());
        const StatusOr<std::unique_ptr<Executable>> executable = device.Load(*artifact);
        ASSERT_TRUE(executable.ok()) << executable.status();
        Expect(device, **executable, 0, 0);
        for (const uint32_t trapping : {0u, 13u, 21u}) {
          for (const uint32_t at : {1u, kInner - 1, kInner, kInner + 1, kSteps}) {
            Expect(device, **executable, trapping, at);
          }
        }
      }
    }
  }
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  name[name.find(':')] = '_';
  return name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MeetingsTest);
INSTANTIATE_TEST_SUITE_P(All, MeetingsTest, ::testing::ValuesIn(Devices()), TestName);

}  // namespace
}  // namespace hpvm::gpu_test
