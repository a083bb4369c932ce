// SPDX-License-Identifier: Apache-2.0
// Atomic sums of floats in fast math, which the work items of a subgroup compute together, on every device: each
// operand is added once, whichever work items take part. Sums of small integers are exact in any order.
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

#include "backends/opencl/pocl.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "tests/gpu/device_run.h"

namespace hpvm::gpu_test {
namespace {

using ir::Type;

struct Case {
  const char* name;
  const char* body;  // Adds %x, of type T with W bytes, to words of %s; %i is the instance, %n the parameter.
  const char* uses = "";
};

const Case kCases[] = {
    {"to one place", "%o: T = atomic_fadd.T flat %s, %x\n"},
    {"one after the other",
     "%o: T = atomic_fadd.T flat %s, %x\n%y: T = fadd.T %x, %x\n%p: T = atomic_fadd.T flat %s, %y\n"
     "%q: T = atomic_fadd.T flat %s + W, %x\n"},
    {"from a branch that every third takes",
     "%r: i32 = rem_u.i32 %i, %three\n%is: i32 = eqz.i32 %r\n"
     "if b0 %is {\n%o: T = atomic_fadd.T flat %s, %x\nbr b0 ()\n} else {\nbr b0 ()\n}\n"
     "%p: T = atomic_fadd.T flat %s + W, %x\n"},
    {"from a loop that instances go around differently often",
     "%turns: i32 = rem_u.i32 %i, %seven\n"
     "loop l (%k: i32 = %zero) {\n%o: T = atomic_fadd.T flat %s, %x\n%m: i32 = add.i32 %k, %one\n"
     "%c: i32 = le_u.i32 %m, %turns\nif b0 %c {\ncontinue l (%m)\n} else {\nbr b0 ()\n}\nbr l ()\n}\n"},
    {"to a place of the iteration",
     "%turns: i32 = rem_u.i32 %i, %seven\n"
     "loop l (%k: i32 = %zero) {\n%t: i32 = mul.i32 %k, %width\n%at: i32 = add.i32 %s, %t\n"
     "%o: T = atomic_fadd.T flat %at, %x\n%m: i32 = add.i32 %k, %one\n"
     "%c: i32 = le_u.i32 %m, %turns\nif b0 %c {\ncontinue l (%m)\n} else {\nbr b0 ()\n}\nbr l ()\n}\n"},
    {"to the place of a row, whose borders are anywhere",
     "%r: i32 = div_u.i32 %i, %n\n%t: i32 = mul.i32 %r, %width\n%at: i32 = add.i32 %s, %t\n"
     "%o: T = atomic_fadd.T flat %at, %x\n"},
    {"to the place of a group",
     "%g: i32 = group_id.i32 %zero\n%t: i32 = mul.i32 %g, %width\n%at: i32 = add.i32 %s, %t\n"
     "%o: T = atomic_fadd.T flat %at, %x\n"},
    {"in group memory, and from there on",
     "%bytes: i32 = const.i32 16\n%g: i32 = local_alloc %bytes\n%o: T = atomic_fadd.T group %g, %x\nbarrier\n"
     "%lid: i32 = local_id.i32 %zero\n%is: i32 = eqz.i32 %lid\n%sum: T = load.T group %g\n"
     "if b0 %is {\n%p: T = atomic_fadd.T flat %s, %sum\nbr b0 ()\n} else {\nbr b0 ()\n}\n",
     "uses barrier\nuses group_memory\n"},
};

constexpr uint64_t kWords = 1'024;

ir::Module KernelOf(const Case& c, Type type) {
  const std::string text =
      absl::StrCat("module \"m\"\nuses separate_buffers\n", c.uses,
                   "param buffer inout \"s\"\nparam buffer in \"x\"\nparam i32 \"n\"\nentry f0\n"
                   "func f0 \"f\" (%s: i32, %v: i32, %n: i32) -> () {\n%zero: i32 = const.i32 0\n"
                   "%one: i32 = const.i32 1\n%three: i32 = const.i32 3\n%seven: i32 = const.i32 7\n"
                   "%width: i32 = const.i32 W\n%i: i32 = instance_id.i32 %zero\n%off: i32 = mul.i32 %i, %width\n"
                   "%place: i32 = add.i32 %v, %off\n%x: T = load.T flat %place\n",
                   c.body, "return ()\n}\n");
  const bool is_wide = type == Type::kF64;
  StatusOr<ir::Module> module = ir::ParseModule(absl::StrReplaceAll(text, {{": T", is_wide ? ": f64" : ": f32"},
                                                                           {".T", is_wide ? ".f64" : ".f32"},
                                                                           {"32 W", is_wide ? "32 8" : "32 4"},
                                                                           {"+ W", is_wide ? "+ 8" : "+ 4"}}));
  EXPECT_TRUE(module.ok()) << module.status();
  return module.ok() ? *std::move(module) : ir::Module();
}

template <typename Float>
ir::Launch LaunchOf(std::vector<Float>& sums, std::vector<Float>& x, uint32_t n, uint64_t group) {
  ir::Launch launch;
  launch.extent = {x.size(), 1, 1};
  launch.group = {group, 1, 1};
  for (std::vector<Float>* column : {&sums, &x}) {
    launch.arguments.push_back({reinterpret_cast<uint8_t*>(column->data()), column->size() * sizeof(Float), 0});
  }
  launch.arguments.push_back({nullptr, 0, n});
  return launch;
}

class SumsTest : public ::testing::TestWithParam<std::string> {
 protected:
  bool Has(Type type) const {
    const GpuTarget& gpu = device_.info().gpu;
    return type == Type::kF32 || (gpu.has_fp64 && gpu.has_int64_atomics);
  }
  // Returns null when the device refuses the kernel.
  std::unique_ptr<Executable> Load(const Case& c, Type type) {
    GpuTarget target = device_.info().gpu;
    // PTX code has an alternative form for devices that do not support PTX.
    target.has_subgroup_sums = target.has_subgroup_sums || GetParam().starts_with("opencl");
    StatusOr<Artifact> artifact = device_.CompileFor(target, KernelOf(c, type), {}, /*fast_math=*/true);
    if (!artifact.ok()) {
      return nullptr;
    }
    StatusOr<std::unique_ptr<Executable>> executable = device_.Load(*std::move(artifact));
    EXPECT_TRUE(executable.ok()) << executable.status();
    return executable.ok() ? *std::move(executable) : nullptr;
  }

