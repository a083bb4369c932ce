// SPDX-License-Identifier: Apache-2.0
// Tests the state after start functions, start functions that are refused, and kernels' tables, references and
// segments.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "base/limits.h"
#include "compiler/front/wasm/testing/wabt.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::wasm {
namespace {

using testing::HasSubstr;

const WasmOptions kOptions{.entry = "run", .params = {{.name = "out"}}, .module_name = "m"};

// "run" writes i32 values to the buffer whose address it takes; two instances run one after the other.
void ExpectOut(const std::string& wat, const std::vector<uint32_t>& want) {
  const ReadOutcome outcome = ReadWasm(Assemble(wat), kOptions);
  ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
  const Diagnostics faults = ir::Verify(*outcome.module);
  ASSERT_TRUE(faults.empty()) << ToString(faults) << ir::Print(*outcome.module);
  for (int i = 0; i < 2; ++i) {
    std::vector<uint32_t> out(want.size());
    ir::Launch launch;
    launch.extent = {2, 1, 1};
    launch.arguments = {{reinterpret_cast<uint8_t*>(out.data()), out.size() * 4, 0}};
    const auto report = ir::Interpret(*outcome.module, launch);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->code, ir::TrapCode::kNone) << ir::ToString(*report, *outcome.module);
    EXPECT_EQ(out, want) << ir::Print(*outcome.module);
  }
}

ir::TrapCode Trap(const std::string& wat) {
  const ReadOutcome outcome = ReadWasm(Assemble(wat), kOptions);
  EXPECT_TRUE(outcome.module) << ToString(outcome.diagnostics);
  alignas(8) std::array<uint8_t, 64> out{};
  ir::Launch launch;
  launch.arguments = {{out.data(), out.size(), 0}};
  const auto report = ir::Interpret(*outcome.module, launch);
  EXPECT_TRUE(report.ok()) << report.status();
  EXPECT_NE(report->source, 0u);
  return report->code;
}

std::string Store(int at, const std::string& value) {
  return "(i32.store offset=" + std::to_string(4 * at) + " (local.get 0) " + value + ")";
}

// Every instance sees memory, its size, globals, tables and segments as the start function left them.
TEST(StartTest, LeavesItsStateToTheKernel) {
  ExpectOut(
      "(module (type $i (func (result i32))) (memory 1 4) (data $p \"abcd\") (data (i32.const 8) \"\\07\")"
      " (global $g (mut i64) (i64.const 1)) (global $v (mut v128) (v128.const i32x4 1 2 3 4)) (table $t 2 funcref)"
      " (elem $e func $five $six) (elem declare func $six)"
      " (func $five (result i32) (i32.const 5)) (func $six (result i32) (i32.const 6))"
      " (func $unused (result i32) (i32.const 7))"
      " (func $start (local i32)"
      "   (drop (memory.grow (i32.const 1)))"
      "   (memory.init $p (i32.const 70000) (i32.const 1) (i32.const 2)) (data.drop $p)"
      "   (loop $l (i32.store8 offset=100 (local.get 0) (local.get 0))"
      "     (br_if $l (i32.lt_u (local.tee 0 (i32.add (local.get 0) (i32.const 1))) (i32.const 200))))"
      "   (global.set $g (i64.add (global.get $g) (i64.const 41)))"
      "   (global.set $v (i32x4.add (global.get $v) (global.get $v)))"
      "   (table.init $t $e (i32.const 0) (i32.const 1) (i32.const 1))"
      "   (table.set $t (i32.const 1) (ref.func $six)) (elem.drop $e))"
      " (start $start)"
      " (func (export \"run\") (param i32)" +
          Store(0, "(i32.load8_u (i32.const 8))") + Store(1, "(i32.load8_u (i32.const 70001))") +
          Store(2, "(i32.load8_u (i32.const 299))") + Store(3, "(memory.size)") +
          Store(4, "(i32.wrap_i64 (global.get $g))") + Store(5, "(i32x4.extract_lane 3 (global.get $v))") +
          Store(6, "(call_indirect (type $i) (i32.const 0))") + Store(7, "(table.size $t)") +
          Store(8, "(memory.grow (i32.const 9))") +
          "(global.set $g (i64.const 0)) (table.set $t (i32.const 0) (ref.func $six)) (i32.store8 (i32.const 8)"
          " (i32.const 99))))",
      {7, 'c', 199, 2, 42, 8, 6, 2, 0xffffffff});
}

