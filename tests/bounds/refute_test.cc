// SPDX-License-Identifier: Apache-2.0
// The search refutes wrong claims and no right ones.
#include "tests/bounds/refute.h"

#include <gtest/gtest.h>

#include "compiler/pass/testing/random_kernel.h"

namespace hpvm::bounds {
namespace {

// Stores x to element x + n if x is less than m.
constexpr char kBody[] =
    " %g: i32 = lt_u.i32 %x, %m\n if g0 %g {\n %e: i32 = add.i32 %x, %n\n %o: i32 = shl.i32 %e, %c2\n"
    " store.i32 param(0) %o, %x\n br g0 ()\n} else {\n br g0 ()\n}\n";

class RefuteTest : public ::testing::Test {
 protected:
  RefuteTest() : module_(pass::testing::BoundsKernel(kBody)) {
    const ir::Function& f = module_.function(module_.entry);
    for (uint32_t i = 0; i < f.ops.size(); ++i) {
      store_ = f.ops[i].code == ir::Opcode::kStore ? ir::OpId(i) : store_;
    }
  }
  // Instances [0, 100) store element x + 5 of 32 if x < m.
  bool IsRefuted(const Claim& claim, uint64_t m, uint64_t bytes = 128) {
    Situation situation;
    situation.extent = {100, 1, 1};
    situation.params = {bytes, 5, m};
    return Refuter(module_, 1).Refute(situation, {claim}, 64).has_value();
  }
  Claim Offsets(std::optional<__int128> lo, std::optional<__int128> hi, bool is_inside = false) const {
    return {store_, false, is_inside, lo, hi};
  }

  ir::Module module_;
  ir::OpId store_;
};

TEST_F(RefuteTest, WhatIsRightStands) {
  EXPECT_FALSE(IsRefuted(Offsets(20, 416), 200, 1000));
  EXPECT_FALSE(IsRefuted(Offsets(20, 124, true), 27));
  EXPECT_FALSE(IsRefuted(Offsets({}, {}), 200));
  EXPECT_FALSE(IsRefuted(Offsets(20, {}), 200));
  EXPECT_FALSE(IsRefuted({store_, true, true, {}, {}}, 0));
  // The same, modulo 2^32.
  const __int128 modulus = __int128{1} << 32;
  EXPECT_FALSE(IsRefuted(Offsets(20 - modulus, 416 - modulus), 200, 1000));
  EXPECT_FALSE(IsRefuted(Offsets(20 + 5 * modulus, 416 + 5 * modulus), 200, 1000));
}

TEST_F(RefuteTest, WhatIsWrongIsRefuted) {
  EXPECT_TRUE(IsRefuted(Offsets(20, 415), 200, 1000));
  EXPECT_TRUE(IsRefuted(Offsets(21, 416), 200, 1000));
  EXPECT_TRUE(IsRefuted(Offsets(0, 0), 200, 1000));
  EXPECT_TRUE(IsRefuted(Offsets({}, {}, true), 200));
  EXPECT_TRUE(IsRefuted({store_, true, true, {}, {}}, 1));
  module_.params[0].is_writable = false;
  EXPECT_TRUE(IsRefuted(Offsets(20, 124, true), 27));
}

// Compares the evaluator's arithmetic with C++'s for each operation.
TEST(EvaluatorTest, Computes) {
  struct Case {
    const char* body;
    uint64_t offset;
  };
  const std::string store = " store.i32 param(0) %o, %x\n";
  const Case kCases[] = {
      {" %o: i32 = sub.i32 %c2, %c5\n", 0xfffffffd},
      {" %a: i32 = shr_s.i32 %fours, %c1\n %o: i32 = and.i32 %a, %c7\n", 6},
      {" %o: i32 = div_s.i32 %fours, %c3\n", 0xffffffff},
      {" %o: i32 = rem_s.i32 %fours, %c3\n", 0xffffffff},
      {" %o: i32 = rem_u.i32 %ones, %c4\n", 3},
      {" %a: i64 = extend_s.i32 %fours\n %d: i64 = mul.i64 %a, %a\n %o: i32 = wrap.i64 %d\n", 16},
      {" %a: i64 = extend_u.i32 %fours\n %k: i64 = const.i64 30\n %d: i64 = shr_u.i64 %a, %k\n %o: i32 = wrap.i64 %d\n",
       3},
      {" %a: i64 = const.i64 255\n %d: i64 = extend8_s.i64 %a\n %o: i32 = wrap.i64 %d\n", 0xffffffff},
      {" %o: i32 = rotl.i32 %fours, %c4\n", 0xffffffcf},
      {" %o: i32 = rotr.i32 %c1, %c1\n", 0x80000000},
      {" %o: i32 = clz.i32 %c1\n", 31},
      {" %g: i32 = lt_s.i32 %fours, %c1\n %o: i32 = select.i32 %g, %c7, %c8\n", 7},
      {" %g: i32 = lt_u.i32 %fours, %c1\n %o: i32 = select.i32 %g, %c7, %c8\n", 8},
      {" %o: i32 = loop l (%i: i32 = %c1) {\n %j: i32 = add.i32 %i, %i\n %g: i32 = lt_u.i32 %j, %n\n if h %g {\n"
       " continue l (%j)\n} else {\n br l (%j)\n}\n br l (%i)\n}\n",
       64},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.body);
    const ir::Module module = pass::testing::BoundsKernel(c.body + store);
    Situation situation;
    situation.params = {0, 40, 0};
    std::vector<uint64_t> offsets;
    const Ending end = Evaluator(module).Run(
        situation, {0, 0, 0}, 1000, [] { return 0; }, [&](const Reached& r) { offsets.push_back(r.offset); });
    EXPECT_EQ(end, Ending::kTrapped);  // The buffer is empty.
    EXPECT_EQ(offsets, std::vector<uint64_t>{c.offset});
  }
}

TEST(EvaluatorTest, EndsEndlessLoops) {
  const ir::Module module = pass::testing::BoundsKernel(" loop l () {\n continue l ()\n}\n");
  Situation situation;
  situation.params = {0, 0, 0};
  EXPECT_EQ(Evaluator(module).Run(
                situation, {0, 0, 0}, 100, [] { return 0; }, [](const Reached&) {}),
            Ending::kTooLong);
}

}  // namespace
}  // namespace hpvm::bounds
