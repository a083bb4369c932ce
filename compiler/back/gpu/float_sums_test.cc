// SPDX-License-Identifier: Apache-2.0
// Tests the proof in float_sums.h empirically: addition that flushes denormal numbers gives the bits of IEEE 754 for
// every operand that the guard admits.
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

  // Returns true if both additions agree; a NaN's bits may differ.
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

  // Returns zeros, infinities, NaNs, and the values around powers of two near the denormal numbers and near the limit.
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

// Tests random bits, and exponents close to each other and to the limit, where terms cancel.
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

// Half the limit would be too low.
TYPED_TEST(FloatSumsTest, LimitIsNeeded) {
  using Bits = typename Facts<TypeParam>::Bits;
  constexpr Bits kNormal = Bits{1} << (Facts<TypeParam>::kPrecision - 1);
  EXPECT_FALSE(TestFixture::Agrees((kNormal - 1) | TestFixture::kSign, TestFixture::kLeast - kNormal));
  EXPECT_FALSE(TestFixture::Agrees(kNormal - 1, Bits{0}));
}

// Reports each atomic sum that other instances can see, with its source position.
TEST(FloatSumsReportTest, SaysHowSumsAreMade) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nparam buffer inout \"b\"\nentry f0\nfunc f0 \"f\" (%b: i32) -> () {\n"
      "%x: f32 = const.f32 1\n%old: f32 = atomic_fadd.f32 flat %b, %x\nreturn ()\n}\n");
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_TRUE(pass::RunGpuPipeline(*module).ok());
  GpuTarget target;
  target.buffers_max = 4;
  Diagnostics diagnostics;
  const GpuPlan plan = PlanGpu(*module, target, diagnostics);
  ASSERT_TRUE(diagnostics.empty()) << ToString(diagnostics);
  for (const auto& [has_operation, fast_math, want] : {std::tuple(false, false, "has no atomic add of f32 in buffers"),
                                                       std::tuple(true, true, "own atomic add makes the sum."),
                                                       std::tuple(true, false, "might flush a denormal number")}) {
    KernelReport report;
    ReportFloatSums(
        *module, plan,
        [&](const ir::Op& op, bool is_group) {
          EXPECT_FALSE(is_group);
          return FloatSumOf(*module, op, has_operation, /*flushes=*/true, fast_math);
        },
        std::vector<SumPartners>(plan.reach.size(), fast_math ? SumPartners::kAll : SumPartners::kNone), report);
    ASSERT_EQ(report.remarks.size(), 1u);
    EXPECT_THAT(report.remarks[0].text, HasSubstr(want));
    EXPECT_EQ(report.remarks[0].text.find("one of them adds the total") != std::string::npos, fast_math);
  }
}

// A kernel with a sum of %x, and the expected partners of its work items.
struct PartnersCase {
  const char* name;
  const char* body;  // Defines %at, an address at or after %b, and adds.
  SumPartners want;
  const char* uses = "";
};

