// SPDX-License-Identifier: Apache-2.0
// Tests malicious modules, whose few bytes ask for much. Each is refused by name and position, at low cost.
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "base/limits.h"
#include "compiler/front/wasm/testing/link.h"
#include "compiler/front/wasm/testing/wabt.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::wasm {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

constexpr double kSecondsMax = 5;  // Processor time; each test takes a fraction, and some run under sanitizers.

Bytes Number(uint64_t value) {
  Bytes bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes.push_back(static_cast<uint8_t>(value | 0x80));
  }
  bytes.push_back(static_cast<uint8_t>(value));
  return bytes;
}

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Bytes Repeated(const Bytes& item, size_t count) {
  Bytes bytes;
  bytes.reserve(item.size() * count);
  for (size_t i = 0; i < count; ++i) {
    bytes.insert(bytes.end(), item.begin(), item.end());
  }
  return bytes;
}
Bytes Section(uint8_t id, const Bytes& content) { return Bytes{id} + Number(content.size()) + content; }
// Returns a section of `count` equal items.
Bytes Items(uint8_t id, size_t count, const Bytes& item) { return Section(id, Number(count) + Repeated(item, count)); }

const Bytes kHeader = {0, 'a', 's', 'm', 1, 0, 0, 0};
const Bytes kType = {0x60, 0, 0};
const Bytes kExport = Section(7, {1, 3, 'r', 'u', 'n', 0, 0});
const Bytes kEmptyBody = {2, 0, 0x0b};

Bytes OneFunction(const Bytes& body) {
  return kHeader + Section(1, Bytes{1} + kType) + Section(3, {1, 0}) + kExport +
         Section(10, Bytes{1} + Number(body.size()) + body);
}

ReadOutcome Read(const Bytes& bytes) {
  const double begin = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  ReadOutcome outcome = ReadWasm(bytes, {.entry = "run", .params = {}, .module_name = "m"});
  EXPECT_LT(static_cast<double>(std::clock()) / CLOCKS_PER_SEC - begin, kSecondsMax);
  return outcome;
}

void ExpectRefused(const Bytes& bytes, const std::string& want) {
  const ReadOutcome outcome = Read(bytes);
  ASSERT_FALSE(outcome.module);
  ASSERT_EQ(outcome.diagnostics.size(), 1u) << ToString(outcome.diagnostics);
  EXPECT_THAT(outcome.diagnostics[0].message, HasSubstr(want));
  ASSERT_TRUE(outcome.diagnostics[0].offset);
  EXPECT_LE(*outcome.diagnostics[0].offset, bytes.size());
}

