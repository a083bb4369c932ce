// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/gang/gang_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

using ::testing::HasSubstr;

ir::Module Parse(const std::string& text) {
  StatusOr<ir::Module> module = ir::ParseModule("module \"m\"\n" + text);
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module));
  return *module;
}

// Returns a kernel with a buffer that is written (b), one that is read (a), a scalar n, ids %x and %y, zero and one.
std::string Kernel(const std::string& body) {
  return "param buffer inout \"b\"\nparam buffer in \"a\"\nparam i32 \"n\"\nentry f0\n"
         "func f0 \"kernel\" (%b: i32, %a: i32, %n: i32) -> () {\n"
         " %0: i32 = const.i32 0\n %1: i32 = const.i32 1\n %2: i32 = const.i32 2\n"
         " %x: i32 = instance_id.i32 %0\n %y: i32 = instance_id.i32 %1\n" +
         body + "\n}\n";
}

std::string Spelled(const Layout& layout) {
  std::string text = layout.kind == Layout::Kind::kUniform  ? "uniform"
                     : layout.kind == Layout::Kind::kLinear ? "linear " + std::to_string(layout.step)
                                                            : "varying";
  return text + (layout.by_row ? " by row" : "");
}

// Returns the layout of the value that the last store of the body stores.
std::string StoredLayout(const ir::Module& module, const GangPlan& plan) {
  const ir::Function& f = module.function(module.entry);
  std::string text;
  ir::ForEachOp(f, [&](ir::OpId id) {
    if (f.op(id).code == ir::Opcode::kStore) {
      text = Spelled(plan.layouts[f.operands_of(f.op(id))[1].index]);
    }
  });
  return text;
}

struct LayoutCase {
  const char* name;
  const char* body;  // Stores the value in question.
  const char* one_row;
  const char* rows;
};

// Values that are a scalar, a scalar with a step, or a vector, for tiles of one row and of several.
TEST(GangPlanTest, Layouts) {
  const LayoutCase kCases[] = {
      {"Constant", "store.i32 param(0) %0, %2", "uniform", "uniform"},
      {"Scalar", "store.i32 param(0) %0, %n", "uniform", "uniform"},
      {"X", "store.i32 param(0) %0, %x", "linear 1", "linear 1"},
      {"Y", "store.i32 param(0) %0, %y", "uniform", "uniform by row"},
      {"Scaled", "%s: i32 = shl.i32 %x, %2\n store.i32 param(0) %0, %s", "linear 4", "linear 4"},
      {"Negative", "%s: i32 = sub.i32 %n, %x\n store.i32 param(0) %0, %s", "linear 4294967295", "linear 4294967295"},
      {"RowMajor", "%r: i32 = mul.i32 %y, %n\n %s: i32 = add.i32 %r, %x\n store.i32 param(0) %0, %s", "linear 1",
       "linear 1 by row"},
      {"ColumnMajor", "%r: i32 = mul.i32 %x, %n\n %s: i32 = add.i32 %r, %y\n store.i32 param(0) %0, %s", "varying",
       "varying by row"},
      {"LoadShared", "%v: i32 = load.i32 param(1) %x\n store.i32 param(0) %0, %v", "varying", "varying"},
      {"LoadOfRow", "%v: i32 = load.i32 param(1) %y\n store.i32 param(0) %0, %v", "uniform", "uniform by row"},
      {"LoadUniform", "%v: i32 = load.i32 param(1) %n\n store.i32 param(0) %0, %v", "uniform", "uniform"},
      {"SelectLinear", "%s: i32 = add.i32 %x, %n\n %v: i32 = select.i32 %n, %s, %x\n store.i32 param(0) %0, %v",
       "linear 1", "linear 1"},
      {"MergeVarying", "%v: i32 = if b0 %x {\n br b0 (%n)\n} else {\n br b0 (%1)\n}\n store.i32 param(0) %0, %v",
       "varying", "varying"},
      {"MergeOfRows", "%v: i32 = if b0 %y {\n br b0 (%n)\n} else {\n br b0 (%1)\n}\n store.i32 param(0) %0, %v",
       "uniform", "uniform by row"},
      {"State", "%v: i32 = load.i32 state %0\n store.i32 param(0) %0, %v", "uniform", "uniform"},
      {"Scratch", "store.i32 scratch %0, %n\n %v: i32 = load.i32 scratch %0\n store.i32 param(0) %0, %v", "varying",
       "varying by row"},
      {"StateOfScratch", "store.i32 scratch %0, %n\n %v: i32 = load.i32 state %0\n store.i32 param(0) %0, %v",
       "varying", "varying by row"},
      {"Atomic", "%v: i32 = atomic_add.i32 param(0) %0, %1\n store.i32 param(0) %0, %v", "varying", "varying by row"},
  };
  for (const LayoutCase& test : kCases) {
    SCOPED_TRACE(test.name);
    const ir::Module module = Parse("state 64\n" + Kernel(std::string(test.body) + "\n return ()"));
    for (bool has_rows : {false, true}) {
      const std::optional<GangPlan> plan = PlanGang(module, {.has_rows = has_rows});
      ASSERT_TRUE(plan.has_value());
      EXPECT_EQ(StoredLayout(module, *plan), has_rows ? test.rows : test.one_row);
    }
  }
}

