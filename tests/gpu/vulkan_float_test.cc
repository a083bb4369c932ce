// SPDX-License-Identifier: Apache-2.0
// Quotients and square roots of f32 follow IEEE 754 on every Vulkan device, with fma, through f64 and bit by bit; so
// do comparisons.
//   HPVMD_FLOATS=all gpu_vulkan_float_test     every significand of roots, more quotients
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
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

// Stores %c of `type`, which `operation` computes from %a and %b.
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

// Random bits, and pairs near one another and near the ends of the range, where rounding is hard.
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

bool IsWithin(float value, int least, int end) {
  return std::isfinite(value) && value != 0 && std::ilogb(value) >= least && std::ilogb(value) < end;
}

// Quotients as near to midpoints of two floats as possible, especially of values around the largest significand, with
// exponents up to both ends of the range that fma handles and a little beyond.
void HardQuotients(uint32_t seed, std::vector<uint32_t>& x, std::vector<uint32_t>& y) {
  std::mt19937 random(seed);
  for (uint32_t i = 0; i < kCount; ++i) {
    const auto any = static_cast<uint32_t>(random());
    const uint32_t odd = i % 4 == 0 ? 0xffffff - 2 * (any % 1024) : (any >> 8 | 0x800001);
    uint64_t inverse = odd;
    for (int step = 0; step < 6; ++step) {
      inverse *= 2 - odd * inverse;
    }
    // numerator * 2^k is odd * midpoint + off.
    const uint64_t off = i % 8 < 4 ? 1 : ~uint64_t{0};
    const int k = i % 16 < 8 ? 24 : 25;
    const uint64_t midpoint = (inverse * (0 - off) & ((uint64_t{1} << k) - 1)) | uint64_t{1} << 24;
    const uint64_t numerator = (odd * midpoint + off) >> k;
    const int scale = static_cast<int>(random() % 130) - 65, other = static_cast<int>(random() % 130) - 65;
    const float near = numerator < 1 << 24 ? static_cast<float>(numerator) : static_cast<float>(any >> 8);
    x[i] = std::bit_cast<uint32_t>(std::ldexp(near, scale - 23)) | (any & 0x80000000);
    y[i] = std::bit_cast<uint32_t>(std::ldexp(static_cast<float>(odd), other - 23)) | (any << 31);
  }
}

// A method of computation on one device.
struct Form {
  const char* name;
  bool has_fma, has_fp64;
};

class VulkanFloatTest : public ::testing::TestWithParam<std::string> {
 protected:
  // The form with fma is also tested on a device whose fma is not exact: results that it computes with fma may be
  // slightly off, the others are exact.
  void Check(const Form& form, bool divides, std::vector<uint32_t>& x, std::vector<uint32_t>& y) {
    SCOPED_TRACE(std::string(divides ? "divide" : "square root") + form.name);
    GpuTarget target = device_.info().gpu;
    if (form.has_fp64 && !target.has_fp64) {
      return;
    }
    const bool is_near = form.has_fma && !target.exact_fma;
    target.exact_fma = form.has_fma;
    target.has_fp64 = form.has_fp64;
    target.exact_divide = false;
    std::vector<uint32_t> r(kCount);
    ASSERT_NO_FATAL_FAILURE(Run(target, Kernel(divides ? "fdiv.f32 %a, %b" : "fsqrt.f32 %a"), {&r, &x, &y}));
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < kCount; ++i) {
      const float a = std::bit_cast<float>(x[i]), b = std::bit_cast<float>(y[i]);
      const float want = divides ? a / b : std::sqrt(a);
      const bool is_usual = divides ? IsWithin(a, -62, 62) && IsWithin(b, -62, 62) : a > 0 && IsWithin(a, -76, 126);
      const bool may_be_near = is_near && is_usual && r[i] - std::bit_cast<uint32_t>(want) + 4 <= 8;
      if (!may_be_near && !Same(r[i], want) && ++wrong <= 3) {
        ADD_FAILURE() << std::hex << x[i] << ", " << y[i] << ": " << r[i] << ", not " << std::bit_cast<uint32_t>(want);
      }
    }
    EXPECT_EQ(wrong, 0u);
  }

  // Buffers of kCount words each.
  void Run(const GpuTarget& target, const ir::Module& kernel, std::initializer_list<std::vector<uint32_t>*> buffers) {
    StatusOr<Artifact> artifact = device_.CompileFor(target, kernel, {});
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    StatusOr<std::unique_ptr<Executable>> executable = device_.Load(*std::move(artifact));
    ASSERT_TRUE(executable.ok()) << executable.status();
    ir::Launch launch;
    launch.extent = {kCount, 1, 1};
    for (std::vector<uint32_t>* buffer : buffers) {
      launch.arguments.push_back({reinterpret_cast<uint8_t*>(buffer->data()), kCount * 4, 0});
    }
    const StatusOr<ir::TrapReport> trap = device_.Launch(**executable, launch);
    ASSERT_TRUE(trap.ok()) << trap.status();
  }

  DeviceRun device_{GetParam()};
};

