// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/text/text.h"

#include <array>
#include <string>

#include "gtest/gtest.h"

#include "compiler/ir/op_syntax.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"

namespace hpvm::ir {
namespace {

// All that a module can contain, in canonical form.
constexpr char kEverything[] = R"(module "all \22\5c\0a\ff" memory64
memory 65536 131072
uses barrier
uses group_memory
uses separate_buffers
uses linked
data 0 "00ff10"
data 1024 "2a"
global mut i32 0xffffffff
global f64 0x7ff0000000000001
stack_pointer g0
state 4096
state_data 0 "01"
state_data 8 "0203"
segment ""
segment "ff00"
reftype (i32) -> ()
reftype () -> ()
reftype () -> ()
reftype (i32, f64) -> (f32, i64)
first_reference 4294967294
ref f1 r1
format ""
format "%d %%\0a"
param buffer in "x"
param buffer inout "y z"
param f32 "alpha"
param i64 ""
entry f0
func f0 "entry\00" (%0: i64, %1: i64, %2: f32, %3: i64) -> () {
  %4: i32 = const.i32 -2147483648
  %5: i64 = const.i64 -1
  %6: f32 = const.f32 0x7f800001 @1
  %7: f64 = const.f64 0x8000000000000000
  %8: i32 = load.i32 w1 signed flat %0 + 18446744073709551615 @4294967295
  %9: i64 = load.i64 w4 param(1) %1
  %10: f32 = load.f32 module %3 + 4
  store.i64 w2 group %5 + 2, %9 @7
  %11: i32 = atomic_cmpxchg.i32 w2 param(0) %0 + 2, %4, %8 @8
  %12: i64 = memory_size
  %13: i64 = memory_grow %12
  memory_copy %0, %1, %13
  memory_fill %0, %4, %13 @10
  global_set.i32 g0 %4
  %14: i32 = global_get.i32 g0
  %15: f32, %16: i64 = call_ref r3 (%4, %4, %7) @11
  call f1 ()
  barrier @12
  %17: i64 = local_alloc %12
  %18: i32 = trunc_sat_u.f64 %7
  %19: i64 = buffer_size.i64 %4
  %20: i32, %21: f32 = loop b0 (%22: i32 = %4, %23: f32 = %2) @13 {
    %24: i32 = block b1 () {
      %25: i32 = if b2 %22 @14 {
        br b1 (%4) @15
      } else {
        br b2 (%22)
      }
      br_table %25 [b1, b1] (%25)
    }
    continue b0 (%24, %23) @16
  }
  call_ref r2 (%4) @17
  print p0 ()
  print p1 (%4, %7) @18
  memory_init s1 %0, %4, %14 @19
  %26: i32, %27: i32, %28: i32, %29: i32 = load128 param(0) %0 + 16
  store128 state %4, %26, %27, %28, %29
  store.f32 state %4 + 4, %2
  return ()
}
func f1 "" () -> () {
  trap 10 @20
}
func f2 "exp" contract () -> () {
  return ()
}
func f3 "log" exact () -> () {
  return ()
}
)";

// Canonical text is printed unchanged.
TEST(TextTest, RoundTripsEverything) {
  const StatusOr<Module> module = ParseModule(kEverything);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(Print(*module), kEverything);
  EXPECT_EQ(module->name, std::string("all \"\\\n\xff"));
  EXPECT_EQ(module->functions[0].name, std::string("entry\0", 6));
  EXPECT_EQ(module->functions[1].fast_math, FastMath::kAll);
  EXPECT_EQ(module->functions[2].fast_math, FastMath::kContract);
  EXPECT_EQ(module->functions[3].fast_math, FastMath::kNone);
  EXPECT_EQ(module->functions[0].ops[2].imm, 0x7f800001u);
  EXPECT_EQ(module->functions[0].ops[4].imm, ~uint64_t{0});
  EXPECT_TRUE(module->params[1].is_writable);
  EXPECT_FALSE(module->params[0].is_writable);
  EXPECT_EQ(module->params[0].type, Type::kI64);
  EXPECT_EQ(module->stack_pointer, 0u);
  EXPECT_EQ(module->formats[1], "%d %%\n");
  EXPECT_EQ(module->references[0].type, 1u);
}

// Every opcode's name is read back as that opcode.
TEST(TextTest, OpcodeNames) {
  for (int i = 0; i <= static_cast<int>(Opcode::kTrap); ++i) {
    Opcode code = Opcode::kTrap;
    const OpcodeInfo& info = Info(static_cast<Opcode>(i));
    EXPECT_EQ(static_cast<int>(info.code), i);
    ASSERT_TRUE(OpcodeFromText(info.text, &code)) << info.text;
    EXPECT_EQ(static_cast<int>(code), i);
  }
  Opcode code;
  EXPECT_FALSE(OpcodeFromText("madd", &code));
}

// Names, comments, blanks and decimal floats are accepted, and printed in canonical form.
TEST(TextTest, ReadsLooseText) {
  const StatusOr<Module> module = ParseModule(
      ";; a comment\nmodule \"m\" ;; another\nentry f0 func f0 \"f\"(%why:i32)->(){%x_1:f32=const.f32 -1.5e-1\n"
      "%y:f64 = const.f64 inf\n\t%z:i32=const.i32 0xffffffff if top %why{br top()}else{br top()}return()}");
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(Print(*module), R"(module "m"
entry f0
func f0 "f" (%0: i32) -> () {
  %1: f32 = const.f32 0xbe19999a
  %2: f64 = const.f64 0x7ff0000000000000
  %3: i32 = const.i32 -1
  if b0 %0 {
    br b0 ()
  } else {
    br b0 ()
  }
  return ()
}
)");
}

struct Case {
  const char* name;
  const char* text;
  const char* want;
};

constexpr char kStart[] = "module \"m\"\nentry f0\nfunc f0 \"f\" (%a: i32) -> () {\n";

// Errors in the module's directives name the line, the expected token and the token found.
TEST(TextTest, DirectiveErrors) {
  const Case cases[] = {
      {"Empty", "", "Line 1: Expected \"module\"; found the end of the text."},
      {"Name", "module m", "Line 1: Expected a string in quotes; found \"m\"."},
      {"OpenString", "module \"m\nentry", "Line 1: Expected a string in quotes; found \"m\"."},
      {"Escape", "module \"\\q0\"",
       "Line 1: An escape in the string is not \\ and two digits of lower-case hexadecimal."},
      {"ShortEscape", "module \"\\0\"",
       "Line 1: An escape in the string is not \\ and two digits of lower-case hexadecimal."},
      {"Memory", "module \"m\"\nmemory 65536\nentry f0", "Line 3: Expected an unsigned number; found \"entry\"."},
      {"MemoryNegative", "module \"m\"\nmemory -1 0", "Line 2: Expected an unsigned number; found \"-1\"."},
      {"MemoryHuge", "module \"m\"\nmemory 18446744073709551616 0",
       "Line 2: Expected an unsigned number; found \"18446744073709551616\"."},
      {"Data", "module \"m\"\ndata 0 \"0g\"",
       "Line 2: Expected bytes in hexadecimal, two digits each, in quotes; found \"0g\"."},
      {"DataOdd", "module \"m\"\ndata 0 \"012\"",
       "Line 2: Expected bytes in hexadecimal, two digits each, in quotes; found \"012\"."},
      {"Uses", "module \"m\"\nuses magic",
       "Line 2: Expected \"barrier\", \"group_memory\", \"separate_buffers\" or \"linked\"; found \"magic\"."},
      {"Global", "module \"m\"\nglobal i32 0x100000000",
       "Line 2: Expected a constant that fits i32; found \"0x100000000\"."},
      {"Reference", "module \"m\"\nref g0\nentry f0", "Line 2: Expected an index such as \"f3\"; found \"g0\"."},
      {"Param", "module \"m\"\nparam buffer \"x\"", "Line 2: Expected \"in\" or \"inout\"; found \"x\"."},
      {"Entry", "module \"m\"\nfunc f0", "Line 2: Expected \"entry\"; found \"func\"."},
      {"EntryHuge", "module \"m\"\nentry f4294967295",
       "Line 2: Expected an index such as \"f3\"; found \"f4294967295\"."},
      {"Order", "module \"m\"\nentry f0\nfunc f1", "Line 3: Function f1 is found where f0 is expected."},
      {"After", "module \"m\"\nentry f0\nglobal i32 0",
       "Line 3: Expected \"func\" or the end of the text; found \"global\"."},
      {"Raw", "module \x01\x02", "Line 1: Expected a string in quotes; found \"?\"."},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Message(ParseModule(c.text).status()), c.want) << c.name;
  }
}

