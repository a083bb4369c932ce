// SPDX-License-Identifier: Apache-2.0
#include "compiler/analysis/index_loads.h"

#include <gtest/gtest.h>

#include <string>

#include "compiler/ir/text/text.h"
#include "compiler/ir/walk.h"

namespace hpvm::analysis {
namespace {

// Returns, for each load in the order of the text, '1' if its value determines an access, else '0'.
std::string Marks(const std::string& body, uint32_t function = 0) {
  const StatusOr<ir::Module> module = ir::ParseModule(
      "module \"m\"\nmemory 65536 65536\nglobal mut i32 7\nparam buffer inout \"x\"\nparam i32 \"n\"\nentry f0\n"
      "func f0 \"f\" (%x: i32, %n: i32) -> () {\n" +
      body);
  EXPECT_TRUE(module.ok()) << module.status();
  const ir::FunctionId id(function);
  const std::vector<bool> marked = FindIndexLoads(*module, id);
  const ir::Function& f = module->function(id);
  std::string marks;
  ir::ForEachOp(f, [&](ir::OpId op) {
    if (f.op(op).code == ir::Opcode::kLoad) {
      marks += marked[f.op(op).first_result.index] ? '1' : '0';
    }
  });
  return marks;
}

TEST(IndexLoadsTest, AddressesOfAccesses) {
  EXPECT_EQ(Marks("%a: i32 = load.i32 flat %x\n%b: i32 = load.i32 flat %x + 4\n%p: i32 = add.i32 %x, %a\n"
                  "%v: f32 = load.f32 flat %p\nstore.f32 flat %x, %v\nstore.i32 flat %x, %b\nreturn ()\n}\n"),
            "100");
  EXPECT_EQ(Marks("%a: i32 = load.i32 flat %x\n%b: i32 = load.i32 flat %x + 4\n"
                  "%old: i32 = atomic_add.i32 flat %a, %b\nreturn ()\n}\n"),
            "10");
  EXPECT_EQ(Marks("%a: i32 = load.i32 flat %x\n%b: i32 = load.i32 flat %x + 4\n"
                  "memory_fill %x, %a, %b\nreturn ()\n}\n"),
            "11");
}

// The search follows arithmetic, floats, selects and values passed by control flow, each value of a construct
// separately.
TEST(IndexLoadsTest, WhateverTheWay) {
  EXPECT_EQ(Marks("%a: f32 = load.f32 flat %x\n%s: f32 = load.f32 flat %x + 4\n%i: i32 = trunc_sat_s.f32 %a\n"
                  "%c: i32 = lt_u.i32 %i, %n\n%k: i32 = select.i32 %c, %i, %n\nstore.f32 flat %k, %s\nreturn ()\n}\n"),
            "10");
  EXPECT_EQ(Marks("%zero: i32 = const.i32 0\n%one: i32 = const.i32 1\n%none: f32 = const.f32 0\n"
                  "%sum: f32 = loop again (%i: i32 = %zero, %at: i32 = %x, %acc: f32 = %none) {\n"
                  "%v: f32 = load.f32 flat %at\n%next: i32 = load.i32 flat %x + 8\n%more: f32 = fadd.f32 %acc, %v\n"
                  "%i1: i32 = add.i32 %i, %one\n%c: i32 = lt_u.i32 %i1, %n\n"
                  "if on %c {\ncontinue again (%i1, %next, %more)\n} else {\nbr on ()\n}\nbr again (%more)\n}\n"
                  "store.f32 flat %x, %sum\nreturn ()\n}\n"),
            "01");
}

TEST(IndexLoadsTest, WhatMayTrapAndConditions) {
  EXPECT_EQ(Marks("%a: i32 = load.i32 flat %x\n%b: i32 = load.i32 flat %x + 4\n%q: i32 = div_s.i32 %a, %b\n"
                  "store.i32 flat %x, %q\nreturn ()\n}\n"),
            "11");
  EXPECT_EQ(Marks("%nine: i32 = const.i32 9\n%a: i32 = load.i32 flat %x\n%q: i32 = div_s.i32 %a, %nine\n"
                  "store.i32 flat %x, %q\nreturn ()\n}\n"),
            "0");
  EXPECT_EQ(Marks("%nine: i32 = const.i32 -1\n%a: i32 = load.i32 flat %x\n%q: i32 = div_s.i32 %a, %nine\n"
                  "store.i32 flat %x, %q\nreturn ()\n}\n"),
            "1");
  const std::string ends = "if b %c {\nstore.i32 flat %x, %n\nbr b ()\n} else {\nbr b ()\n}\nreturn ()\n}\n";
  EXPECT_EQ(Marks("%a: i32 = load.i32 flat %x\n%c: i32 = lt_u.i32 %a, %n\n" + ends), "1");
  EXPECT_EQ(Marks("%a: f32 = load.f32 flat %x\n%b: f32 = load.f32 flat %x + 4\n%c: i32 = flt.f32 %a, %b\n" + ends),
            "00");
}

// A value that leaves the function may become an address elsewhere.
TEST(IndexLoadsTest, OtherFunctionsAndGlobals) {
  const std::string text =
      "%a: i32 = load.i32 flat %x\n%b: i32 = load.i32 flat %x + 4\n%c: i32 = load.i32 flat %x + 8\n"
      "%r: i32 = call f1 (%a)\nglobal_set.i32 g0 %b\nstore.i32 flat %x, %c\nreturn ()\n}\n"
      "func f1 \"g\" (%p: i32) -> (i32) {\n%d: i32 = load.i32 flat %p\nreturn (%d)\n}\n";
  EXPECT_EQ(Marks(text), "110");
  EXPECT_EQ(Marks(text, 1), "1");
}

}  // namespace
}  // namespace hpvm::analysis