constexpr Form kForms[] = {{" with fma, else through f64", true, true},
                           {" with fma, else bit by bit", true, false},
                           {" through f64", false, true},
                           {" bit by bit", false, false}};

TEST_P(VulkanFloatTest, DividesAndTakesRootsExactly) {
  std::printf("%s: fma is %srounded once.\n", GetParam().c_str(), device_.info().gpu.exact_fma ? "" : "not ");
  std::vector<uint32_t> x = Operands(1), y = Operands(2), near_x(kCount), near_y(kCount);
  HardQuotients(3, near_x, near_y);
  for (const Form& form : kForms) {
    Check(form, true, x, y);
    Check(form, true, near_x, near_y);
    Check(form, false, x, y);
  }
}

// HPVMD_FLOATS=all: every significand of both parities of the exponent, and 64 times as many quotients.
TEST_P(VulkanFloatTest, TakesRootsOfEverySignificand) {
  const char* const floats = std::getenv("HPVMD_FLOATS");
  const uint32_t rounds = floats != nullptr && std::string_view(floats) == "all" ? (1 << 24) / kCount : 1;
  std::vector<uint32_t> x(kCount), y(kCount);
  for (uint32_t round = 0; round < rounds; ++round) {
    for (uint32_t i = 0; i < kCount; ++i) {
      x[i] = 0x3f800000 + (rounds == 1 ? i * 64 + i % 64 : round * kCount + i);
    }
    Check(kForms[0], false, x, y);
    HardQuotients(4 + round, x, y);
    Check(kForms[0], true, x, y);
  }
}

// Simulates a device that treats denormals as zeros in comparisons.
TEST_P(VulkanFloatTest, ComparesDenormals) {
  std::vector<uint32_t> x = Operands(3), y = Operands(4), r(kCount);
  for (uint32_t i = 0; i < kCount; i += 5) {
    y[i] = x[i] ^ (i % 2 == 0 ? 0 : i % 3 == 0 ? 1 : 0x80000000);  // Equal, neighbours, opposites.
  }
  GpuTarget target = device_.info().gpu;
  target.keeps_denormals = false;
  const std::pair<const char*, bool (*)(float, float)> comparisons[] = {
      {"flt", [](float a, float b) { return a < b; }},  {"fgt", [](float a, float b) { return a > b; }},
      {"fle", [](float a, float b) { return a <= b; }}, {"fge", [](float a, float b) { return a >= b; }},
      {"feq", [](float a, float b) { return a == b; }}, {"fne", [](float a, float b) { return a != b; }}};
  for (size_t i = 0; i < 2 * std::size(comparisons); ++i) {
    const auto& [name, compare] = comparisons[i / 2];
    SCOPED_TRACE(name);
    target.exact_fma = target.rounds_to_even && !target.exact_fma;  // Both methods.
    ASSERT_NO_FATAL_FAILURE(Run(target, Kernel(std::string(name) + ".f32 %a, %b", "i32"), {&r, &x, &y}));
    uint32_t wrong = 0;
    for (uint32_t k = 0; k < kCount; ++k) {
      const bool want = compare(std::bit_cast<float>(x[k]), std::bit_cast<float>(y[k]));
      if (r[k] != (want ? 1u : 0u) && ++wrong <= 3) {
        ADD_FAILURE() << std::hex << x[k] << ", " << y[k] << ": " << r[k];
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
