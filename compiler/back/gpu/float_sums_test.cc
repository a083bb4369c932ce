// SPDX-License-Identifier: Apache-2.0
// The proof in float_sums.h, by trial: adding with denormal numbers taken for zeros gives the bits of IEEE 754 for
// every operand that the guard lets through.
#include "compiler/back/gpu/float_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "compiler/ir/text/text.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::gpu {
namespace {

using ::testing::HasSubstr;

template <typename Float>
struct Facts;
template <>
struct Facts<float> {
  using Bits = uint32_t;
  static constexpr ir::Type kType = ir::Type::kF32;
  static constexpr int kPrecision = 24;
};
template <>
struct Facts<double> {
  using Bits = uint64_t;
  static constexpr ir::Type kType = ir::Type::kF64;
  static constexpr int kPrecision = 53;
};

template <typename Float>
Float Flushed(Float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(Float{0}, value) : value;
}

template <typename Float>
class FloatSumsTest : public ::testing::Test {
 protected:
  using Bits = typename Facts<Float>::Bits;
  static constexpr Bits kSign = Bits{1} << (sizeof(Bits) * 8 - 1);
  static constexpr Bits kLeast = static_cast<Bits>(LeastGuardedOperand(Facts<Float>::kType));

  static bool IsSafe(Bits operand) { return (operand & ~kSign) >= kLeast; }

  // Whether both additions agree. A NaN's bits are open.
  static bool Agrees(Bits old, Bits operand) {
    const Float m = std::bit_cast<Float>(old), x = std::bit_cast<Float>(operand);
    const Float exact = m + x, device = Flushed(Flushed(m) + Flushed(x));
    return (std::isnan(exact) && std::isnan(device)) || std::bit_cast<Bits>(exact) == std::bit_cast<Bits>(device);
  }

  static void Expect(Bits old, Bits operand) {
    if (IsSafe(operand)) {
      ASSERT_TRUE(Agrees(old, operand)) << std::hex << "old 0x" << old << ", operand 0x" << operand;
    }
  }

  // Zeros, infinities, NaNs, and what lies around powers of two near the denormal numbers and near the limit.
  static std::vector<Bits> Edges() {
    constexpr int kFraction = Facts<Float>::kPrecision - 1;
    constexpr Bits kInfinity = static_cast<Bits>(std::bit_cast<Bits>(std::numeric_limits<Float>::infinity()));
    std::vector<Bits> edges{0,
                            kInfinity,
                            kInfinity - 1,
                            kInfinity + 1,
                            kInfinity | Bits{1} << (kFraction - 1),
                            std::bit_cast<Bits>(Float{1})};
    for (int i = 0; i < kFraction; ++i) {
      edges.push_back(Bits{1} << i);  // Denormal.
    }
    for (Bits exponent = 0; exponent <= (kLeast >> kFraction) + 3; ++exponent) {
      for (const Bits by : {Bits{0}, Bits{1}, Bits{2}, Bits{1} << (kFraction - 1)}) {
        edges.push_back((exponent << kFraction) + by);
        edges.push_back((exponent << kFraction) - by);
      }
    }
    const size_t positive = edges.size();
    for (size_t i = 0; i < positive; ++i) {
      edges.push_back(edges[i] ^ kSign);
    }
    return edges;
  }
};

using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(FloatSumsTest, Floats);

TYPED_TEST(FloatSumsTest, LimitIsWhatItSays) {
  EXPECT_EQ(std::bit_cast<TypeParam>(TestFixture::kLeast),
            std::ldexp(std::numeric_limits<TypeParam>::min(), Facts<TypeParam>::kPrecision + 1));
}

TYPED_TEST(FloatSumsTest, EdgesAgree) {
  const auto edges = TestFixture::Edges();
  for (const auto old : edges) {
    for (const auto operand : edges) {
      TestFixture::Expect(old, operand);
    }
  }
}

// Any bits, and exponents that are close to each other and to the limit, where sums cancel out.
TYPED_TEST(FloatSumsTest, RandomBitsAgree) {
  using Bits = typename Facts<TypeParam>::Bits;
  constexpr int kFraction = Facts<TypeParam>::kPrecision - 1;
  std::mt19937_64 random(27);
  for (int i = 0; i < 4'000'000; ++i) {
    const Bits old = static_cast<Bits>(random()), operand = static_cast<Bits>(random());
    TestFixture::Expect(old, operand);
    const Bits near = TestFixture::kLeast + ((operand & ~TestFixture::kSign) >> 6) % (Bits{3} << kFraction);
    const Bits sign = operand & TestFixture::kSign;
    TestFixture::Expect(old % (TestFixture::kLeast + (Bits{3} << kFraction)) | (old & TestFixture::kSign), near | sign);
    TestFixture::Expect((near + static_cast<Bits>(random() % 9) - 4) | (~sign & TestFixture::kSign), near | sign);
  }
}

// Half of it would be too low.
TYPED_TEST(FloatSumsTest, LimitIsNeeded) {
  using Bits = typename Facts<TypeParam>::Bits;
  constexpr Bits kNormal = Bits{1} << (Facts<TypeParam>::kPrecision - 1);
  EXPECT_FALSE(TestFixture::Agrees((kNormal - 1) | TestFixture::kSign, TestFixture::kLeast - kNormal));
  EXPECT_FALSE(TestFixture::Agrees(kNormal - 1, Bits{0}));
}

// Each sum that others see is reported, with its place.
TEST(FloatSumsReportTest, SaysHowSumsAreMade) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nparam buffer inout \"b\"\nentry f0\nfunc f0 \"f\" (%b: i32) -> () {\n"
      "%x: f32 = const.f32 1\n%old: f32 = atomic_fadd.f32 flat %b, %x\nreturn ()\n}\n");
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_TRUE(RunGpuPipeline(*module).ok());
  GpuTarget target;
  target.buffers_max = 4;
  Diagnostics diagnostics;
  const GpuPlan plan = PlanGpu(*module, target, diagnostics);
  ASSERT_TRUE(diagnostics.empty()) << ToString(diagnostics);
  for (const auto& [has_operation, fast_math, want] :
       {std::tuple(false, false, "has no atomic sum of f32 in buffers"), std::tuple(true, true, "by itself."),
        std::tuple(true, false, "might lose a denormal number")}) {
    KernelReport report;
    ReportFloatSums(
        *module, plan,
        [&](const ir::Op& op, bool is_group) {
          EXPECT_FALSE(is_group);
          return FloatSumOf(*module, op, has_operation, /*flushes=*/true, fast_math);
        },
        report);
    ASSERT_EQ(report.remarks.size(), 1u);
    EXPECT_THAT(report.remarks[0].text, HasSubstr(want));
  }
}

}  // namespace
}  // namespace hpvm::gpu
