// SPDX-License-Identifier: Apache-2.0
// The math library's f32 functions of one argument on every device behind a driver on this machine: exact ones equal
// the interpreter's bit for bit; with fast math they keep the bounds of client/kernel/README.md, those of a device's
// own functions where they are used, and so do quotients and roots.
//   HPVMD_MATH_SAMPLES=n gpu_math_test     n times 2^18 arguments per function
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>

#include "gtest/gtest.h"

#include "backends/opencl/pocl.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/math/testing/kernel.h"
#include "compiler/math/testing/reference.h"
#include "tests/gpu/device_run.h"

namespace hpvm::gpu_test {
namespace {

constexpr uint32_t kCount = 1 << 18;

uint32_t Rounds() {
  const char* const text = std::getenv("HPVMD_MATH_SAMPLES");
  return text == nullptr ? 1 : static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

// Critical arguments of the functions, then random bits and numbers from the function's interesting range.
std::vector<float> ArgumentsOf(const math::Reference& function, uint32_t seed) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> arguments = {0.0f, kInfinity, std::numeric_limits<float>::quiet_NaN(), 0x1p-126f, 0x1p-149f};
  for (const float turn : {1.0f, 0.5f, 2.0f, 0.625f, 12000.0f, 65536.0f, 88.72284f, 87.33655f, 103.97f, 126.0f, 128.0f,
                           150.0f, 38.53184f, 37.92978f, 45.0f, 3.1415927f, 1.5707964f, 0x1.f9cbe2p+7f, 0x1p127f}) {
    arguments.insert(arguments.end(), {std::nextafterf(turn, 0), turn, std::nextafterf(turn, kInfinity)});
  }
  for (size_t i = 0, count = arguments.size(); i < count; ++i) {
    arguments.push_back(-arguments[i]);
  }
  std::mt19937_64 random(seed);
  while (arguments.size() < kCount) {
    arguments.push_back(static_cast<float>(math::Sample32(function, random)[0]));
  }
  return arguments;
}

// The kernel's buffers are x, y and the result. `operation` computes %c from %a and %b.
ir::Module Kernel(const std::string& operation) {
  StatusOr<ir::Module> module = ir::ParseModule(R"(module "m"
param buffer in "x"
param buffer in "y"
param buffer inout "r"
entry f0
func f0 "f" (%x: i32, %y: i32, %r: i32) -> () {
  %d: i32 = const.i32 0
  %i: i32 = instance_id.i32 %d
  %two: i32 = const.i32 2
  %o: i32 = shl.i32 %i, %two
  %px: i32 = add.i32 %x, %o
  %py: i32 = add.i32 %y, %o
  %pr: i32 = add.i32 %r, %o
  %a: f32 = load.f32 flat %px
  %b: f32 = load.f32 flat %py
)" + operation + R"(
  store.f32 flat %pr, %c
  return ()
}
)");
  EXPECT_TRUE(module.ok()) << module.status();
  return module.ok() ? *std::move(module) : ir::Module{};
}

bool IsDenormal(double x) { return x != 0 && std::fabs(x) < std::numeric_limits<float>::min(); }

class MathTest : public ::testing::TestWithParam<std::string> {
 protected:
  bool IsOpenCl() const { return GetParam().starts_with("opencl"); }
  // PoCL's functions keep the bounds, too, and its fma is exact: it can stand in for other devices.
  GpuTarget DeviceTarget() const {
    GpuTarget target = device_.info().gpu;
    target.is_processor = false;
    target.device_math = target.device_math || IsOpenCl();
    return target;
  }