// When only the start function calls through the table, the kernel has no state.
TEST(StartTest, KernelsCarryOnlyWhatTheyUse) {
  const ReadOutcome outcome =
      ReadWasm(Assemble("(module (memory 1) (table 1 funcref) (elem (i32.const 0) $f) (func $f (i32.store (i32.const 0)"
                        " (i32.const 1))) (func $s (call_indirect (i32.const 0))) (start $s)"
                        " (func (export \"run\") (param i32)))"),
               kOptions);
  ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
  EXPECT_EQ(outcome.module->functions.size(), 1u);
  EXPECT_EQ(outcome.module->state_bytes, 0u);
  ASSERT_EQ(outcome.module->data.size(), 1u);
  EXPECT_EQ(outcome.module->data[0].bytes.size(), 1u);
  EXPECT_EQ(outcome.module->memory_bytes_max, 65536u);
}

// Start functions that need a launch, do not end, or trap are refused with their position.
TEST(StartTest, RefusesByName) {
  struct Case {
    const char* name;
    const char* imports;
    const char* body;
    const char* want;
  };
  const Case kCases[] = {
      {"Query", "(import \"hpvm\" \"instance_id\" (func $i (param i32) (result i32)))",
       "(drop (call $i (i32.const 0)))", "it calls \"hpvm.instance_id\", which works only while instances run."},
      {"Barrier", "(import \"hpvm\" \"barrier\" (func $b))", "(call $b)", "it calls \"hpvm.barrier\""},
      {"GroupMemory", "(import \"hpvm\" \"local_alloc\" (func $a (param i32) (result i32)))",
       "(drop (call $a (i32.const 16)))", "it calls \"hpvm.local_alloc\""},
      {"Print", "(import \"hpvm\" \"print\" (func $p (param i32 i32)))", "(call $p (i32.const 0) (i32.const 0))",
       "it calls \"hpvm.print\""},
      {"Assert", "(import \"hpvm\" \"assert\" (func $a (param i32)))", "(call $a (i32.const 0))",
       "The start function \"begin\" traps: failed assertion in function \"begin\"."},
      {"Loop", "", "(loop $l (br $l))",
       "The start function \"begin\" does not end within 20000000 calls and iterations"},
      {"Recursion", "", "(call $begin)", "traps: call stack exhausted in function \"begin\"."},
      {"Growth", "", "(loop $l (drop (memory.grow (i32.const 1))) (br $l))", "does not end within"},
      {"Fill", "",
       "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))"
       " (memory.fill (i32.const 0) (i32.const 1) (i32.mul (memory.size) (i32.const 65536)))",
       "leaves more bytes in memory than the limit"},
      {"Trap", "", "(drop (i32.load (i32.const 0x7fffffff)))", "traps: out of bounds memory access in function"},
      {"Unreachable", "", "unreachable", "traps: unreachable code reached"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const std::vector<uint8_t> bytes = Assemble("(module " + std::string(c.imports) + "(memory 1 1500) (func $begin " +
                                                c.body + ") (start $begin) (func (export \"run\") (param i32)))");
    const ReadOutcome outcome = ReadWasm(bytes, kOptions);
    ASSERT_FALSE(outcome.module);
    ASSERT_EQ(outcome.diagnostics.size(), 1u) << ToString(outcome.diagnostics);
    EXPECT_THAT(outcome.diagnostics[0].message, HasSubstr(c.want));
    EXPECT_TRUE(outcome.diagnostics[0].offset);
    EXPECT_EQ(outcome.diagnostics[0].place, "module \"m\"");
  }
}

// A barrier that the start function could reach but does not reach is no fault.
TEST(StartTest, RefusesOnlyWhatItDoes) {
  ExpectOut(
      "(module (import \"hpvm\" \"instance_id\" (func $i (param i32) (result i32))) (memory 1)"
      " (table funcref (elem $id $nine))"
      " (type $t (func (param i32) (result i32))) (func $id (param i32) (result i32) (call $i (local.get 0)))"
      " (func $nine (param i32) (result i32) (i32.const 9))"
      " (func $s (i32.store (i32.const 0) (call_indirect (type $t) (i32.const 0) (i32.const 1)))) (start $s)"
      " (func (export \"run\") (param i32)" +
          Store(0, "(i32.load (i32.const 0))") + " (drop (call_indirect (type $t) (i32.const 0) (i32.const 0)))))",
      {9});
}

// References, typed select, block results and calls work in kernels.
TEST(KernelTest, ReferencesAndVectors) {
  ExpectOut(
      "(module (type $i (func (result i32))) (memory 1) (table $t 3 10 funcref) (table $x 1 externref)"
      " (global $f funcref (ref.func $one)) (global $n (mut externref) (ref.null extern))"
      " (elem (table $t) (i32.const 0) funcref (ref.func $two) (ref.null func))"
      " (func $one (result i32) (i32.const 1)) (func $two (result i32) (i32.const 2))"
      " (func $pick (param i32) (result funcref)"
      "   (select (result funcref) (global.get $f) (table.get $t (i32.const 0)) (local.get 0)))"
      " (func $swap (param v128 i32 v128) (result v128 i32 v128) (local.get 2) (local.get 1) (local.get 0))"
      " (func $sum (param v128) (result i32) (i32.add (i32x4.extract_lane 0 (local.get 0))"
      "   (i32x4.extract_lane 3 (local.get 0))))"
      " (func (export \"run\") (param i32) (local v128 i32 v128)"
      "   (table.set $t (i32.const 2) (call $pick (i32.const 1)))"
      "   (table.set $t (i32.const 1) (call $pick (i32.const 0)))" +
          Store(0, "(call_indirect $t (type $i) (i32.const 2))") +
          Store(1, "(call_indirect $t (type $i) (i32.const 1))") +
          Store(2, "(ref.is_null (table.get $x (i32.const 0)))") +
          Store(3, "(table.grow $t (ref.func $two) (i32.const 7))") +
          Store(4, "(call_indirect $t (type $i) (i32.const 9))") +
          Store(5, "(table.grow $t (ref.null func) (i32.const 1))") +
          "(call $swap (v128.const i32x4 1 2 3 4) (i32.const 50) (v128.const i32x4 5 6 7 8))"
          "(local.set 1) (local.set 2) (local.set 3)" +
          Store(6, "(call $sum (local.get 1))") + Store(7, "(local.get 2)") + Store(8, "(call $sum (local.get 3))") +
          Store(9,
                "(call $sum (block (result v128) (drop (v128.const i32x4 0 0 0 0))"
                "  (select (local.get 1) (local.tee 3 (local.get 3)) (i32.const 0))))") +
          Store(10, "(ref.is_null (global.get $n))") +
          Store(11,
                "(call $sum (if (result v128) (local.get 2) (then (local.set 1 (local.get 3)) (local.get 1))"
                "  (else (local.get 3))))") +
          Store(12, "(call $sum (local.get 1))") + "))",
      {1, 2, 1, 3, 2, 0xffffffff, 5, 50, 13, 13, 1, 13, 13});
}

// Calls through references trap with the right codes and positions.
TEST(KernelTest, IndirectCallsTrap) {
  const std::string head =
      "(module (type $i (func (result i32))) (type $l (func (result i64))) (memory 1) (table $t 2 funcref)"
      " (elem (i32.const 1) $one) (func $one (result i32) (i32.const 1)) (func (export \"run\") (param i32) (drop ";
  EXPECT_EQ(Trap(head + "(call_indirect (type $i) (i32.const 2)))))"), ir::TrapCode::kUndefinedElement);
  EXPECT_EQ(Trap(head + "(call_indirect (type $i) (i32.const 0)))))"), ir::TrapCode::kUninitializedElement);
  EXPECT_EQ(Trap(head + "(call_indirect (type $l) (i32.const 1)))))"), ir::TrapCode::kIndirectCall);
  EXPECT_EQ(Trap(head + "(table.get $t (i32.const 2)))))"), ir::TrapCode::kTableOutOfBounds);
}

// Types that look alike in the kernel IR stay different.
TEST(KernelTest, SignaturesKeepTheirIdentity) {
  const std::string head =
      "(module (type $i (func (param i32))) (type $f (func (param funcref))) (type $v (func (param v128)))"
      " (type $same (func (param i32))) (type $i4 (func (param i32 i32 i32 i32)))"
      " (memory 1) (table funcref (elem $take $vector)) (func $take (type $i)) (func $vector (type $v))"
      " (func (export \"run\") (param i32) ";
  EXPECT_EQ(Trap(head + "(call_indirect (type $f) (ref.null func) (i32.const 0))))"), ir::TrapCode::kIndirectCall);
  EXPECT_EQ(Trap(head + "(call_indirect (type $i4) (i32.const 1) (i32.const 1) (i32.const 1) (i32.const 1)"
                        " (i32.const 1))))"),
            ir::TrapCode::kIndirectCall);
  ExpectOut(head + "(call_indirect (type $same) (i32.const 7) (i32.const 0))" + Store(0, "(i32.const 3)") + "))", {3});
}

// Returns the module with its only table turned into one with 64-bit indices, which the assembler does not support.
std::vector<uint8_t> WithTable64(const std::string& wat) {
  std::vector<uint8_t> bytes = Assemble(wat);
  const std::array<uint8_t, 5> section = {4, 4, 1, 0x70, 0};  // A table of funcref without a maximum.
  const auto at = std::search(bytes.begin(), bytes.end(), section.begin(), section.end());
  EXPECT_NE(at, bytes.end());
  at[4] |= 4;
  return bytes;
}

// Calls through 64-bit tables check the whole index; no other use of such tables is supported.
TEST(KernelTest, Table64) {
  const auto module = [](const std::string& body) {
    return WithTable64(
        "(module (type $i (func (result i32))) (memory i64 1) (table $t 2 funcref)"
        " (elem (offset (i64.const 1)) $one) (func $one (result i32) (i32.const 1))"
        " (func (export \"run\") (param i64) (i32.store (local.get 0) " +
        body + ")))");
  };
  const auto run = [](const std::vector<uint8_t>& bytes, uint32_t* result) {
    const ReadOutcome outcome = ReadWasm(bytes, kOptions);
    EXPECT_TRUE(outcome.module) << ToString(outcome.diagnostics);
    alignas(8) std::array<uint32_t, 2> out{};
    ir::Launch launch;
    launch.arguments = {{reinterpret_cast<uint8_t*>(out.data()), sizeof(out), 0}};
    const auto report = ir::Interpret(*outcome.module, launch);
    EXPECT_TRUE(report.ok()) << report.status();
    *result = out[0];
    return report->code;
  };
  uint32_t result = 0;
  EXPECT_EQ(run(module("(call_indirect (type $i) (i64.const 1))"), &result), ir::TrapCode::kNone);
  EXPECT_EQ(result, 1u);
  EXPECT_EQ(run(module("(call_indirect (type $i) (i64.const 0))"), &result), ir::TrapCode::kUninitializedElement);
  EXPECT_EQ(run(module("(call_indirect (type $i) (i64.const 0x100000001))"), &result), ir::TrapCode::kUndefinedElement);
  for (const auto& [body, want] : {std::pair{"(call_indirect (type $i) (i32.const 1))", "not valid WebAssembly"},
                                   std::pair{"(table.size $t)", "\"table.size\" is refused: table 0 has 64-bit"}}) {
    const ReadOutcome outcome = ReadWasm(module(body), kOptions);
    ASSERT_FALSE(outcome.module);
    EXPECT_THAT(outcome.diagnostics[0].message, HasSubstr(want));
  }
}

// Bulk operations accept 64-bit addresses.
TEST(KernelTest, Memory64Bulk) {
  const std::vector<uint8_t> bytes = Assemble(
      "(module (memory i64 1) (data $p \"abcdef\") (func (export \"run\") (param i64)"
      " (memory.init $p (i64.const 100) (i32.const 2) (i32.const 4))"
      " (memory.copy (local.get 0) (i64.const 100) (i64.const 3))"
      " (memory.fill (i64.add (local.get 0) (i64.const 4)) (i32.const 7) (i64.const 2))))");
  const ReadOutcome outcome = ReadWasm(bytes, kOptions);
  ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
  alignas(8) std::array<uint8_t, 8> out{};
  ir::Launch launch;
  launch.arguments = {{out.data(), out.size(), 0}};
  const auto report = ir::Interpret(*outcome.module, launch);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->code, ir::TrapCode::kNone);
  EXPECT_EQ(out, (std::array<uint8_t, 8>{'c', 'd', 'e', 0, 7, 7, 0, 0}));
}

// The entry accepts only numbers.
TEST(KernelTest, EntryTypes) {
  const WasmOptions options{
      .entry = "run", .params = {{.name = "s", .is_buffer = false, .scalar = ir::Type::kI32}}, .module_name = "m"};
  const ReadOutcome outcome = ReadWasm(Assemble("(module (func (export \"run\") (param externref)))"), options);
  ASSERT_FALSE(outcome.module);
  EXPECT_THAT(outcome.diagnostics[0].message, HasSubstr("of the type externref where i32 is wanted"));
}

}  // namespace
}  // namespace hpvm::wasm