// Errors in a function's body name the line.
TEST(TextTest, BodyErrors) {
  const Case cases[] = {
      {"Unended", "return ()\n", "Line 5: Expected the name of an operation; found the end of the text."},
      {"Unknown", "frobnicate.i32 %a", "Line 4: Expected the name of an operation; found \"frobnicate.i32\"."},
      {"NoType", "%x: i32 = add %a, %a",
       "Line 4: Expected an operation with a type, such as \"add.i32\"; found \"add\"."},
      {"BadType", "%x: i32 = add.i8 %a, %a",
       "Line 4: Expected an operation with a type, such as \"add.i32\"; found \"add.i8\"."},
      {"ExtraType", "barrier.i32", "Line 4: Expected an operation without a type; found \"barrier.i32\"."},
      {"Undefined", "%x: i32 = add.i32 %a, %q", "Line 4: The value \"%q\" is used before it is defined."},
      {"OwnResult", "%x: i32 = add.i32 %x, %a", "Line 4: The value \"%x\" is used before it is defined."},
      {"Twice", "%a: i32 = const.i32 1", "Line 4: The value \"%a\" is defined twice."},
      {"BlockTwice", "block b () {\nbr b ()\n}\nblock b () {", "Line 7: The block \"b\" is defined twice."},
      {"Label", "br b ()", "Line 4: Expected the name of an enclosing block, loop or if; found \"b\"."},
      {"Else", "if b %a {\nbr b ()\n}\nreturn ()", "Line 7: Expected \"else\"; found \"return\"."},
      {"TerminatorResult", "%x: i32 = return ()", "Line 4: A terminator has no results."},
      {"Space", "%x: i32 = load.i32 %a",
       "Line 4: Expected a space (flat, param(k), module, stack, private(k), group, state or scratch); found \"a\"."},
      {"Const", "%x: i32 = const.i32 4294967296", "Line 4: Expected a constant that fits i32; found \"4294967296\"."},
      {"ConstLow", "%x: i32 = const.i32 -2147483649",
       "Line 4: Expected a constant that fits i32; found \"-2147483649\"."},
      {"ConstFloat", "%x: f32 = const.f32 1.5.5", "Line 4: Expected a constant that fits f32; found \"1.5.5\"."},
      {"Source", "return () @4294967296", "Line 4: The number (4294967296) is larger than the limit (4294967295)."},
      {"TooManyImmediates", "%x: i32 = load.i32 flat %a + 1 + 2",
       "Line 4: Expected the name of an operation; found \"+\"."},
      {"ResultList", "%x: i32, = const.i32 1", "Line 4: Expected a value such as \"%3\"; found \"=\"."},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Message(ParseModule(std::string(kStart) + c.text).status()), c.want) << c.name;
  }
}

