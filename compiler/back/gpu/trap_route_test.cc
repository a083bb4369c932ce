// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/trap_route.h"

#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"

namespace hpvm::gpu {
namespace {

using ir::Opcode;

// A kernel in which source numbers give the roles and expectations. The operation with source 10 traps, and rejoins
// its group before the operation with source 2x; without one it just ends. With `waits`, all wait there; otherwise the
// flag is tested after the barriers with source x3 and after no others.
struct Case {
  const char* name;
  const char* body;
  bool waits = false;
};

ir::Module Parse(const char* body) {
  const StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nuses barrier\nglobal mut i32 0x0\nparam buffer in \"b\"\nparam i32 \"n\"\nentry f0\nfunc f0 "
      "\"f\" (%b: i32, %n: i32) -> () {\n%zero: i32 = const.i32 0\n%id: i32 = local_id.i32 %zero\n" +
      std::string(body) + "\nreturn ()\n}\n");
  EXPECT_TRUE(module.ok()) << module.status();
  if (!module.ok()) {
    return {};
  }
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  return *module;
}

void Expect(const Case& c) {
  SCOPED_TRACE(c.name);
  const ir::Module module = Parse(c.body);
  ASSERT_FALSE(module.functions.empty());
  const ir::Function& function = module.function(module.entry);
  const TrapRoutes routes =
      FindTrapRoutes(module, [&](ir::OpId id) { return MayTrap(module, id, /*omits_check=*/false); });
  ir::OpId meets;
  ir::ForEachOp(function, [&](ir::OpId id) { meets = function.op(id).source / 10 == 2 ? id : meets; });
  bool traps = false;
  ir::ForEachOp(function, [&](ir::OpId id) {
    const uint32_t source = function.op(id).source;
    EXPECT_EQ(routes.tests[id.index], source % 10 == 3) << source;
    if (source == 10) {
      traps = true;
      EXPECT_EQ(routes.rejoin[id.index], meets);
    }
  });
  EXPECT_TRUE(traps);
  const auto rejoin = routes.rejoin_points.find(meets.index);
  ASSERT_EQ(rejoin != routes.rejoin_points.end(), meets.valid());
  if (meets.valid()) {
    EXPECT_EQ(rejoin->second.waits, c.waits);
    EXPECT_EQ(rejoin->second.defines, !c.waits && function.op(meets).code != Opcode::kBarrier);
  }
}

// A trap goes to the nearest rejoin point before the next barrier that all instances of the group reach.
TEST(TrapRouteTest, MeetsBeforeTheNextBarrier) {
  const Case kCases[] = {
      {"NextBarrier", "%v: i32 = load.i32 param(0) %n @10\nbarrier @23\nbarrier @40"},
      {"NoBarrierBehind", "barrier\n%v: i32 = load.i32 param(0) %n @10"},
      {"OutOfAnIf", "if a %id {\n %v: i32 = load.i32 param(0) %n @10\n br a ()\n} else {\n br a ()\n}\nbarrier @23"},
      {"OutOfALoop",
       "loop a () {\n %v: i32 = load.i32 param(0) %n @10\n if b %v {\n  continue a ()\n } else {\n  br b ()\n }\n "
       "br a ()\n}\nbarrier @23"},
      {"BehindAVaryingLeave",
       "block a () {\n barrier\n if b %id {\n  br a ()\n } else {\n  br b ()\n }\n %v: i32 = load.i32 param(0) "
       "%n @10\n br a ()\n}\nbarrier @23"},
      {"LastTurnReturns", "if a %n {\n %v: i32 = load.i32 param(0) %n @10\n return ()\n} else {\n br a ()\n}\nbarrier"},
  };
  for (const Case& c : kCases) {
    Expect(c);
  }
}

// Returns a loop with a barrier at its head and one after it; a trapped instance skips %v. `head` follows the first
// barrier, `rest` follows the trap and decides about %more.
std::string Loop(const std::string& before, const std::string& head, const std::string& rest,
                 const std::string& carried, const std::string& last = "barrier @33") {
  return "loop a (%x: i32 = %n) {\n" + before + "\nbarrier @33\n" + head + "\n%v: i32 = load.i32 param(0) %n @10\n" +
         rest + " {\n  continue a (" + carried + ")\n } else {\n  br b ()\n }\n br a ()\n}\n" + last;
}

// A trapped instance continues without an additional barrier where it can tell which barrier is next.
TEST(TrapRouteTest, GoesOnWhereTheWayIsKnown) {
  const std::pair<const char*, std::string> kCases[] = {
      {"IntoAConstruct",
       "%v: i32 = load.i32 param(0) %n @10\nif a %n @20 {\n barrier @33\n br a ()\n} else {\n br a ()\n}"},
      {"AroundALoop", Loop("", "", "if b %n @20", "%n")},
      {"CarriesWhatIsSkipped", Loop("", "%y: i32 = add.i32 %x, %n", "if b %n @20", "%v")},
      {"ComputesWhatDecides", Loop("", "", "%k: i32 = add.i32 %n, %x @20\nif b %k", "%n")},
      {"ComputesWithWhatIsSkipped", Loop("%y: i32 = add.i32 %x, %n", "", "if b %n @20", "%v")},
      {"ComputesInBetween", Loop("", "", "%k: i32 = add.i32 %n, %n @20\n%s: i32 = add.i32 %v, %x\nif b %k", "%s")},
      {"ComputesWhatIsCarriedAndDecides", Loop("%y: i32 = add.i32 %x, %n\nif d %y {\n br d ()\n} else {\n br d ()\n}",
                                               "", "%k: i32 = add.i32 %n, %n @20\nif b %n", "%k")},
      {"SkipsWhatNobodyReads", Loop("", "", "%k: i32 = add.i32 %v, %n\nif b %n @20", "%k")},
      {"ConstantsAreNotSkipped", Loop("", "", "%k: i32 = const.i32 1\nif b %k @20", "%n")},
      {"KnownBeforeTheTrap", Loop("", "%k: i32 = add.i32 %n, %n", "if b %k @20", "%n")},
      {"ToTheEnd", Loop("", "", "if b %n @20", "%n", "")},
      {"OtherBarriersDoNotTest", Loop("", "", "if b %n @20", "%n", "barrier @33\nbarrier @40")},
  };
  for (const auto& [name, body] : kCases) {
    Expect({name, body.c_str()});
  }
}

// All instances wait at an additional barrier where a trapped one cannot tell which barrier is next.
TEST(TrapRouteTest, WaitsWhereTheWayIsUnknown) {
  const auto untested = [](std::string body) {
    for (size_t at; (at = body.find("@33")) != std::string::npos;) {
      body.replace(at, 3, "@40");
    }
    return body;
  };
  const std::pair<const char*, std::string> kCases[] = {
      {"DecidesBySkipped", Loop("", "", "if b %v @20", "%n")},
      {"DecidesByATable",
       "loop a () {\n barrier @33\n block c () {\n  %v: i32 = load.i32 param(0) %n @10\n  br_table %v [continue a, "
       "c] "
       "() @20\n }\n br a ()\n}"},
      {"DecidesByAResult", Loop("", "", "%k: i32 = add.i32 %v, %n\nif b %k @20", "%n")},
      {"DecidesByWhatIsCarried",
       Loop("%y: i32 = add.i32 %x, %n\nif d %y {\n br d ()\n} else {\n br d ()\n}", "", "if b %n @20", "%v")},
      {"AnEffectFurtherOn", Loop("", "", "if b %n @20", "%n", "global_set.i32 g0 %n\nbarrier @33")},
      {"AnEffectInBetween", Loop("", "", "%k: i32 = add.i32 %n, %n\nglobal_set.i32 g0 %n\nif b %k @20", "%n")},
      {"AnEffectOnTheWay", Loop("global_set.i32 g0 %x", "", "if b %n @20", "%n")},
      {"ATrapOnTheWay", Loop("", "", "if b %n @20", "%n", "%q: i32 = div_u.i32 %n, %n\nbarrier @53")},
      {"ALoadOnTheWay", Loop("%q: i32 = global_get.i32 g0", "", "if b %n @20", "%n")},
      {"AnotherTrapInBetween",
       Loop("", "", "%k: i32 = add.i32 %n, %n\n%w: i32 = load.i32 param(0) %n @11\nif b %k @20", "%n")},
  };
  for (const auto& [name, body] : kCases) {
    Expect({name, untested(body).c_str(), /*waits=*/true});
  }
}

// The rejoin point keeps values that are used after it, but not constants or values used only before it.
TEST(TrapRouteTest, NamesWhatIsKept) {
  const ir::Module module = Parse(
      "loop a (%x: i32 = %n) {\n barrier\n %before: i32 = add.i32 %n, %n\n %v: i32 = load.i32 param(0) %x @10\n %k: "
      "i32 "
      "= const.i32 1\n %sum: i32 = add.i32 %v, %k @40\n %unused: i32 = add.i32 %sum, %before @41\n if b %n @20 {\n  "
      "continue a (%sum)\n } else {\n  global_set.i32 g0 %v\n  br a ()\n }\n br a ()\n}");
  ASSERT_FALSE(module.functions.empty());
  const ir::Function& function = module.function(module.entry);
  const TrapRoutes routes = FindTrapRoutes(module, [&](ir::OpId id) { return function.op(id).source == 10; });
  ASSERT_EQ(routes.rejoin_points.size(), 1u);
  const RejoinPoint& rejoin = routes.rejoin_points.begin()->second;
  EXPECT_EQ(function.op(ir::OpId(routes.rejoin_points.begin()->first)).source, 20u);
  EXPECT_EQ(function.op(rejoin.first).source, 10u);
  std::vector<ir::ValueId> want(2);
  ir::ForEachOp(function, [&](ir::OpId id) {
    const ir::Op& op = function.op(id);
    want[0] = op.source == 10 ? op.first_result : want[0];
    want[1] = op.source == 40 ? op.first_result : want[1];
  });
  EXPECT_EQ(rejoin.kept, want);
}

}  // namespace
}  // namespace hpvm::gpu