  template <typename Float>
  std::vector<Float> Run(Executable& executable, std::vector<Float>& x, uint32_t n, uint64_t group) {
    std::vector<Float> sums(kWords, Float{2});
    const StatusOr<ir::TrapReport> got = device_.Launch(executable, LaunchOf(sums, x, n, group));
    EXPECT_TRUE(got.ok() && got->code == ir::TrapCode::kNone) << got.status();
    return sums;
  }

  template <typename Float>
  void AddsEachOnce(Type type) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(c.name);
      const std::unique_ptr<Executable> executable = Load(c, type);
      if (executable == nullptr) {  // Vulkan has no 64-bit atomics in group memory.
        EXPECT_TRUE(type == Type::kF64 && *c.uses != 0);
        continue;
      }
      const ir::Module module = KernelOf(c, type);
      std::mt19937 random(1);
      for (const uint64_t count : {1, 7, 33, 64, 1'000}) {
        SCOPED_TRACE(count);
        std::vector<Float> x(count);
        for (Float& value : x) {
          value = static_cast<Float>(static_cast<int>(random() % 17) - 8);
        }
        const uint64_t group = count % 8 == 0 ? 8 : 1;
        std::vector<Float> want(kWords, Float{2});
        ASSERT_TRUE(ir::Interpret(module, LaunchOf(want, x, 13, group)).ok());
        EXPECT_EQ(Run(*executable, x, 13, group), want);
      }
    }
  }

  DeviceRun device_{GetParam()};
};

TEST_P(SumsTest, AddEachOperandOnce) {
  AddsEachOnce<float>(Type::kF32);
  if (Has(Type::kF64)) {
    AddsEachOnce<double>(Type::kF64);
  }
}

// Errors of reals are bounded by the effect of the order, and tests for infinities and NaNs work.
TEST_P(SumsTest, KeepTheBoundOfFastMath) {
  const std::unique_ptr<Executable> executable = Load(kCases[0], Type::kF32);
  ASSERT_NE(executable, nullptr);
  std::mt19937 random(2);
  std::uniform_real_distribution<float> reals(-1, 1);
  std::vector<float> x(5'000);
  double exact = 2, magnitude = 2;
  for (float& value : x) {
    value = reals(random);
    exact += value;
    magnitude += std::fabs(value);
  }
  const double steps = static_cast<double>(x.size());
  EXPECT_NEAR(Run(*executable, x, 1, 1)[0], exact, steps * magnitude * std::numeric_limits<float>::epsilon());
  x[4'321] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Run(*executable, x, 1, 1)[0], std::numeric_limits<float>::infinity());
  x[1'234] = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(Run(*executable, x, 1, 1)[0]));
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  name[name.find(':')] = '_';
  return name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SumsTest);
INSTANTIATE_TEST_SUITE_P(All, SumsTest, ::testing::ValuesIn(Devices()), TestName);

}  // namespace
}  // namespace hpvm::gpu_test

int main(int argc, char** argv) {
  hpvm::opencl::SetPoclEnvironment(/*keeps=*/true);  // As executors do.
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