// The builder creates the same loop as the text form.
TEST(TextTest, BuilderAndParserAgree) {
  Module module;
  module.name = "m";
  module.params = {{"n", false, false, Type::kI32}};
  module.entry = FunctionId(0u);
  Function& f = module.functions.emplace_back();
  f.name = "count";
  f.type.params = {Type::kI32};
  Builder b(f);
  const ValueId n = b.BeginBody()[0];
  const OpId loop = b.BeginBlock(Opcode::kLoop, std::array{n}, {}, 5);
  const ValueId i = b.Params(loop)[0];
  const OpId branch = b.BeginIf(i, std::array{Type::kI32}, 6);
  Op sub{};
  sub.code = Opcode::kSub;
  const ValueId less = b.Append1(sub, std::array{i, b.Const(Type::kI32, 1)}, Type::kI32);
  EXPECT_FALSE(b.Terminated());
  b.Leave(branch, std::array{less});
  EXPECT_TRUE(b.Terminated());
  b.Else();
  b.Return({}, 7);
  b.End();
  const ValueId result = b.Results(branch)[0];
  b.BrTable(result, std::array{Target{loop, true}, Target{loop, true}}, {}, 8);
  b.End();
  b.Trap(TrapCode::kUnreachable, 9);
  b.End();
  const char* want = R"(module "m"
param i32 "n"
entry f0
func f0 "count" (%0: i32) -> () {
  loop b0 (%1: i32 = %0) @5 {
    %2: i32 = if b1 %1 @6 {
      %3: i32 = const.i32 1
      %4: i32 = sub.i32 %1, %3
      br b1 (%4)
    } else {
      return () @7
    }
    br_table %2 [continue b0, continue b0] () @8
  }
  trap 1 @9
}
)";
  EXPECT_EQ(Print(module), want);
  const StatusOr<Module> parsed = ParseModule(want);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(Print(*parsed), want);
}

// ForEachOp visits operations in the order of the text, including both arms of an if.
TEST(WalkTest, VisitsInTextOrder) {
  const StatusOr<Module> module = ParseModule(std::string(kStart) +
                                              "%x: i32 = const.i32 1\nif b %a {\n%y: i32 = const.i32 2\nbr b ()\n} "
                                              "else {\n%z: i32 = const.i32 3\nbr b ()\n}\n%w: i32 = const.i32 4\n"
                                              "return ()\n}\n");
  ASSERT_TRUE(module.ok()) << module.status();
  std::string visited;
  ForEachOp(module->functions[0], [&](OpId id) {
    const Op& op = module->functions[0].op(id);
    visited += op.code == Opcode::kConst ? std::to_string(op.imm) : std::string(1, Info(op.code).text[0]);
  });
  EXPECT_EQ(visited, "1i2b3b4r");
}

}  // namespace
}  // namespace hpvm::ir
