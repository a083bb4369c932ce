// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/verify/verify.h"

#include <functional>
#include <limits>
#include <string>

#include "gtest/gtest.h"

#include "base/limits.h"
#include "compiler/ir/text/text.h"

namespace hpvm::ir {
namespace {

// %b: i32 buffer, %f: f32, %l: i64; global g0 is immutable, g1 mutable; f1 takes (i32) and returns (i32).
std::string WithBody(const std::string& body) {
  return "module \"m\"\nmemory 65536 65536\nglobal i32 0x1\nglobal mut i32 0x1\n"
         "state 8\nsegment \"01\"\nreftype (i32) -> (i32)\nreftype () -> ()\nref f1 r0\nformat \"%d\"\n"
         "param buffer inout \"b\"\nparam f32 \"f\"\nparam i64 \"l\"\nentry f0\n"
         "func f0 \"entry\" (%b: i32, %f: f32, %l: i64) -> () {\n" +
         body +
         "\n}\n"
         "func f1 \"same\" (%v: i32) -> (i32) {\nreturn (%v)\n}\n";
}

std::string FaultsOf(const Module& module) { return ToString(Verify(module)); }

Module Parse(const std::string& text) {
  StatusOr<Module> module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << text << module.status();
  return module.ok() ? *std::move(module) : Module{};
}

struct Case {
  const char* name;
  const char* body;
  const char* want;  // After "function f0 "entry": ".
};

constexpr Case kBodies[] = {
    {"Types", "%x: i32 = add.i32 %b, %l\nreturn ()",
     "\"add\": The operands (i32, i64) are not of the types (i32, i32)."},
    {"Count", "%x: i32 = add.i32 %b\nreturn ()", "\"add\": The operands (i32) are not of the types (i32, i32)."},
    {"Result", "%x: i64 = add.i32 %b, %b\nreturn ()", "\"add\": The results (i64) are not of the types (i32)."},
    {"NoResult", "add.i32 %b, %b\nreturn ()", "\"add\": The results () are not of the types (i32)."},
    {"ApproxOnWide", "%d: f64 = promote.f32 %f\n%x: f64 = approx_sin.f64 %d\nreturn ()",
     "\"approx_sin\": The operation does not exist for f64."},
    {"IntOnFloat", "%x: f32 = add.f32 %f, %f\nreturn ()", "\"add\": The operation does not exist for f32."},
    {"FloatOnInt", "%x: i32 = fadd.i32 %b, %b\nreturn ()", "\"fadd\": The operation does not exist for i32."},
    {"CompareResult", "%x: i64 = lt_s.i64 %l, %l\nreturn ()",
     "\"lt_s\": The results (i64) are not of the types (i32)."},
    {"Extend32", "%x: i32 = extend32_s.i32 %b\nreturn ()", "\"extend32_s\": The operation does not exist for i32."},
    {"Wrap", "%x: i32 = wrap.i32 %b\nreturn ()", "\"wrap\": A conversion from i32 to i32 does not exist."},
    {"Reinterpret", "%x: i64 = reinterpret.f32 %f\nreturn ()",
     "\"reinterpret\": A conversion from f32 to i64 does not exist."},
    {"ConvertTwo", "%x: f32, %y: f32 = convert_s.i32 %b\nreturn ()",
     "\"convert_s\": A conversion has one result; this one has 2."},
    {"SelectCondition", "%x: i64 = select.i64 %l, %l, %l\nreturn ()",
     "\"select\": The operands (i64, i64, i64) are not of the types (i32, i64, i64)."},
    {"Width", "%x: f32 = load.f32 w2 flat %b\nreturn ()", "\"load\": The width (2) does not exist for f32."},
    {"Signed", "%x: i32 = load.i32 signed flat %b\nreturn ()",
     "\"load\": Only loads narrower than their type are signed."},
    {"SignedStore", "store.i32 w1 signed flat %b, %b\nreturn ()",
     "\"store\": Only loads narrower than their type are signed."},
    {"Address", "%x: i32 = load.i32 flat %l\nreturn ()", "\"load\": The operands (i64) are not of the types (i32)."},
    {"Param", "%x: i32 = load.i32 param(3) %b\nreturn ()",
     "\"load\": The parameter (3) does not exist; the kernel has 3."},
    {"ScalarParam", "%x: i32 = load.i32 param(1) %b\nreturn ()", "\"load\": The parameter (1) is not a buffer."},
    {"Private", "%x: i32 = load.i32 private(0) %b\nreturn ()", "\"load\": The space private is not in use yet."},
    {"AtomicFloat", "%x: f32 = atomic_add.f32 flat %b, %f\nreturn ()",
     "\"atomic_add\": The operation does not exist for f32."},
    {"AtomicFaddInt", "%x: i32 = atomic_fadd.i32 flat %b, %b\nreturn ()",
     "\"atomic_fadd\": The operation does not exist for i32."},
    {"Cmpxchg", "%x: i32 = atomic_cmpxchg.i32 flat %b, %b\nreturn ()",
     "\"atomic_cmpxchg\": The operands (i32, i32) are not of the types (i32, i32, i32)."},
    {"Fill", "memory_fill %b, %b, %l\nreturn ()",
     "\"memory_fill\": The operands (i32, i32, i64) are not of the types (i32, i32, i32)."},
    {"GlobalMissing", "%x: i32 = global_get.i32 g2\nreturn ()",
     "\"global_get\": The global (2) does not exist; the module has 2."},
    {"GlobalType", "%x: i64 = global_get.i64 g0\nreturn ()",
     "\"global_get\": The global is of type i32, the operation of i64."},
    {"GlobalConst", "global_set.i32 g0 %b\nreturn ()", "\"global_set\": The global is not mutable."},
    {"Query", "%x: f32 = instance_id.f32 %b\nreturn ()", "\"instance_id\": The operation does not exist for f32."},
    {"QueryResult", "%x: i64 = instance_id.i32 %b\nreturn ()",
     "\"instance_id\": The results (i64) are not of the types (i32)."},
    {"CallMissing", "call f2 ()\nreturn ()", "\"call\": The function (2) does not exist; the module has 2."},
    {"CallArguments", "%x: i32 = call f1 (%f)\nreturn ()", "\"call\": The operands (f32) are not of the types (i32)."},
    {"CallResults", "call f1 (%b)\nreturn ()", "\"call\": The results () are not of the types (i32)."},
    {"RefMissing", "call_ref r2 (%b)\nreturn ()",
     "\"call_ref\": The reference type (2) does not exist; the module has 2."},
    {"RefType", "call_ref r1 (%l)\nreturn ()", "\"call_ref\": The first operand of a call_ref is the i32 reference."},
    {"RefArguments", "call_ref r0 (%b)\nreturn ()", "\"call_ref\": The operands () are not of the types (i32)."},
    {"RefResults", "call_ref r0 (%b, %b)\nreturn ()", "\"call_ref\": The results () are not of the types (i32)."},
    {"PrintMissing", "print p1 ()\nreturn ()", "\"print\": The format (1) does not exist; the module has 1."},
    {"PrintResult", "%x: i32 = print p0 ()\nreturn ()", "\"print\": The results (i32) are not of the types ()."},
    {"SegmentMissing", "memory_init s1 %b, %b, %b\nreturn ()",
     "\"memory_init\": The segment (1) does not exist; the module has 1."},
    {"Init", "memory_init s0 %b, %l, %b\nreturn ()",
     "\"memory_init\": The operands (i32, i64, i32) are not of the types (i32, i32, i32)."},
    {"Load128", "%x: i32 = load128 flat %b\nreturn ()",
     "\"load128\": The results (i32) are not of the types (i32, i32, i32, i32)."},
    {"Store128", "store128 flat %b, %b, %b, %b\nreturn ()",
     "\"store128\": The operands (i32, i32, i32, i32) are not of the types (i32, i32, i32, i32, i32)."},
    {"Width128", "%x: i32, %y: i32, %z: i32, %w: i32 = load128 w4 flat %b\nreturn ()",
     "\"load128\": The width (4) is not 16."},
    {"StateAtomic", "%x: i32 = atomic_load.i32 state %b\nreturn ()",
     "\"atomic_load\": The space state has no atomics."},
    {"StateAddress", "%x: i32 = load.i32 state %l\nreturn ()",
     "\"load\": The operands (i64) are not of the types (i32)."},
    {"NoTerminator", "%x: i32 = add.i32 %b, %b", "\"add\": A region ends in an operation that is not a terminator."},
    {"Empty", "", "A region is empty."},
    {"EarlyTerminator", "return ()\nreturn ()", "\"return\": A terminator stands before the end of its region."},
    {"ReturnValues", "return (%b)", "\"return\": The operands (i32) are not of the types ()."},
    {"TrapCode", "trap 0", "\"trap\": The trap code (0) does not exist."},
    {"TrapStopped", "trap 100", "\"trap\": The trap code (100) does not exist."},
    {"IfCondition", "if x %l {\nbr x ()\n} else {\nbr x ()\n}\nreturn ()",
     "\"if\": The operands (i64) are not of the types (i32)."},
    {"BlockParam", "block x (%p: i64 = %b) {\nbr x ()\n}\nreturn ()",
     "\"block\": The operands (i32) are not of the types (i64)."},
    {"LeaveValues", "%r: i32 = block x () {\nbr x (%f)\n}\nreturn ()",
     "\"br\": The operands (f32) are not of the types (i32)."},
    {"ContinueBlock", "block x () {\ncontinue x ()\n}\nreturn ()", "\"continue\": Only a loop can be continued."},
    {"ContinueValues", "loop x (%p: i32 = %b) {\ncontinue x ()\n}\nreturn ()",
     "\"continue\": The operands () are not of the types (i32)."},
    {"NotEnclosing", "block x () {\nbr x ()\n}\nblock y () {\nbr x ()\n}\nreturn ()",
     "A target does not enclose its terminator."},
    {"TableIndex", "block x () {\nbr_table %l [x] ()\n}\nreturn ()",
     "\"br_table\": The first operand of a br_table is the i32 index."},
    {"TableValues", "%r: i32 = block x () {\nbr_table %b [x] ()\n}\nreturn ()",
     "\"br_table\": The operands () are not of the types (i32)."},
    {"TableOneOfTwo", "%r: i32 = block x () {\nblock y () {\nbr_table %b [y, x] ()\n}\nbr x (%b)\n}\nreturn ()",
     "\"br_table\": The operands () are not of the types (i32)."},
    {"UseOfInnerValue", "block x () {\n%v: i32 = const.i32 1\nbr x ()\n}\nstore.i32 flat %b, %v\nreturn ()",
     "\"store\": An operand is used outside the region that defines it, or before its definition."},
    {"UseOfOtherBranch",
     "if x %b {\n%v: i32 = const.i32 1\nbr x ()\n} else {\nstore.i32 flat %b, %v\nbr x ()\n}\nreturn ()",
     "\"store\": An operand is used outside the region that defines it, or before its definition."},
    {"UseOfOwnResult", "%r: i32 = block x () {\nbr x (%r)\n}\nreturn ()",
     "\"br\": An operand is used outside the region that defines it, or before its definition."},
};

// Each violated rule about operations and regions is reported with its sentence, and nothing else is.
TEST(VerifyTest, RefusesEachBrokenBody) {
  for (const Case& c : kBodies) {
    EXPECT_EQ(FaultsOf(Parse(WithBody(c.body))), std::string("function f0 \"entry\": ") + c.want) << c.name;
  }
}

constexpr char kValid[] =
    "%r: i32 = loop x (%i: i32 = %b) {\nif y %i {\ncontinue x (%i)\n} else {\nbr x (%i)\n}\ntrap 1\n}\n"
    "store.i32 flat %b, %r\nreturn ()";

struct ModuleCase {
  const char* name;
  std::function<void(Module&)> change;
  const char* want;
};

constexpr char kBadReference[] =
    "module \"m\": A reference names a function or a type that does not exist, or a function that is not of the type.";

// Faults in the module's tables that the text form cannot express are created in memory.
TEST(VerifyTest, RefusesEachBrokenModule) {
  const ModuleCase cases[] = {
      {"Pages", [](Module& m) { m.memory_bytes = 100; },
       "module \"m\": The memory's size is not a multiple of 64 KiB."},
      {"Maximum", [](Module& m) { m.memory_bytes = 131072; },
       "module \"m\": The memory (131072 bytes) or its maximum (65536) is larger than the limit (65536)."},
      {"Limit", [](Module& m) { m.memory_bytes_max = 2 * limits::kModuleMemoryBytesMax; },
       "module \"m\": The memory (65536 bytes) or its maximum (2147483648) is larger than the limit (1073741824)."},
      {"DataOutside",
       [](Module& m) {
         m.data = {{65534, {1, 2, 3}}};
       },
       "module \"m\": The data segment at 65534 overlaps the one before it, is out of order or lies outside the "
       "memory."},
      {"DataFarOutside",
       [](Module& m) {
         m.data = {{~uint64_t{0}, {1}}};
       },
       "module \"m\": The data segment at 18446744073709551615 overlaps the one before it, is out of order or lies "
       "outside the memory."},
      {"DataOverlap",
       [](Module& m) {
         m.data = {{10, {1, 2}}, {11, {1}}};
       },
       "module \"m\": The data segment at 11 overlaps the one before it, is out of order or lies outside the memory."},
      {"GlobalBits", [](Module& m) { m.globals[0].init = uint64_t{1} << 32; },
       "module \"m\": A global's initial value does not fit its type."},
      {"State", [](Module& m) { m.state_bytes = 2 * limits::kModuleStateBytesMax; },
       "module \"m\": The state (536870912 bytes) is larger than the limit (268435456)."},
      {"StateData",
       [](Module& m) {
         m.state = {{7, {1, 2}}};
       },
       "module \"m\": The segment of the state at 7 overlaps the one before it, is out of order or lies outside the "
       "state."},
      {"ReferenceFunction", [](Module& m) { m.references[0].function = FunctionId(); }, kBadReference},
      {"ReferenceType", [](Module& m) { m.references[0].type = 2; }, kBadReference},
      {"ReferenceOtherType", [](Module& m) { m.references[0].type = 1; }, kBadReference},
      {"ReferenceNull", [](Module& m) { m.first_reference = 0; },
       "module \"m\": The references do not lie in [1, 2^32)."},
      {"ReferenceLast", [](Module& m) { m.first_reference = 0xffffffffu; },
       "module \"m\": The references do not lie in [1, 2^32)."},
      {"StackPointerMissing", [](Module& m) { m.stack_pointer = 2; },
       "module \"m\": The stack pointer is not a mutable global of the address type."},
      {"StackPointerConst", [](Module& m) { m.stack_pointer = 0; },
       "module \"m\": The stack pointer is not a mutable global of the address type."},
      {"Entry", [](Module& m) { m.entry = FunctionId(2u); }, "module \"m\": The entry function does not exist."},
      {"EntryMissing", [](Module& m) { m.entry = FunctionId(); }, "module \"m\": The entry function does not exist."},
      {"EntryParams", [](Module& m) { m.params.pop_back(); },
       "module \"m\": The entry function does not take the kernel's parameters, or returns values."},
      {"BufferType", [](Module& m) { m.params[0].type = Type::kI64; },
       "module \"m\": The buffer parameter \"b\" is not of the address type.\n"
       "module \"m\": The entry function does not take the kernel's parameters, or returns values."},
  };
  for (const ModuleCase& c : cases) {
    Module module = Parse(WithBody(kValid));
    ASSERT_EQ(FaultsOf(module), "");
    c.change(module);
    EXPECT_EQ(FaultsOf(module), c.want) << c.name;
  }
}

// Ids out of range and regions that form no tree are found before anything follows them.
TEST(VerifyTest, RefusesEachBrokenStructure) {
  const auto entry = [](Module& m) -> Function& { return m.functions[0]; };
  const ModuleCase cases[] = {
      {"NoBody", [&](Module& m) { entry(m).body = RegionId(); }, "The function has no body."},
      {"Code", [&](Module& m) { entry(m).ops[0].code = static_cast<Opcode>(250); },
       "An operation's code does not exist."},
      {"Operands", [&](Module& m) { entry(m).ops[0].operand_count = 0xffffffffu; },
       "An operation's operands, targets or results are out of range."},
      {"Results", [&](Module& m) { entry(m).ops[0].first_result = ValueId(0xfffffff0u); },
       "An operation's operands, targets or results are out of range."},
      {"Operand", [&](Module& m) { entry(m).operands[0] = ValueId(99u); }, "An operand is out of range."},
      {"Target", [&](Module& m) { entry(m).targets[0].op = OpId(); }, "A target is out of range."},
      {"Region", [&](Module& m) { entry(m).ops[0].body = RegionId(); }, "An operation's region is out of range."},
      {"RegionParams", [&](Module& m) { entry(m).regions[1].param_count = 99; },
       "A region's parameters are out of range."},
      {"RegionOp", [&](Module& m) { entry(m).regions[0].ops.push_back(OpId(99u)); },
       "An operation of a region is out of range."},
      {"SelfOwned", [&](Module& m) { entry(m).ops[0].body = entry(m).body; }, "A region is owned twice."},
      {"SharedRegion", [&](Module& m) { entry(m).ops[1].otherwise = entry(m).ops[1].body; },
       "A region is owned twice."},
      {"Owner", [&](Module& m) { entry(m).regions[1].owner = OpId(1u); },
       "A region's owner is not the operation that owns it."},
      {"OpTwice", [&](Module& m) { entry(m).regions[0].ops.insert(entry(m).regions[0].ops.begin(), OpId(5u)); },
       "An operation stands in two places."},
      {"ValueTwice", [&](Module& m) { entry(m).ops[0].first_result = ValueId(0u); }, "A value is defined twice."},
      {"BodyParams", [&](Module& m) { entry(m).regions[0].param_count = 2; },
       "The types of the body's parameters differ from those of the function type."},
  };
  for (const ModuleCase& c : cases) {
    Module module = Parse(WithBody(kValid));
    c.change(module);
    const std::string faults = FaultsOf(module);
    EXPECT_NE(faults.find(std::string("function f0 \"entry\": ") + c.want), std::string::npos)
        << c.name << ": " << faults;
  }
}

// A use before the definition, which the parser itself refuses, is also refused in memory.
TEST(VerifyTest, RefusesUseBeforeDefinition) {
  Module module = Parse(WithBody("%x: i32 = const.i32 1\n%y: i32 = add.i32 %x, %x\nreturn ()"));
  std::swap(module.functions[0].regions[0].ops[0], module.functions[0].regions[0].ops[1]);
  EXPECT_EQ(FaultsOf(module),
            "function f0 \"entry\": \"add\": An operand is used outside the region that defines it, or before its "
            "definition.");
}

// All prints of a format take the same types, also in functions that nothing calls.
TEST(VerifyTest, FormatsHaveOneSignature) {
  const std::string one = "print p0 (%b, %f)\n", other = "print p0 (%b, %l) @9\n";
  EXPECT_EQ(FaultsOf(Parse(WithBody(one + one + "return ()"))), "");
  EXPECT_EQ(FaultsOf(Parse(WithBody(one + other + "return ()"))),
            "module \"m\" at byte 9: Two prints of format p0 pass values of different types.");
  EXPECT_NE(FaultsOf(Parse(WithBody(one + "return ()") + "func f2 \"g\" () -> () {\nprint p0 ()\nreturn ()\n}\n")), "");
}

// The number of a print's values is limited.
TEST(VerifyTest, PrintsAreLimited) {
  std::string values = "%b";
  for (uint32_t i = 1; i < limits::kPrintOperandsMax; ++i) {
    values += ", %b";
  }
  EXPECT_EQ(FaultsOf(Parse(WithBody("print p0 (" + values + ")\nreturn ()"))), "");
  EXPECT_EQ(FaultsOf(Parse(WithBody("print p0 (" + values + ", %b)\nreturn ()"))),
            "function f0 \"entry\": \"print\": A print passes more values (65) than the limit (64).");
}

// A constant of 4 bytes has no upper half.
TEST(VerifyTest, RefusesWideConstants) {
  Module module = Parse(WithBody("%x: f32 = const.f32 1.5\nreturn ()"));
  module.functions[0].ops[0].imm |= uint64_t{1} << 40;
  EXPECT_EQ(FaultsOf(module), "function f0 \"entry\": \"const\": The constant does not fit f32.");
}

// Barriers and group memory must be declared when a call, direct or through a reference, reaches them, and only then.
TEST(VerifyTest, UsesAreDeclared) {
  const std::string want =
      "module \"m\": A reachable function has a barrier or a local_alloc that the module does not declare.";
  const std::string functions = "func f2 \"sync\" () -> () {\nbarrier\nreturn ()\n}\n";
  const std::string memory =
      "func f2 \"sync\" () -> () {\n%n: i32 = const.i32 8\n%p: i32 = local_alloc %n\nreturn ()\n}\n";
  EXPECT_EQ(FaultsOf(Parse(WithBody("return ()") + functions)), "");
  EXPECT_EQ(FaultsOf(Parse(WithBody("call f2 ()\nreturn ()") + functions)), want);
  EXPECT_EQ(FaultsOf(Parse(WithBody("call f2 ()\nreturn ()") + memory)), want);
  Module module = Parse(WithBody("%x: i32 = call_ref r0 (%b, %b)\nreturn ()") + functions);
  EXPECT_EQ(FaultsOf(module), "");
  module.references.push_back({FunctionId(2u), 1});
  EXPECT_EQ(FaultsOf(module), want);
  module.uses_barrier = true;
  EXPECT_EQ(FaultsOf(module), "");
}

// A hostile module cannot fill memory with faults.
TEST(VerifyTest, FaultsAreLimited) {
  std::string body;
  for (int i = 0; i < 1000; ++i) {
    body += "store.i32 flat %b, %l\n";
  }
  EXPECT_EQ(Verify(Parse(WithBody(body + "return ()"))).size(), limits::kDiagnosticsMax);
}

// Tables that share targets cannot make back ends expand a small module to a huge one.
TEST(VerifyTest, TableValuesAreLimited) {
  const auto body = [](int tables) {
    std::string text, names, values;
    for (int i = 0; i < 20; ++i) {
      values += (i > 0 ? ", " : "") + std::string("%b");
    }
    for (int i = 0; i < 20; ++i) {
      const std::string block = "b" + std::to_string(i);
      for (int k = 0; k < 20; ++k) {
        text += (k > 0 ? ", " : "") + std::string("%r") + std::to_string(i) + "_" + std::to_string(k) + ": i32";
      }
      text += " = block " + block + " () {\n";
      names += (i > 0 ? ", " : "") + block;
    }
    for (int i = 0; i < tables; ++i) {
      const std::string block = "t" + std::to_string(i);
      text += "block " + block + " () {\nbr_table %b [" + names + "] (" + values + ")\n}\n";
    }
    // From the innermost block outwards.
    std::string ends;
    for (int i = 19; i >= 0; --i) {
      ends += "br b" + std::to_string(i) + " (" + values + ")\n}\n";
    }
    return WithBody(text + ends + "return ()");
  };
  EXPECT_EQ(FaultsOf(Parse(body(70))), "");
  EXPECT_EQ(FaultsOf(Parse(body(80))),
            "function f0 \"entry\": The function's tables pass more values (30240) than the limit (29888).");
}

// The diagnostic contains the operation's source offset.
TEST(VerifyTest, FaultsNameTheSource) {
  const Diagnostics faults = Verify(Parse(WithBody("store.i32 flat %b, %l @123\nreturn ()")));
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].offset, 123u);
}

}  // namespace
}  // namespace hpvm::ir