// Returns the sources of masked constructs, "return" when the body is masked, and "assume N" for guards.
std::vector<std::string> Control(const ir::Module& module, const GangPlan& plan) {
  std::vector<std::string> control;
  const ir::Function& f = module.function(module.entry);
  ir::ForEachOp(f, [&](ir::OpId id) {
    if (plan.is_masked[id.index]) {
      control.push_back("mask " + std::to_string(f.op(id).source));
    }
    if (plan.is_assumed[id.index]) {
      control.push_back("assume " + std::to_string(f.op(id).source));
    }
  });
  if (plan.body_is_masked) {
    control.push_back("return");
  }
  return control;
}

struct ControlCase {
  const char* name;
  const char* body;
  std::vector<std::string> want;
};

// The store prevents later ifs from being guards; %v is from memory at a varying address.
constexpr char kStored[] = "store.i32 param(0) %0, %n\n %v: i32 = load.i32 param(1) %x\n ";

// Constructs that lanes enter or leave separately.
TEST(GangPlanTest, MaskedControl) {
  const ControlCase kCases[] = {
      {"Uniform", "if b0 %n @1 {\n br b0 ()\n} else {\n br b0 ()\n}\n return ()", {}},
      {"Varying", "if b0 %v @1 {\n br b0 ()\n} else {\n br b0 ()\n}\n return ()", {"mask 1"}},
      {"EarlyReturn",
       "if b0 %v @1 {\n return ()\n} else {\n br b0 ()\n}\n store.i32 param(0) %x, %1\n return ()",
       {"mask 1", "return"}},
      {"LeavesOuter",
       "block b1 () @7 {\n block b2 () @8 {\n if b0 %v @1 {\n br b1 ()\n} else {\n br b0 ()\n}\n br b2 "
       "()\n}\n "
       "br b1 ()\n}\n return ()",
       {"mask 7", "mask 8", "mask 1"}},
      {"LeavesInner",
       "block b1 () @7 {\n block b2 () @8 {\n if b0 %v @1 {\n br b2 ()\n} else {\n br b0 ()\n}\n br b2 "
       "()\n}\n "
       "br b1 ()\n}\n return ()",
       {"mask 8", "mask 1"}},
      {"UniformLoop",
       "loop b1 (%i: i32 = %n) @7 {\n %j: i32 = sub.i32 %i, %1\n if b0 %j @1 {\n continue b1 (%j)\n} else {\n br b0 "
       "()\n}\n br b1 ()\n}\n return ()",
       {}},
      {"LoopOwnTrips",
       "loop b1 (%i: i32 = %v) @7 {\n %j: i32 = sub.i32 %i, %1\n if b0 %j @1 {\n continue b1 (%j)\n} else {\n br b0 "
       "()\n}\n br b1 ()\n}\n return ()",
       {"mask 7", "mask 1"}},
      {"LoopLeftSeparately",
       "loop b1 (%i: i32 = %n) @7 {\n if b0 %v @1 {\n br b1 ()\n} else {\n br b0 ()\n}\n continue b1 (%i)\n}\n "
       "return ()",
       {"mask 7", "mask 1"}},
      {"BranchInLoop",
       "loop b1 (%i: i32 = %n) @7 {\n %j: i32 = sub.i32 %i, %1\n if b0 %v @1 {\n store.i32 param(0) %x, %1\n br b0 "
       "()\n} else {\n br b0 ()\n}\n if b3 %j @2 {\n continue b1 (%j)\n} else {\n br b3 ()\n}\n br b1 ()\n}\n "
       "return ()",
       {"mask 1"}},
      {"UniformAroundReturn",
       "if b1 %n @7 {\n if b0 %v @1 {\n return ()\n} else {\n br b0 ()\n}\n br b1 ()\n} else {\n br b1 "
       "()\n}\n "
       "return ()",
       {"mask 7", "mask 1", "return"}},
      {"InnerLoopLeavesOuter",
       "loop b1 (%i: i32 = %n) @7 {\n loop b2 (%k: i32 = %n) @8 {\n if b0 %v @1 {\n continue b1 (%k)\n} else {\n br "
       "b0 ()\n}\n continue b2 (%k)\n}\n br b1 ()\n}\n return ()",
       {"mask 7", "mask 8", "mask 1"}},
      {"TableUniform",
       "block b1 () @7 {\n block b2 () @8 {\n br_table %n [b1, b2] ()\n}\n br b1 ()\n}\n return ()",
       {}},
      {"TableVarying",
       "block b1 () @7 {\n block b2 () @8 {\n br_table %v [b2, b1] ()\n}\n br b1 ()\n}\n return ()",
       {"mask 7", "mask 8"}},
      {"LateGuardIsMasked",
       "%c: i32 = lt_s.i32 %x, %n\n if b0 %c @1 {\n br b0 ()\n} else {\n br b0 ()\n}\n return ()",
       {"mask 1"}},
  };
  for (const ControlCase& test : kCases) {
    SCOPED_TRACE(test.name);
    const ir::Module module = Parse(Kernel(std::string(kStored) + test.body));
    const std::optional<GangPlan> plan = PlanGang(module, {});
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(Control(module, *plan), test.want);
  }
}