const PartnersCase kPartnersCases[] = {
    {"one place", "%s: f32 = atomic_fadd.f32 flat %b, %x\n", SumPartners::kAll},
    {"a place that the launch gives",
     "%t: i32 = mul.i32 %n, %four\n%at: i32 = add.i32 %b, %t\n%s: f32 = atomic_fadd.f32 flat %at, %x\n",
     SumPartners::kAll},
    {"in a branch that some take",
     "if i0 %i {\n%s: f32 = atomic_fadd.f32 flat %b, %x\nbr i0 ()\n} else {\nbr i0 ()\n}\n", SumPartners::kAll},
    {"in group memory", "%g: i32 = local_alloc %four\n%s: f32 = atomic_fadd.f32 group %g, %x\n", SumPartners::kAll,
     "uses group_memory\n"},
    {"a place of each instance's own",
     "%t: i32 = mul.i32 %i, %four\n%at: i32 = add.i32 %b, %t\n%s: f32 = atomic_fadd.f32 flat %at, %x\n",
     SumPartners::kNone},
    {"a place that is looked up",
     "%p: i32 = mul.i32 %i, %four\n%q: i32 = add.i32 %a, %p\n%v: i32 = load.i32 flat %q\n"
     "%r: i32 = div_u.i32 %v, %n\n%t: i32 = mul.i32 %r, %four\n"
     "%at: i32 = add.i32 %b, %t\n%s: f32 = atomic_fadd.f32 flat %at, %x\n",
     SumPartners::kNone},
    {"a place of rows",
     "%r: i32 = div_u.i32 %i, %n\n%t: i32 = mul.i32 %r, %four\n%at: i32 = add.i32 %b, %t\n"
     "%s: f32 = atomic_fadd.f32 flat %at, %x\n",
     SumPartners::kAtOnce},
    {"a place of fewer than a subgroup",
     "%r: i32 = div_u.i32 %i, %four\n%t: i32 = mul.i32 %r, %four\n%at: i32 = add.i32 %b, %t\n"
     "%s: f32 = atomic_fadd.f32 flat %at, %x\n",
     SumPartners::kNone},
    {"a place of neighbours along x",
     "%one: i32 = const.i32 1\n%y: i32 = instance_id.i32 %one\n%t: i32 = mul.i32 %y, %four\n%at: i32 = add.i32 %b, %t\n"
     "%s: f32 = atomic_fadd.f32 flat %at, %x\n",
     SumPartners::kAtOnce},
    // When instances run a loop for different numbers of iterations, they need not reach the same count together.
    {"a place of an iteration",
     "loop l (%k: i32 = %zero) {\n%t: i32 = mul.i32 %k, %four\n%at: i32 = add.i32 %b, %t\n"
     "%s: f32 = atomic_fadd.f32 flat %at, %x\n%m: i32 = add.i32 %k, %four\n%c: i32 = lt_u.i32 %m, %n\n"
     "if c0 %c {\ncontinue l (%m)\n} else {\nbr c0 ()\n}\nbr l ()\n}\n",
     SumPartners::kAtOnce},
    {"one after the other",
     "%s: f32 = atomic_fadd.f32 flat %b, %x\n%y: f32 = fadd.f32 %x, %x\n%u: f32 = atomic_fadd.f32 flat %b, %y\n",
     SumPartners::kNext},
    {"to another word", "%s: f32 = atomic_fadd.f32 flat %b, %x\n%u: f32 = atomic_fadd.f32 flat %b + 4, %x\n",
     SumPartners::kAll},
    {"with a store between them",
     "%s: f32 = atomic_fadd.f32 flat %b, %x\nstore.i32 flat %b + 8, %n\n%u: f32 = atomic_fadd.f32 flat %b, %x\n",
     SumPartners::kAll},
    // No work item may observe another's sum too early.
    {"old values", "%s: f32 = atomic_fadd.f32 flat %b, %x\nstore.f32 flat %b + 4, %s\n", SumPartners::kNone},
    {"another's old value",
     "%s: f32 = atomic_fadd.f32 flat %b, %x\n%o: i32 = atomic_load.i32 flat %b\nstore.i32 flat %b + 4, %o\n",
     SumPartners::kNone},
    {"loads of what is written",
     "%s: f32 = atomic_fadd.f32 flat %b, %x\n%o: i32 = load.i32 flat %b + 8\nstore.i32 flat %b + 4, %o\n",
     SumPartners::kNone},
};

SumPartners PartnersOf(const PartnersCase& c, bool fast_math, bool has_sums, const char* more = "") {
  StatusOr<ir::Module> module =
      ir::ParseModule(std::string("module \"m\"\nuses separate_buffers\n") + c.uses + more +
                      "param buffer in \"a\"\nparam buffer inout \"b\"\nparam f32 \"x\"\nparam i32 \"n\"\nentry f0\n"
                      "func f0 \"f\" (%a: i32, %b: i32, %x: f32, %n: i32) -> () {\n"
                      "%zero: i32 = const.i32 0\n%four: i32 = const.i32 4\n%i: i32 = instance_id.i32 %zero\n" +
                      c.body + "return ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  if (!module.ok() || !pass::RunGpuPipeline(*module).ok()) {
    ADD_FAILURE() << c.name;
    return SumPartners::kNone;
  }
  GpuTarget target;
  target.buffers_max = 4;
  target.has_int64 = true;
  target.local_bytes_max = 1024;
  target.subgroup_size = 32;
  target.has_subgroup_sums = has_sums;
  Diagnostics diagnostics;
  const GpuPlan plan = PlanGpu(*module, target, diagnostics);
  EXPECT_TRUE(diagnostics.empty()) << ToString(diagnostics);
  const std::vector<SumPartners> partners = FindSumPartners(*module, plan, target, fast_math);
  const ir::Function& f = module->function(module->entry);
  for (uint32_t i = 0; i < f.ops.size(); ++i) {
    if (f.ops[i].code == ir::Opcode::kAtomicFAdd && plan.reach[i] != Reach::kNone) {
      return partners[i];
    }
  }
  ADD_FAILURE() << c.name << ": there is no sum.";
  return SumPartners::kNone;
}

TEST(SumPartnersTest, AddUpWhereNobodyCanTell) {
  for (const PartnersCase& c : kPartnersCases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(PartnersOf(c, /*fast_math=*/true, /*has_sums=*/true), c.want);
    EXPECT_EQ(PartnersOf(c, /*fast_math=*/false, /*has_sums=*/true), SumPartners::kNone);
    EXPECT_EQ(PartnersOf(c, /*fast_math=*/true, /*has_sums=*/false), SumPartners::kNone);
  }
}

}  // namespace
}  // namespace hpvm::gpu