  // Buffers of kCount floats each.
  void Run(const GpuTarget& target, const ir::Module& kernel, std::initializer_list<std::vector<float>*> buffers,
           bool fast_math = true) {
    StatusOr<Artifact> artifact = device_.CompileFor(target, kernel, {}, fast_math);
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    StatusOr<std::unique_ptr<Executable>> executable = device_.Load(*std::move(artifact));
    ASSERT_TRUE(executable.ok()) << executable.status();
    ir::Launch launch;
    launch.extent = {kCount, 1, 1};
    for (std::vector<float>* buffer : buffers) {
      launch.arguments.push_back({reinterpret_cast<uint8_t*>(buffer->data()), kCount * 4, 0});
    }
    const StatusOr<ir::TrapReport> trap = device_.Launch(**executable, launch);
    ASSERT_TRUE(trap.ok()) << trap.status();
    ASSERT_EQ(trap->code, ir::TrapCode::kNone);
  }

  // Compares exact functions for the target with the interpreter.
  void CheckBits(const math::Reference& function, const GpuTarget& target) {
    SCOPED_TRACE(function.name);
    const ir::Module kernel = math::KernelOf(function, false, wasm::MathForms::kExact);
    std::vector<float> x = ArgumentsOf(function, 3), r(kCount), want(kCount);
    ASSERT_NO_FATAL_FAILURE(Run(target, kernel, {&x, &r}, /*fast_math=*/false));
    ir::Launch launch;
    launch.extent = {kCount, 1, 1};
    for (std::vector<float>* buffer : {&x, &want}) {
      launch.arguments.push_back({reinterpret_cast<uint8_t*>(buffer->data()), kCount * 4, 0});
    }
    const StatusOr<ir::TrapReport> trap = ir::Interpret(kernel, launch);
    ASSERT_TRUE(trap.ok()) << trap.status();
    for (uint32_t i = 0; i < kCount; ++i) {
      const bool same = std::bit_cast<uint32_t>(r[i]) == std::bit_cast<uint32_t>(want[i]);
      ASSERT_TRUE(same || (std::isnan(r[i]) && std::isnan(want[i])))
          << std::hexfloat << x[i] << ": " << r[i] << ", not " << want[i];
    }
  }

  void CheckFunction(const math::Reference& function, bool is_device) {
    SCOPED_TRACE(function.name);
    const double bound = is_device ? function.device_f32 : function.fast_f32;
    const ir::Module kernel =
        math::KernelOf(function, false, is_device ? wasm::MathForms::kDevice : wasm::MathForms::kFast);
    double worst = 0;
    float worst_at = 0, worst_got = 0;
    for (uint32_t round = 0; round < Rounds(); ++round) {
      std::vector<float> x = ArgumentsOf(function, round), r(kCount);
      ASSERT_NO_FATAL_FAILURE(Run(is_device ? DeviceTarget() : device_.info().gpu, kernel, {&x, &r}));
      for (uint32_t i = 0; i < kCount; ++i) {
        const double error =
            is_device ? math::DeviceError(function, x[i], r[i]) : math::FlushedError(function, x[i], r[i], false);
        if (!(error <= worst)) {
          worst = error;
          worst_at = x[i];
          worst_got = r[i];
        }
      }
    }
    std::printf("%-6s%s %8.4f (bound %g) at %a\n", function.name.data(), is_device ? ", device's" : "", worst, bound,
                worst_at);
    EXPECT_LE(worst, bound) << std::hexfloat << worst_at << ": " << worst_got;
  }