// Guards of the extent's edges are assumed, one after the other; loads, loops and effects end that.
TEST(GangPlanTest, AssumedGuards) {
  const ControlCase kCases[] = {
      {"Return",
       "%c: i32 = ge_s.i32 %x, %n\n if b0 %c @1 {\n return ()\n} else {\n br b0 ()\n}\n store.i32 param(0) %x, %1\n "
       "return ()",
       {"assume 1"}},
      {"Two",
       "%c: i32 = ge_s.i32 %x, %n\n if b0 %c @1 {\n return ()\n} else {\n br b0 ()\n}\n %d: i32 = eq.i32 %x, %0\n "
       "if "
       "b1 %d @2 {\n return ()\n} else {\n br b1 ()\n}\n return ()",
       {"assume 1", "assume 2"}},
      {"Combined",
       "%c: i32 = ge_s.i32 %x, %n\n %d: i32 = eq.i32 %x, %0\n %e: i32 = or.i32 %c, %d\n %f: i32 = eqz.i32 %e\n if b1 "
       "%f "
       "@2 {\n return ()\n} else {\n br b1 ()\n}\n return ()",
       {"assume 2"}},
      {"Extension",
       "%w: i64 = extend_s.i32 %x @3\n %d: i64 = const.i64 5\n %c: i32 = lt_s.i64 %w, %d\n if b0 %c @1 {\n return "
       "()\n} else {\n br b0 ()\n}\n return ()",
       {"assume 3", "assume 1"}},
      {"ExtensionBehindEffect",
       "store.i32 param(0) %0, %n\n %w: i64 = extend_s.i32 %x @3\n %d: i64 = const.i64 5\n %c: i32 = lt_s.i64 %w, "
       "%d\n if b0 %c @1 {\n return ()\n} else {\n br b0 ()\n}\n return ()",
       {"mask 1", "return"}},
      {"Parity",
       "%c: i32 = and.i32 %x, %1\n if b0 %c @1 {\n return ()\n} else {\n br b0 ()\n}\n return ()",
       {"mask 1", "return"}},
      {"FromMemory",
       "%v: i32 = load.i32 param(1) %x\n %c: i32 = lt_s.i32 %v, %n\n if b0 %c @1 {\n br b0 ()\n} else {\n br b0 "
       "()\n}\n return ()",
       {"mask 1"}},
      {"InLoop",
       "loop b1 (%i: i32 = %n) @7 {\n %c: i32 = lt_s.i32 %x, %n\n if b0 %c @1 {\n br b0 ()\n} else {\n br b0 "
       "()\n}\n br b1 ()\n}\n return ()",
       {"mask 1"}},
      {"BehindMask",
       "%v: i32 = load.i32 param(1) %x\n if b2 %v @5 {\n return ()\n} else {\n br b2 ()\n}\n %c: i32 = lt_s.i32 %x, "
       "%n\n if b0 %c @1 {\n br b0 ()\n} else {\n br b0 ()\n}\n return ()",
       {"mask 5", "mask 1", "return"}},
  };
  for (const ControlCase& test : kCases) {
    SCOPED_TRACE(test.name);
    const ir::Module module = Parse(Kernel(test.body));
    const std::optional<GangPlan> plan = PlanGang(module, {});
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(Control(module, *plan), test.want);
    const std::optional<GangPlan> masked = PlanGang(module, {.assumes_guards = false});
    ASSERT_TRUE(masked.has_value());
    EXPECT_THAT(Control(module, *masked), ::testing::Not(::testing::Contains(HasSubstr("assume"))));
  }
}