// Locals cost a few bytes of module, whatever their number.
TEST(HostileTest, Locals) {
  const Bytes code = {0x0b};
  ExpectRefused(OneFunction(Bytes{1} + Number(0xffffffff) + Bytes{0x7f} + code), "local count must be < 0x10000000");
  ExpectRefused(OneFunction(Bytes{1} + Number(0xfffffff) + Bytes{0x7f} + code), "more locals (268435455)");
  ExpectRefused(OneFunction(Number(17) + Repeated(Number(0xfffffff) + Bytes{0x7b}, 17) + code), "more locals");
  ExpectRefused(OneFunction(Number(50'001) + Repeated({1, 0x7b}, 50'001) + code), "more locals (50001)");
  const ReadOutcome most = Read(OneFunction(Bytes{1} + Number(50'000) + Bytes{0x7b} + code));
  EXPECT_TRUE(most.module) << ToString(most.diagnostics);
}

Bytes Functions(size_t count) {
  return kHeader + Section(1, Bytes{1} + kType) + Items(3, count, {0}) + kExport + Items(10, count, kEmptyBody);
}

TEST(HostileTest, MillionFunctions) {
  const ReadOutcome most = Read(Functions(1'000'000));
  ASSERT_TRUE(most.module) << ToString(most.diagnostics);
  EXPECT_EQ(most.module->functions.size(), 1u);
  ExpectRefused(Functions(1'000'001), "The module has more functions than the limit (1000000).");
}

// Items of a few bytes each become large items in memory.
TEST(HostileTest, ManyItems) {
  const size_t count = 1'000'001;
  ExpectRefused(kHeader + Items(1, count, kType), "more types than the limit (1000000)");
  ExpectRefused(kHeader + Items(6, count, {0x7f, 0, 0x41, 0, 0x0b}), "more globals than the limit");
  ExpectRefused(kHeader + Items(9, count, {1, 0, 0}), "more element segments than the limit");
  ExpectRefused(kHeader + Section(5, {1, 0, 1}) + Items(11, count, {1, 0}), "more data segments than the limit");
  ExpectRefused(kHeader + Items(4, 1'001, {0x70, 0, 0}), "more tables than the limit (1000)");
  Bytes exports = Number(count);
  for (uint32_t i = 0; i < count; ++i) {
    exports = std::move(exports) + Bytes{4,
                                         static_cast<uint8_t>('0' + i % 64),
                                         static_cast<uint8_t>('0' + i / 64 % 64),
                                         static_cast<uint8_t>('0' + i / 4'096 % 64),
                                         static_cast<uint8_t>('0' + i / 262'144),
                                         0,
                                         0};
  }
  ExpectRefused(kHeader + Section(1, Bytes{1} + kType) + Section(3, {1, 0}) + Section(7, exports), "more exports than");
}

// A one-byte function may have a thousand parameters.
TEST(HostileTest, Signatures) {
  const Bytes type = Bytes{0x60} + Number(1'000) + Bytes(1'000, 0x7b) + Bytes{0};
  ExpectRefused(kHeader + Section(1, Bytes{1} + type) + Items(3, 100'000, {0}),
                "more parameters and results together than the limit (16000000)");
  const Bytes wide = Bytes{0x60} + Number(1'001) + Bytes(1'001, 0x7f) + Bytes{0};
  ExpectRefused(kHeader + Section(1, Bytes{1} + wide), "more parameters or results (1001) than the limit (1000)");
}

// Declared table sizes are not allocated; used ones are bounded.
TEST(HostileTest, Tables) {
  const auto module = [](const std::string& tables, const std::string& body) {
    return Assemble("(module " + tables + "(func (export \"run\") " + body + "))");
  };
  EXPECT_TRUE(Read(module("(table 0xffffffff externref)", "")).module);
  ExpectRefused(module("(table 0xffffffff externref)", "(drop (table.size 0))"),
                "Table 0 has more entries (4294967295) than the limit (65536).");
  std::string tables, body;
  for (int i = 0; i < 100; ++i) {
    tables += "(table 65536 funcref)";
    body += "(drop (table.size " + std::to_string(i) + "))";
  }
  ExpectRefused(module(tables, body), "tables and element segments need more bytes");
}

// Counts and sizes that exceed the module's bytes are refused.
TEST(HostileTest, FalseClaims) {
  const Bytes huge = Number(0xffffffff);
  for (const uint8_t section : {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12}) {
    SCOPED_TRACE(static_cast<int>(section));
    ExpectRefused(kHeader + Section(section, huge), "The module is not valid WebAssembly");
    ExpectRefused(kHeader + Bytes{section} + huge, "The module is not valid WebAssembly");
  }
  ExpectRefused(kHeader + Section(1, Bytes{1} + kType) + Section(3, {1, 0}) + Section(10, Bytes{1} + huge),
                "The module is not valid WebAssembly");
  ExpectRefused(kHeader + Section(9, Bytes{1, 1, 0} + huge), "The module is not valid WebAssembly");
}

constexpr char kRich[] =
    "(module (import \"hpvm\" \"instance_id\" (func $id (param i32) (result i32))) (type $i (func (result i32)))"
    " (memory 1 3) (data (i32.const 8) \"abcd\") (data $p \"efgh\") (table $t 3 5 funcref) (table $x 1 externref)"
    " (global $g (mut v128) (v128.const i32x4 1 2 3 4)) (global $f funcref (ref.func $one))"
    " (elem (i32.const 0) $one) (elem $e func $one $one) (elem declare func $one)"
    " (func $one (result i32) (i32.const 1)) (start $s)"
    " (func $s (memory.init $p (i32.const 0) (i32.const 1) (i32.const 2)) (table.set $t (i32.const 2) (global.get $f)))"
    " (func (export \"run\") (local v128 externref i32)"
    "   (block (loop (br_if 1 (local.get 2)) (local.set 2 (call $id (i32.const 0))) (br 0)))"
    "   (global.set $g (select (local.get 0) (i8x16.shuffle 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 31 (global.get $g)"
    "     (local.get 0)) (local.get 2)))"
    "   (table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1)) (elem.drop $e) (data.drop $p)"
    "   (drop (table.grow $t (ref.null func) (i32.const 1))) (table.fill $x (i32.const 0) (local.get 1) (i32.const 1))"
    "   (table.copy $t $t (i32.const 1) (i32.const 0) (i32.const 2))"
    "   (i32.store (i32.const 5) (call_indirect $t (type $i) (i32.const 1)))))";

// Links the module with imports of the types that it declares.
void LinkAny(const Bytes& bytes) {
  Diagnostics diagnostics;
  const auto outline = OutlineModule(bytes, diagnostics);
  ASSERT_NE(outline.has_value(), HasErrors(diagnostics));
  if (!outline) {
    return;
  }
  std::vector<Signature> signatures;
  Linkage linkage;
  linkage.signatures = &signatures;
  for (const ModuleImport& import : outline->imports) {
    switch (import.type.kind) {
      case ExternKind::kFunction:
        linkage.functions.push_back(1);
        break;
      case ExternKind::kTable:
        linkage.tables.push_back(kCallAreaBytes);
        linkage.table_capacities.push_back(10);
        break;
      case ExternKind::kGlobal:
        linkage.globals.push_back(kCallAreaBytes + 64);
        break;
      case ExternKind::kMemory:
        break;
    }
  }
  linkage.first_reference = 2;
  const auto linked = LinkModule(bytes, linkage, diagnostics);
  ASSERT_NE(linked.has_value(), HasErrors(diagnostics));
  if (linked) {
    const Diagnostics faults = ir::Verify(linked->module);
    ASSERT_TRUE(faults.empty()) << ToString(faults);
  }
}

void ReadAny(const Bytes& bytes) {
  const ReadOutcome outcome = ReadWasm(bytes, {.entry = "run", .params = {}, .module_name = "m"});
  ASSERT_NE(outcome.module.has_value(), HasErrors(outcome.diagnostics));
  if (outcome.module) {
    const Diagnostics faults = ir::Verify(*outcome.module);
    ASSERT_TRUE(faults.empty()) << ToString(faults);
  }
  LinkAny(bytes);
}

// Truncated and mutated bytes give one fault or a module that verifies.
TEST(HostileTest, CutAndBent) {
  const Bytes good = Assemble(kRich);
  ASSERT_TRUE(Read(good).module) << ToString(Read(good).diagnostics);
  for (size_t length = 0; length < good.size(); ++length) {
    SCOPED_TRACE(length);
    ASSERT_NO_FATAL_FAILURE(ReadAny(Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(length))));
  }
  for (size_t at = 0; at < good.size(); ++at) {
    for (const uint8_t flip : {0x01, 0x04, 0x10, 0x40, 0x80, 0xff}) {
      SCOPED_TRACE(std::to_string(at) + " " + std::to_string(flip));
      Bytes bad = good;
      bad[at] ^= flip;
      ASSERT_NO_FATAL_FAILURE(ReadAny(bad));
    }
  }
}

// The last byte of a ten-byte unsigned number has one bit; wabt's reader drops three more bits that it may contain.
TEST(HostileTest, NumbersBeyond64Bits) {
  const char want[] = "not valid WebAssembly: a number is larger than 64 bits.";
  const auto ten = [](uint8_t last) { return Repeated({0x80}, 9) + Bytes{last}; };
  const auto module = [](const Bytes& pages, const Bytes& code) {
    const Bytes body = Bytes{0} + code + Bytes{0x0b};
    return kHeader + Section(1, Bytes{1} + kType) + Section(3, {1, 0}) + Section(5, Bytes{1} + pages) + kExport +
           Section(10, Bytes{1} + Number(body.size()) + body);
  };
  const Bytes one = {4, 1};  // A 64-bit memory of one page.
  const Bytes address = {0x42, 0}, vector = Bytes{0xfd, 0x0c} + Repeated({0}, 16);
  const auto load = [&](const Bytes& offset) { return module(one, address + Bytes{0x28, 2} + offset + Bytes{0x1a}); };
  EXPECT_TRUE(Read(load(ten(0))).module);
  EXPECT_TRUE(Read(load(ten(1))).module) << ToString(Read(load(ten(1))).diagnostics);
  for (const uint8_t last : {2, 3, 8, 15}) {
    ExpectRefused(load(ten(last)), want);
    ExpectRefused(module(one, address + vector + Bytes{0xfd, 0x54, 0} + ten(last) + Bytes{3, 0x1a}), want);
    ExpectRefused(module(one, address + vector + Bytes{0xfd, 0x57, 3} + ten(last) + Bytes{1, 0x1a}), want);
    ExpectRefused(module(Bytes{4} + ten(last), {}), want);
    ExpectRefused(module(Bytes{5} + ten(last) + Bytes{1}, {}), want);
    ExpectRefused(module(Bytes{5, 1} + ten(last), {}), want);
  }
  EXPECT_FALSE(Read(load(ten(16))).module);  // wabt's reader refuses these itself.
  EXPECT_TRUE(Read(module(Bytes{5} + ten(0) + Bytes{1}, {})).module);
}

// Unsupported features are refused by name and position.
TEST(HostileTest, OtherProposals) {
  const auto body = [](const Bytes& code) { return OneFunction(Bytes{0} + code + Bytes{0x0b}); };
  ExpectRefused(body({0x12, 0}), "\"return_call\" is refused: tail calls are not supported");
  ExpectRefused(body({0x06, 0x40, 0x0b}), "\"try\" is refused: exceptions are not supported.");
  ExpectRefused(body({0x14, 0}), "call_ref");
  ExpectRefused(body({0xfd, 0x80, 0x02}), "relaxed");
  ExpectRefused(body({0xfb, 0x00, 0x00}), "0xfb");
  ExpectRefused(kHeader + Section(1, {1, 0x5f, 0}), "not valid WebAssembly");
  ExpectRefused(kHeader + Section(5, {2, 0, 1, 0, 1}), "memory");
  ExpectRefused(kHeader + Section(13, {0}), "tag section: exceptions are not supported");
}

// A name does not turn a global of another type into the stack pointer.
TEST(HostileTest, StackPointersByNameOnly) {
  const std::string name = "__stack_pointer";
  Bytes bytes = {0, 'a',  's', 'm', 1, 0,    0,    0,    1,  4, 1,   0x60, 0,    0,   3, 2,  1, 0,   5,   3,   1,
                 0, 1,    6,   9,   1, 0x7d, 1,    0x43, 0,  0, 0,   0,    0x0b, 7,   7, 1,  3, 'r', 'u', 'n', 0,
                 0, 0x0a, 4,   1,   2, 0,    0x0b, 0,    25, 4, 'n', 'a',  'm',  'e', 7, 18, 1, 0,   15};
  bytes.insert(bytes.end(), name.begin(), name.end());
  const ReadOutcome outcome = ReadWasm(bytes, {.entry = "run", .params = {}, .module_name = "m"});
  ASSERT_TRUE(outcome.module.has_value()) << ToString(outcome.diagnostics);
  EXPECT_TRUE(ir::Verify(*outcome.module).empty());
  EXPECT_FALSE(outcome.module->stack_pointer.has_value());
}

}  // namespace
}  // namespace hpvm::wasm
