// SPDX-License-Identifier: Apache-2.0
// Quotients, square roots and comparisons of f32 are those of IEEE 754 on every Vulkan device.
#include <bit>
#include <cmath>
#include <cstdlib>
#include <random>
#include <utility>

#include "gtest/gtest.h"

#include "compiler/ir/text/text.h"
#include "tests/gpu/device_run.h"

namespace hpvm::gpu_test {
namespace {

constexpr uint32_t kCount = 1 << 18;

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

// Stores `type` %c, which `operation` makes of %a and %b.
ir::Module Kernel(const std::string& operation, const std::string& type = "f32") {
  return Parse(R"(module "m"
param buffer inout "r"
param buffer in "x"
param buffer in "y"
entry f0
func f0 "f" (%r: i32, %x: i32, %y: i32) -> () {
  %d: i32 = const.i32 0
  %i: i32 = instance_id.i32 %d
  %two: i32 = const.i32 2
  %o: i32 = shl.i32 %i, %two
  %px: i32 = add.i32 %x, %o
  %py: i32 = add.i32 %y, %o
  %pr: i32 = add.i32 %r, %o
  %a: f32 = load.f32 flat %px
  %b: f32 = load.f32 flat %py
  %c: )" + type +
               " = " + operation + "\n  store." + type + " flat %pr, %c\n  return ()\n}\n");
}

// Any bits, and pairs near one another and near the ends of the range, where rounding is hard.
std::vector<uint32_t> Operands(uint32_t seed) {
  std::mt19937 random(seed);
  static constexpr uint32_t kEdges[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000,
                                        0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x3f800000,
                                        0x3f800001, 0x3f7fffff, 0x34000000, 0x00400000};
  std::vector<uint32_t> values(kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    const uint32_t any = static_cast<uint32_t>(random());
    values[i] = i % 8 == 0   ? kEdges[any % std::size(kEdges)]
                : i % 8 == 1 ? any & 0x80ffffff  // Denormals and the smallest normal numbers.
                : i % 8 == 2 ? 0x3f000000 | (any & 0xffffff)
                             : any;
  }
  return values;
}

bool Same(uint32_t got, float want) {
  return std::isnan(want) ? std::isnan(std::bit_cast<float>(got)) : got == std::bit_cast<uint32_t>(want);
}

class VulkanFloatTest : public ::testing::TestWithParam<std::string> {};

TEST_P(VulkanFloatTest, DividesAndTakesRootsExactly) {
  DeviceRun device(GetParam());
  std::vector<uint32_t> x = Operands(1), y = Operands(2), r(kCount);
  for (const bool has_fp64 : {true, false}) {
    for (const bool divides : {true, false}) {
      SCOPED_TRACE(std::string(divides ? "divide" : "square root") + (has_fp64 ? " through f64" : " bit by bit"));
      GpuTarget target = device.info().gpu;
      if (has_fp64 && !target.has_fp64) {
        continue;
      }
      target.has_fp64 = has_fp64;
      target.exact_divide = false;
      StatusOr<Artifact> artifact = device.CompileFor(target, Kernel(divides ? "fdiv.f32 %a, %b" : "fsqrt.f32 %a"), {});
      ASSERT_TRUE(artifact.ok()) << artifact.status();
      StatusOr<std::unique_ptr<Executable>> executable = device.Load(*std::move(artifact));
      ASSERT_TRUE(executable.ok()) << executable.status();
      ir::Launch launch;
      launch.extent = {kCount, 1, 1};
      for (std::vector<uint32_t>* buffer : {&r, &x, &y}) {
        launch.arguments.push_back({reinterpret_cast<uint8_t*>(buffer->data()), kCount * 4, 0});
      }
      const StatusOr<ir::TrapReport> trap = device.Launch(**executable, launch);
      ASSERT_TRUE(trap.ok()) << trap.status();
      uint32_t wrong = 0;
      for (uint32_t i = 0; i < kCount; ++i) {
        const float a = std::bit_cast<float>(x[i]), b = std::bit_cast<float>(y[i]);
        const float want = divides ? a / b : std::sqrt(a);
        if (!Same(r[i], want) && ++wrong <= 3) {
          ADD_FAILURE() << std::hex << x[i] << ", " << y[i] << ": " << r[i] << ", not "
                        << std::bit_cast<uint32_t>(want);
        }
      }
      EXPECT_EQ(wrong, 0u);
    }
  }
}

// As a device does that takes denormals for zeros in comparisons.
TEST_P(VulkanFloatTest, ComparesDenormals) {
  DeviceRun device(GetParam());
  std::vector<uint32_t> x = Operands(3), y = Operands(4), r(kCount);
  for (uint32_t i = 0; i < kCount; i += 5) {
    y[i] = x[i] ^ (i % 2 == 0 ? 0 : i % 3 == 0 ? 1 : 0x80000000);  // Equal, neighbours, opposites.
  }
  GpuTarget target = device.info().gpu;
  target.keeps_denormals = false;
  const std::pair<const char*, bool (*)(float, float)> comparisons[] = {
      {"flt", [](float a, float b) { return a < b; }},  {"fgt", [](float a, float b) { return a > b; }},
      {"fle", [](float a, float b) { return a <= b; }}, {"fge", [](float a, float b) { return a >= b; }},
      {"feq", [](float a, float b) { return a == b; }}, {"fne", [](float a, float b) { return a != b; }}};
  for (const auto& [name, compare] : comparisons) {
    SCOPED_TRACE(name);
    StatusOr<Artifact> artifact = device.CompileFor(target, Kernel(std::string(name) + ".f32 %a, %b", "i32"), {});
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    StatusOr<std::unique_ptr<Executable>> executable = device.Load(*std::move(artifact));
    ASSERT_TRUE(executable.ok()) << executable.status();
    ir::Launch launch;
    launch.extent = {kCount, 1, 1};
    for (std::vector<uint32_t>* buffer : {&r, &x, &y}) {
      launch.arguments.push_back({reinterpret_cast<uint8_t*>(buffer->data()), kCount * 4, 0});
    }
    const StatusOr<ir::TrapReport> trap = device.Launch(**executable, launch);
    ASSERT_TRUE(trap.ok()) << trap.status();
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < kCount; ++i) {
      const bool want = compare(std::bit_cast<float>(x[i]), std::bit_cast<float>(y[i]));
      if (r[i] != (want ? 1u : 0u) && ++wrong <= 3) {
        ADD_FAILURE() << std::hex << x[i] << ", " << y[i] << ": " << r[i];
      }
    }
    EXPECT_EQ(wrong, 0u);
  }
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  name[name.find(':')] = '_';
  return name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VulkanFloatTest);
INSTANTIATE_TEST_SUITE_P(All, VulkanFloatTest, ::testing::ValuesIn(VulkanDevices()), TestName);

}  // namespace
}  // namespace hpvm::gpu_test