// A guard of y is uniform in a tile of one row, and assumed in a tile of several.
TEST(GangPlanTest, RowGuards) {
  const ir::Module module =
      Parse(Kernel("%c: i32 = ge_s.i32 %y, %n\n if b0 %c @1 {\n return ()\n} else {\n br b0 ()\n}\n return ()"));
  EXPECT_EQ(Control(module, *PlanGang(module, {})), std::vector<std::string>{});
  EXPECT_EQ(Control(module, *PlanGang(module, {.has_rows = true})), std::vector<std::string>{"assume 1"});
  EXPECT_EQ(Control(module, *PlanGang(module, {.has_rows = true, .assumes_guards = false})),
            (std::vector<std::string>{"mask 1", "return"}));
}

struct RefusalCase {
  const char* name;
  const char* body;
  const char* reason;  // Part of the reason, or null when the kernel is accepted.
};

// A kernel that writes an instance's bytes or globals runs one instance at a time; a kernel that only reads them does
// not.
TEST(GangPlanTest, Refusals) {
  const RefusalCase kCases[] = {
      {"Store", "store.i32 param(0) %x, %1", nullptr},
      {"LoadFlat", "%v: i32 = load.i32 flat %x\n store.i32 param(0) %x, %v", nullptr},
      {"LoadState", "%v: i32 = load.i32 state %x\n store.i32 param(0) %x, %v", nullptr},
      {"Atomic", "%v: i32 = atomic_add.i32 param(0) %0, %1", nullptr},
      {"StoreMovedBase", "%m: i32 = add.i32 %b, %x\n %d: i32 = sub.i32 %m, %b\n store.i32 param(0) %d, %1", nullptr},
      {"StoreMaskedBase", "%m: i32 = and.i32 %b, %2\n %d: i32 = sub.i32 %m, %b\n store.i32 param(0) %d, %1 @9",
       "bits of a buffer's address"},
      {"StoreFlat", "store.i32 flat %x, %1 @9", "not known to lie in one buffer"},
      {"StoreModule", "store.i32 module %x, %1 @9", "belongs to one instance"},
      {"StoreState", "store.i32 state %x, %1 @9", "belongs to one instance"},
      {"StoreScratch", "store.i32 scratch %x, %1 @9", "belongs to one instance"},
      {"LoadScratch", "%v: i32 = load.i32 scratch %0 @9\n store.i32 param(0) %x, %v", "belongs to one instance"},
      {"AtomicFlat", "%v: i32 = atomic_add.i32 flat %0, %1 @9", "not known to lie in one buffer"},
      {"Global", "global_set.i32 g0 %n @9", "writes a global"},
      {"StackPointer", "global_set.i32 g1 %n @9", "moves the stack's pointer"},
      {"Fill", "memory_fill %b, %0, %n @9", "fills memory"},
      {"Print", "print p0 (%n) @9", nullptr},
      {"Call", "%v: i32 = call f1 (%x)", nullptr},
      {"CallStores", "%v: i32 = call f2 (%x)", "writes a buffer"},
      {"CallDeep", "%v: i32 = call f3 (%x)", "writes a buffer"},
  };
  for (const RefusalCase& test : kCases) {
    SCOPED_TRACE(test.name);
    const ir::Module module = Parse(
        "memory 65536 65536\nglobal mut i32 0\nglobal mut i32 65536\nstack_pointer g1\nstate 64\n"
        "format \"%d\"\n" +
        Kernel(std::string(test.body) + "\n return ()") +
        "func f1 \"pure\" (%p: i32) -> (i32) {\n store.i32 scratch %p, %p\n return (%p)\n}\n"
        "func f2 \"stores\" (%p: i32) -> (i32) {\n store.i32 param(0) %p, %p @9\n return (%p)\n}\n"
        "func f3 \"deep\" (%p: i32) -> (i32) {\n %q: i32 = call f2 (%p)\n return (%q)\n}\n");
    const std::optional<GangRefusal> refusal = RefuseGang(module);
    EXPECT_EQ(refusal.has_value(), test.reason != nullptr);
    if (refusal.has_value() && test.reason != nullptr) {
      EXPECT_THAT(refusal->reason, HasSubstr(test.reason));
      EXPECT_EQ(refusal->source, 9u);
    }
  }
}

