// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/share_offsets.h"

#include <gtest/gtest.h>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

// Returns the immediates of the accesses after the pass, in order, of a kernel with the buffers %a and %b of 64 bytes
// and the number %n; checks that the kernel's results and traps are unchanged for many numbers, including those around
// the wrap.
std::vector<uint64_t> Shared(const std::string& body) {
  const StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nuses separate_buffers\nparam buffer inout \"a\"\nparam buffer inout \"b\"\nparam i32 \"n\"\n"
      "entry f0\nfunc f0 \"f\" (%a: i32, %b: i32, %n: i32) -> () {\n%four: i32 = const.i32 4\n"
      "%eight: i32 = const.i32 8\n%seven: i32 = const.i32 7\n%far: i32 = const.i32 40000\n%pa: i32 = add.i32 %a, %n\n"
      "%o: i32 = sub.i32 %pa, %a\n%p4: i32 = add.i32 %pa, %four\n%o4: i32 = sub.i32 %p4, %a\n"
      "%p8: i32 = add.i32 %eight, %pa\n%o8: i32 = sub.i32 %p8, %a\n%pfar: i32 = add.i32 %pa, %far\n"
      "%ofar: i32 = sub.i32 %pfar, %a\n" +
      body + "\nreturn ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  ir::Module shared = *module;
  EXPECT_TRUE(ShareOffsets(shared).ok());
  EXPECT_TRUE(ir::Verify(shared).empty()) << ToString(ir::Verify(shared)) << ir::Print(shared);
  for (const uint64_t n : {0u, 4u, 12u, 48u, 52u, 56u, 60u, 64u, 0xfffffff8u, 0xfffffffcu, 0xffff63c0u, 0x80000000u}) {
    std::vector<uint32_t> words[2][2];
    ir::TrapReport reports[2];
    for (int which = 0; which < 2; ++which) {
      ir::Launch launch;
      for (std::vector<uint32_t>& buffer : words[which]) {
        buffer.assign(16, 7);
        launch.arguments.push_back({reinterpret_cast<uint8_t*>(buffer.data()), 64, 0});
      }
      launch.arguments.push_back({nullptr, 0, n});
      const StatusOr<ir::TrapReport> trap = ir::Interpret(which == 0 ? *module : shared, launch);
      EXPECT_TRUE(trap.ok()) << trap.status();
      reports[which] = trap.ok() ? *trap : ir::TrapReport();
    }
    EXPECT_EQ(words[0][0], words[1][0]) << n;
    EXPECT_EQ(words[0][1], words[1][1]) << n;
    EXPECT_EQ(reports[0].code, reports[1].code) << n;
    EXPECT_EQ(reports[0].address, reports[1].address) << n;
  }
  std::vector<uint64_t> immediates;
  const ir::Function& entry = shared.function(shared.entry);
  ir::ForEachOp(entry, [&](ir::OpId id) {
    if (ir::HasSpace(entry.op(id).code)) {
      immediates.push_back(entry.op(id).imm);
    }
  });
  return immediates;
}

using Immediates = std::vector<uint64_t>;

TEST(ShareOffsetsTest, NeighboursBehindAnEarlierAccess) {
  EXPECT_EQ(Shared("%x: i32 = load.i32 param(0) %o\nstore.i32 param(0) %o4, %x\n%y: i32 = load.i32 param(0) %o8 + 4\n"
                   "store.i32 param(1) %four, %y"),
            (Immediates{0, 4, 12, 0}));
}

TEST(ShareOffsetsTest, ThoseBeforeItStay) {
  EXPECT_EQ(Shared("%x: i32 = load.i32 param(0) %o8\nstore.i32 param(0) %o4, %x\nstore.i32 param(0) %o8, %seven"),
            (Immediates{0, 0, 4}));
  EXPECT_EQ(Shared("%x: i32 = load.i32 param(0) %o\nstore.i32 param(0) %ofar, %x"), (Immediates{0, 0}));
}

TEST(ShareOffsetsTest, AnotherBufferIsAnother) {
  EXPECT_EQ(Shared("%x: i32 = load.i32 param(0) %o\nstore.i32 param(1) %o4, %x"), (Immediates{0, 0}));
}

TEST(ShareOffsetsTest, OnlyWhatRanForCertain) {
  const std::string in_branch = "if b0 %n {\n%x: i32 = load.i32 param(0) %o\nbr b0 ()\n} else {\nbr b0 ()\n}\n";
  EXPECT_EQ(Shared(in_branch + "store.i32 param(0) %o4, %seven"), (Immediates{0, 0}));
  EXPECT_EQ(Shared("%x: i32 = load.i32 param(0) %o\nif b0 %n {\nstore.i32 param(0) %o4, %seven\nbr b0 ()\n} else "
                   "{\nstore.i32 param(0) %o8, %seven\nbr b0 ()\n}\nstore.i32 param(0) %o8, %x"),
            (Immediates{0, 4, 8, 8}));
  // An access in a branch that is nearer counts only in that branch.
  EXPECT_EQ(
      Shared("%x: i32 = load.i32 param(0) %o8\nif b0 %n {\nstore.i32 param(0) %o, %seven\nstore.i32 param(0) %o4, "
             "%seven\nbr b0 ()\n} else {\nbr b0 ()\n}\nstore.i32 param(0) %o4, %x"),
      (Immediates{0, 0, 4, 0}));
}

}  // namespace
}  // namespace hpvm::pass
