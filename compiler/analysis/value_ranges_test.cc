// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/value_ranges.h"

#include <gtest/gtest.h>

#include "compiler/analysis/trailing_zeros.h"
#include "compiler/ir/text/text.h"

namespace hpvm::analysis {
namespace {

using Base = PointerOrigin::Base;
using How = PointerOrigin::How;

struct Known {
  ir::Module module;
  std::vector<ValueRange> ranges;
  std::vector<uint8_t> zeros;
};

// Analyses a kernel with the buffer %0 and the number %1, whose values are numbered.
Known Find(const std::string& body, uint64_t id_max = ~uint64_t{0}) {
  StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nmemory 65536 65536\nglobal mut i32 0x8000\nstack_pointer g0\nparam buffer inout \"b\"\n"
      "param i32 \"n\"\nentry f0\nfunc f0 \"f\" (%0: i32, %1: i32) -> () {\n" +
      body + " return ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  Known known{*std::move(module), {}, {}};
  known.ranges = FindValueRanges(known.module, id_max);
  const std::vector<uint8_t> params = ZerosOfParams(known.module);
  known.zeros =
      FindTrailingZeros(known.module.function(known.module.entry), {.params = params, .ranges = &known.ranges});
  return known;
}

constexpr char kFrame[] =
    "%2: i32 = global_get.i32 g0\n %3: i32 = const.i32 48\n %4: i32 = sub.i32 %2, %3\n global_set.i32 g0 %4\n"
    " %5: i32 = global_get.i32 g0\n";

TEST(ValueRangesTest, TheStacksPointerIsAConstant) {
  const Known known = Find(kFrame);
  EXPECT_EQ(known.ranges[5], (ValueRange{{Base::kStack}, 0x8000 - 48, 0x8000 - 48}));
  EXPECT_EQ(known.zeros[5], 4);
}

TEST(ValueRangesTest, AnIndexUnderAMaskIsBounded) {
  const Known known = Find(std::string(kFrame) +
                           "%6: i32 = const.i32 7\n %7: i32 = and.i32 %1, %6\n %8: i32 = const.i32 2\n"
                           " %9: i32 = shl.i32 %7, %8\n %10: i32 = add.i32 %5, %9\n %11: i32 = add.i32 %10, %1\n");
  EXPECT_EQ(known.ranges[10], (ValueRange{{Base::kStack}, 0x8000 - 48, 0x8000 - 48 + 28}));
  EXPECT_EQ(known.zeros[10], 2);
  EXPECT_EQ(known.ranges[11].origin.base, Base::kStack);
  EXPECT_EQ(known.ranges[11].hi, 0xffffffffu);
  EXPECT_EQ(known.zeros[11], 0);
}

// A pointer that a loop advances keeps the stack as its origin, with an unknown offset.
TEST(ValueRangesTest, LoopsWiden) {
  const Known known = Find(std::string(kFrame) +
                           "%6: i32 = const.i32 4\n loop b0 (%7: i32 = %5) {\n %8: i32 = add.i32 %7, %6\n"
                           " if b1 %1 {\n continue b0 (%8)\n} else {\n br b1 ()\n}\n br b0 ()\n}\n");
  EXPECT_EQ(known.ranges[7].origin.base, Base::kStack);
  EXPECT_EQ(known.ranges[7].hi, 0xffffffffu);
  EXPECT_EQ(known.zeros[7], 2);
}

TEST(ValueRangesTest, IdsAreAsLargeAsTheDeviceAllows) {
  constexpr char kId[] = "%2: i32 = const.i32 0\n %3: i32 = instance_id.i32 %2\n";
  EXPECT_EQ(Find(kId, kGpuIdMax).ranges[3].hi, kGpuIdMax);
  EXPECT_EQ(Find(kId).ranges[3].hi, 0xffffffffu);
}

TEST(ValueRangesTest, BuffersAreApartFromTheStack) {
  const Known known = Find(std::string(kFrame) + "%6: i32 = add.i32 %0, %5\n %7: i32 = select.i32 %1, %0, %5\n");
  EXPECT_EQ(known.ranges[0].origin, PointerOrigin::Param(0));
  EXPECT_EQ(known.zeros[0], 16);
  EXPECT_EQ(known.ranges[6].origin.base, Base::kAny);
  EXPECT_EQ(known.ranges[7].origin.base, Base::kAny);
}

// Returns the origin of the last value of a kernel with the buffer %0 and the number %1.
PointerOrigin OriginOfLast(const std::string& body) {
  const Known known = Find(body);
  const ir::Function& f = known.module.function(known.module.entry);
  const std::vector<ir::OpId>& ops = f.region(f.body).ops;
  return known.ranges[f.op(ops[ops.size() - 2]).first_result.index].origin;
}

TEST(PointerOriginTest, AnAddressAndAnIndexAreAnAddress) {
  EXPECT_EQ(OriginOfLast("%2: i32 = add.i32 %0, %1"), PointerOrigin::Param(0));
  EXPECT_EQ(OriginOfLast("%2: i32 = load.i32 flat %0\n%3: i32 = sub.i32 %0, %2"), PointerOrigin::Param(0));
  EXPECT_EQ(OriginOfLast("%2: i32 = load.i32 flat %0").base, Base::kAny);
}

TEST(PointerOriginTest, DistancesAreNumbers) {
  EXPECT_EQ(OriginOfLast("%2: i32 = add.i32 %0, %1\n%3: i32 = sub.i32 %2, %0").base, Base::kNumber);
  EXPECT_EQ(OriginOfLast("%2: i32 = add.i32 %0, %0").base, Base::kAny);
}

// An `and` with a constant that keeps the highest bits rounds an address down; other constants leave a few low bits.
TEST(PointerOriginTest, RoundingDown) {
  const std::string mask = "%2: i32 = const.i32 ", rest = "\n%3: i32 = and.i32 %0, %2";
  EXPECT_EQ(OriginOfLast(mask + "-16" + rest), (PointerOrigin{Base::kParam, How::kBits, 0}));
  EXPECT_EQ(OriginOfLast(mask + "15" + rest), (PointerOrigin{Base::kNumber, How::kBits, 0}));
}

// A pointer that is widened and narrowed again keeps its origin, but may have lost bits on the way.
TEST(PointerOriginTest, Widened) {
  EXPECT_EQ(OriginOfLast("%2: i64 = extend_u.i32 %0\n%3: i32 = wrap.i64 %2"),
            (PointerOrigin{Base::kParam, How::kBits, 0}));
}

TEST(PointerOriginTest, GroupMemory) {
  EXPECT_EQ(OriginOfLast("%2: i32 = local_alloc %1\n%3: i32 = add.i32 %2, %1").base, Base::kGroup);
}

}  // namespace
}  // namespace hpvm::analysis