// The report names each loop and branch at its place, with the paths of lanes through it.
TEST(GangPlanTest, Explained) {
  const ir::Module module = Parse(
      Kernel("%c: i32 = ge_s.i32 %x, %n\n if b0 %c @1 {\n return ()\n} else {\n br b0 ()\n}\n"
             "%v: i32 = load.i32 param(1) %x\n loop b1 (%i: i32 = %n, %w: i32 = %v) @7 {\n %j: i32 = sub.i32 %i, %1\n"
             "if b2 %j @2 {\n continue b1 (%j, %w)\n} else {\n br b2 ()\n}\n br b1 ()\n}\n"
             "loop b3 (%k: i32 = %v) @8 {\n %l: i32 = sub.i32 %k, %1\n if b4 %l @3 {\n continue b3 (%l)\n} else {\n"
             "br b4 ()\n}\n br b3 ()\n}\n return ()"));
  KernelReport report;
  ExplainGang(module, *PlanGang(module, {}), &report);
  auto said = [&](KernelRemark::Kind kind, uint32_t source) {
    for (const KernelRemark& remark : report.remarks) {
      if (remark.kind == kind && remark.source == source) {
        return remark.text;
      }
    }
    return std::string("nothing");
  };
  EXPECT_THAT(said(KernelRemark::Kind::kControl, 1), HasSubstr("A guard of ids"));
  EXPECT_THAT(said(KernelRemark::Kind::kControl, 7), HasSubstr("All lanes run the loop together"));
  EXPECT_THAT(said(KernelRemark::Kind::kControl, 2), HasSubstr("the same branch"));
  EXPECT_THAT(said(KernelRemark::Kind::kControl, 8), HasSubstr("under a mask"));
  EXPECT_THAT(said(KernelRemark::Kind::kControl, 3), HasSubstr("different branches"));
  EXPECT_THAT(said(KernelRemark::Kind::kShape, 7), HasSubstr("1 are one scalar for all lanes, 0 grow by a constant"));
  EXPECT_THAT(said(KernelRemark::Kind::kShape, 0), HasSubstr("A tile computes"));
}

}  // namespace
}  // namespace hpvm::pass
