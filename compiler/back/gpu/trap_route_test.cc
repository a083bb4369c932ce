// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/trap_route.h"

#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"

namespace hpvm::gpu {
namespace {

using ir::Opcode;

// A kernel in which sources say what is what: the operation at @1 traps, and meets its group before the one at @2; no
// @2: it just ends.
struct Case {
  const char* name;
  const char* body;
};

const ir::Op* At(const ir::Function& function, uint32_t source, ir::OpId* id) {
  const ir::Op* found = nullptr;
  ir::ForEachOp(function, [&](ir::OpId at) {
    if (function.op(at).source == source) {
      found = &function.op(at);
      *id = at;
    }
  });
  return found;
}

// A trap goes to the nearest place in front of the next barrier that all of the group reach.
TEST(TrapRouteTest, MeetsBeforeTheNextBarrier) {
  const Case kCases[] = {
      {"NextBarrier", "%v: i32 = load.i32 param(0) %n @1\nbarrier @2\nbarrier @3"},
      {"NoBarrierBehind", "barrier\n%v: i32 = load.i32 param(0) %n @1"},
      {"OutOfAnIf",
       "if a %id {\n %v: i32 = load.i32 param(0) %n @1\n leave a ()\n} else {\n leave a ()\n}\nbarrier @2"},
      {"OutOfALoop",
       "loop a () {\n %v: i32 = load.i32 param(0) %n @1\n if b %v {\n  continue a ()\n } else {\n  leave b ()\n }\n "
       "leave a "
       "()\n}\nbarrier @2"},
      {"BeforeAConstructWithABarrier",
       "%v: i32 = load.i32 param(0) %n @1\nif a %n @2 {\n barrier\n leave a ()\n} else {\n leave a ()\n}"},
      {"AroundALoop",
       "loop a () {\n barrier\n %v: i32 = load.i32 param(0) %n @1\n if b %n @2 {\n  continue a ()\n } else {\n  leave "
       "b ()\n "
       "}\n leave a ()\n}"},
      {"BehindAVaryingLeave",
       "block a () {\n barrier\n if b %id {\n  leave a ()\n } else {\n  leave b ()\n }\n %v: i32 = load.i32 param(0) "
       "%n @1\n "
       "leave a ()\n}\nbarrier @2"},
      {"LastTurnReturns",
       "if a %n {\n %v: i32 = load.i32 param(0) %n @1\n return ()\n} else {\n leave a ()\n}\nbarrier"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const StatusOr<ir::Module> module = ir::ParseModule(
        "module \"m\"\nuses barrier\nparam buffer in \"b\"\nparam i32 \"n\"\nentry f0\nfunc f0 \"f\" (%b: i32, %n: "
        "i32) -> () "
        "{\n%zero: i32 = const.i32 0\n%id: i32 = local_id.i32 %zero\n" +
        std::string(c.body) + "\nreturn ()\n}\n");
    ASSERT_TRUE(module.ok()) << module.status();
    ASSERT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
    const ir::Function& function = module->function(module->entry);
    ir::OpId trap, meets;
    ASSERT_NE(At(function, 1, &trap), nullptr);
    At(function, 2, &meets);
    const std::vector<ir::OpId> routes = FindTrapRoutes(*module);
    EXPECT_EQ(routes[trap.index], meets);
  }
}

}  // namespace
}  // namespace hpvm::gpu