  // `truth` computes in double what `operation` computes; the bound is in ulp.
  void CheckOperation(const std::string& operation, double (*truth)(double, double), double bound) {
    SCOPED_TRACE(operation);
    GpuTarget target = device_.info().gpu;
    target.exact_fma = target.rounds_to_even;  // Vulkan: quotients as for devices with an exact fma.
    std::mt19937 random(5);
    std::vector<float> x(kCount), y(kCount), r(kCount);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    constexpr float kEdges[] = {
        0.0f, -0.0f, 1.0f, -1.0f, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 0x1p126f, 0x1.8p127f};
    for (uint32_t i = 0; i < kCount; ++i) {
      x[i] = i < 4096 ? kEdges[i % std::size(kEdges)] : std::bit_cast<float>(static_cast<uint32_t>(random()));
      y[i] = i < 4096 ? kEdges[i / 64 % std::size(kEdges)] : std::bit_cast<float>(static_cast<uint32_t>(random()));
    }
    ASSERT_NO_FATAL_FAILURE(Run(target, Kernel(operation), {&x, &y, &r}));
    double worst = 0;
    for (uint32_t i = 0; i < kCount; ++i) {
      const double want = truth(x[i], y[i]);
      const bool may_flush = IsDenormal(x[i]) || IsDenormal(y[i]) || IsDenormal(want / 2);
      const double error = may_flush ? 0 : math::UlpErrorFrom(want, r[i]);
      const double here = std::fabs(y[i]) >= 0x1p126f ? std::max(bound, 16.0) : bound;
      worst = std::max(worst, std::isinf(y[i]) || std::fabs(y[i]) < 0x1p126f ? error : 0);
      ASSERT_LE(error, here) << std::hexfloat << x[i] << ", " << y[i] << ": " << r[i] << ", not " << want;
    }
    std::printf("%s: %.4f (bound %g)\n", operation.c_str(), worst, bound);
  }

  DeviceRun device_{GetParam()};
};

// Tables, the code for small and large arguments, and a GPU's code on PoCL and lavapipe, too.
TEST_P(MathTest, ExactFunctionsAreTheInterpreters) {
  GpuTarget gpu = device_.info().gpu;
  gpu.is_processor = false;
  for (const math::Reference& function : math::References()) {
    for (const std::string_view name : {"exp", "exp2", "log", "log2", "sin", "cos", "tan"}) {
      if (function.name == name) {
        CheckBits(function, device_.info().gpu);
        CheckBits(function, gpu);
      }
    }
  }
}

TEST_P(MathTest, FunctionsKeepTheirBounds) {
  const bool has_functions = device_.info().gpu.device_math;
  std::printf("%s has %s.\n", GetParam().c_str(), has_functions ? "functions of its own" : "no functions of its own");
  for (const math::Reference& function : math::References()) {
    if (function.arity == 1 && function.fast_f32 != 0) {
      CheckFunction(function, false);
      if (function.device_f32 != 0 && DeviceTarget().device_math) {
        CheckFunction(function, true);
      }
    }
  }
}

// Twice %a / %b, in a loop that does not change them.
constexpr char kQuotientsInLoop[] = R"(  %zero: f32 = const.f32 0
  %turns: i32 = const.i32 2
  %less: i32 = const.i32 1
  %c: f32 = loop again (%s: f32 = %zero, %n: i32 = %turns) {
    %q: f32 = fdiv.f32 %a, %b
    %t: f32 = fadd.f32 %s, %q
    %m: i32 = sub.i32 %n, %less
    if last %m {
      continue again (%t, %m)
    } else {
      br again (%t)
    }
    trap 1
  })";

TEST_P(MathTest, QuotientsAndRootsKeepTheirBounds) {
  const auto quotient = [](double a, double b) { return a / b; };
  const auto twice = [](double a, double b) { return 2 * (a / b); };
  const auto root = [](double a, double) { return std::sqrt(a); };
  const auto reciprocal_root = [](double a, double) { return 1 / std::sqrt(a); };
  CheckOperation("  %c: f32 = fdiv.f32 %a, %b", quotient, 3);
  CheckOperation(kQuotientsInLoop, twice, 3);
  CheckOperation("  %c: f32 = fsqrt.f32 %a", root, 3);
  CheckOperation("  %one: f32 = const.f32 0x3f800000\n  %q: f32 = fsqrt.f32 %a\n  %c: f32 = fdiv.f32 %one, %q",
                 reciprocal_root, 3);
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  name[name.find(':')] = '_';
  return name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MathTest);
INSTANTIATE_TEST_SUITE_P(All, MathTest, ::testing::ValuesIn(Devices()), TestName);

}  // namespace
}  // namespace hpvm::gpu_test

int main(int argc, char** argv) {
  hpvm::opencl::SetPoclEnvironment(/*keeps=*/true);  // As executors do.
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
