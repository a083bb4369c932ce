// SPDX-License-Identifier: Apache-2.0
// Tests refusals and their messages, and the lowering of memory, data, tables, imports and conventions.
#include "compiler/front/wasm/wasm_front.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "base/limits.h"
#include "compiler/front/wasm/lower/memory.h"
#include "compiler/front/wasm/testing/wabt.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::wasm {
namespace {

using testing::HasSubstr;

WasmOptions Options(std::vector<ParamSpec> params = {}, Abi abi = Abi::kHpvm) {
  return {.entry = "run", .params = std::move(params), .abi = abi, .module_name = "m"};
}

// Returns the only fault of a refused module.
Diagnostic Fault(const std::vector<uint8_t>& bytes, const WasmOptions& options = Options()) {
  const ReadOutcome outcome = ReadWasm(bytes, options);
  EXPECT_FALSE(outcome.module);
  EXPECT_EQ(outcome.diagnostics.size(), 1u) << ToString(outcome.diagnostics);
  return outcome.diagnostics.empty() ? Diagnostic() : outcome.diagnostics[0];
}

ir::Module Read(const std::string& wat, const WasmOptions& options = Options()) {
  ReadOutcome outcome = ReadWasm(Assemble(wat), options);
  EXPECT_TRUE(outcome.module) << ToString(outcome.diagnostics);
  ir::Module module = outcome.module ? std::move(*outcome.module) : ir::Module();
  const Diagnostics faults = ir::Verify(module);
  EXPECT_TRUE(faults.empty()) << ToString(faults) << "\n" << ir::Print(module);
  return module;
}

struct Refused {
  const char* name;
  const char* wat;
  const char* want;
};
constexpr Refused kRefused[] = {
    {"NoEntry", "(module (func (export \"ran\")))",
     "The module exports no function named \"run\". It exports \"ran\"."},
    {"NoExports", "(module (func))",
     "It exports no function; link with -Wl,--export-dynamic or mark the kernel HPVM_KERNEL."},
    {"EntryIsMemory", "(module (memory (export \"run\") 1))", "The entry \"run\" is exported but is not a function."},
    {"EntryIsImport", "(module (import \"hpvm\" \"barrier\" (func $b)) (export \"run\" (func $b)))",
     "The entry \"run\" is exported but is an imported function."},
    {"UnknownImport",
     "(module (import \"hpvm\" \"instanceid\" (func (param i32) (result i32))) (func (export \"run\")))",
     "The import \"hpvm.instanceid\" does not exist. Near names are instance_id."},
    {"PrefixedImport", "(module (import \"hpvm\" \"hpvm_barier\" (func)) (func (export \"run\")))",
     "Near names are barrier."},
    {"FarImport", "(module (import \"hpvm\" \"print_the_number\" (func)) (func (export \"run\")))",
     "The functions of \"hpvm\" are those of client/kernel/hpvm.h."},
    {"OtherModule", "(module (import \"env\" \"sinf\" (func (param f32) (result f32))) (func (export \"run\")))",
     "The import \"env.sinf\" does not exist. It is an undefined symbol of the kernel's sources"},
    {"Wasi", "(module (import \"wasi_snapshot_preview1\" \"fd_write\" (func)) (func (export \"run\")))",
     "A kernel has no operating system"},
    {"ImportSignature", "(module (import \"hpvm\" \"barrier\" (func (param i32))) (func (export \"run\")))",
     "The import \"hpvm.barrier\" is declared as (i32) -> (); its type is () -> ()."},
    {"ImportAddress",
     "(module (import \"hpvm\" \"local_alloc\" (func (param i64) (result i64))) (func (export \"run\")))",
     "is declared as (i64) -> (i64); its type is (i32) -> (i32)."},
    {"ImportedMemory", "(module (import \"env\" \"memory\" (memory 1)) (func (export \"run\")))",
     "The memory import \"env.memory\" is refused: a kernel imports functions of \"hpvm\" only. Let the module declare "
     "its own"},
    {"ImportedTable", "(module (import \"env\" \"t\" (table 1 funcref)) (func (export \"run\")))",
     "The table import \"env.t\" is refused"},
    {"ImportedGlobal", "(module (import \"env\" \"g\" (global i32)) (func (export \"run\")))",
     "The global import \"env.g\" is refused"},
    {"ImportedTag", "(module (import \"env\" \"e\" (tag)) (func (export \"run\")))",
     "The tag import \"env.e\" is refused"},
    {"Tag", "(module (tag) (func (export \"run\")))", "exceptions are not supported"},
    {"LargeTable", "(module (table 65537 funcref) (func (export \"run\") (drop (table.size 0))))",
     "Table 0 has more entries (65537) than the limit (65536)"},
    {"Try", "(module (func (export \"run\") (try (do) (catch_all))))",
     "\"try\" is refused: exceptions are not supported."},
    {"TailCall", "(module (func (export \"run\") (return_call 0)))",
     "\"return_call\" is refused: tail calls are not supported"},
    {"LargeMemory", "(module (memory 16385) (func (export \"run\")))",
     "The module's memory (16385 pages of 64 KiB) is larger than the limit (16384 pages)."},
    {"DataOutside", "(module (memory 1) (data (i32.const 65535) \"ab\") (func (export \"run\")))",
     "A data segment at address 65535 (2 bytes) does not fit the module's memory (65536 bytes)."},
    {"DataFarOutside", "(module (memory 1) (data (i32.const -1) \"\") (func (export \"run\")))",
     "A data segment at address 4294967295"},
    {"ElemOutside", "(module (table 1 funcref) (elem (i32.const 1) $f) (func $f (export \"run\")))",
     "An element segment at entry 1 (1 functions) does not fit the table (1 entries)."},
    {"Types", "(module (func (export \"run\") (drop (i32.add (i32.const 1) (i64.const 2)))))",
     "The module is not valid WebAssembly: type mismatch in i32.add, expected [i32, i32] but got [i32, i64]."},
    {"TwoMemories", "(module (memory 1) (memory 1) (func (export \"run\")))", "only one memory block allowed"},
    {"Returns", "(module (func (export \"run\") (result i32) (i32.const 1)))",
     "returns a value; a kernel returns nothing."},
    {"Locals", "(module (func (export \"run\") (local i32)) (func (call 9)))", "function variable out of range"},
};

// Every refusal is one full sentence with the module's name.
TEST(WasmFrontTest, RefusesByName) {
  for (const Refused& c : kRefused) {
    SCOPED_TRACE(c.name);
    const Diagnostic fault = Fault(Assemble(c.wat));
    EXPECT_EQ(fault.place, "module \"m\"");
    EXPECT_THAT(fault.message, HasSubstr(c.want));
    EXPECT_TRUE(fault.message.ends_with('.')) << fault.message;
  }
}

// The offset is that of the instruction's first byte.
TEST(WasmFrontTest, OffsetsPointAtInstructions) {
  const std::vector<uint8_t> bytes = Assemble("(module (func (export \"run\") (nop) (return_call 0)))");
  const Diagnostic fault = Fault(bytes);
  ASSERT_TRUE(fault.offset);
  ASSERT_LT(*fault.offset + 1, bytes.size());
  EXPECT_EQ(bytes[*fault.offset], 0x12);
  EXPECT_EQ(bytes[*fault.offset + 1], 0);
}

// Operations that trap have the offset of their instruction, also after prefixed ones.
TEST(WasmFrontTest, TrapsKnowTheirInstruction) {
  const std::string wat =
      "(module (memory 1) (func (export \"run\") (param i32) (memory.fill (local.get 0) (i32.const 0) (i32.const 4))"
      " (drop (i32.load8_u (i32.const 70000)))))";
  const std::vector<uint8_t> bytes = Assemble(wat);
  const ir::Module module = Read(wat, Options({{.name = "a"}}));
  int checked = 0;
  for (const ir::Op& op : module.functions[0].ops) {
    if (op.code == ir::Opcode::kMemoryFill || op.code == ir::Opcode::kLoad) {
      EXPECT_EQ(bytes[op.source], op.code == ir::Opcode::kLoad ? 0x2d : 0xfc);
      ++checked;
    }
  }
  EXPECT_EQ(checked, 2);
}

// The message contains both signatures.
TEST(WasmFrontTest, SaysHowTheSignatureDiffers) {
  const std::string wat = "(module (memory 1) (func (export \"run\") (param i32 f32)))";
  const std::vector<uint8_t> bytes = Assemble(wat);
  const ParamSpec buffer{.name = "a"};
  const ParamSpec scalar{.name = "s", .is_buffer = false, .scalar = ir::Type::kF64};
  EXPECT_EQ(
      Fault(bytes, Options({buffer})).message,
      "The entry \"run\" takes 2 parameters where 1 are wanted. The module declares (i32, f32) -> (); the graph passes "
      "buffer \"a\", which asks for (i32) -> ().");
  EXPECT_EQ(Fault(bytes, Options({buffer, scalar})).message,
            "The entry \"run\" has parameter 1 of the type f32 where f64 is wanted. The module declares (i32, f32) -> "
            "(); the "
            "graph passes buffer \"a\", f64 \"s\", which asks for (i32, f64) -> ().");
  EXPECT_THAT(Fault(bytes, Options({buffer}, Abi::kHpvmWeb)).message,
              HasSubstr("takes 2 parameters where 8 are wanted."));
  EXPECT_THAT(Fault(bytes, Options({buffer}, Abi::kHpvmWeb)).message, HasSubstr("in the HPVM-web convention."));
}

// Truncated and mutated bytes give one fault or a module that verifies.
TEST(WasmFrontTest, MalformedBytesAreFaults) {
  const std::vector<uint8_t> good = Assemble(
      "(module (import \"hpvm\" \"instance_id\" (func $id (param i32) (result i32))) (memory 1) (data (i32.const 8) "
      "\"abcd\")"
      "(table 2 funcref) (elem (i32.const 0) $f) (func $f (export \"run\") (local i32) (block (loop (br_if 1 "
      "(local.get 0))"
      "(local.set 0 (call $id (i32.const 0))) (br 0))) (i32.store (local.get 0) (i32.const 5))))");
  ASSERT_TRUE(ReadWasm(good, Options()).module);
  for (size_t length = 0; length < good.size(); ++length) {
    const ReadOutcome outcome = ReadWasm(std::span(good).first(length), Options());
    EXPECT_NE(outcome.module.has_value(), HasErrors(outcome.diagnostics)) << length;
  }
  EXPECT_THAT(Fault({}).message, HasSubstr("not valid WebAssembly"));
  for (size_t at = 0; at < good.size(); ++at) {
    for (uint8_t flip : {0x01, 0x20, 0x80, 0xff}) {
      std::vector<uint8_t> bad = good;
      bad[at] ^= flip;
      const ReadOutcome outcome = ReadWasm(bad, Options());
      ASSERT_NE(outcome.module.has_value(), HasErrors(outcome.diagnostics)) << at;
      ASSERT_TRUE(!outcome.module || ir::Verify(*outcome.module).empty()) << at;
    }
  }
}

// An extra end closes the function; the code after it must not count as its body.
TEST(WasmFrontTest, RefusesCodeBehindTheEnd) {
  std::vector<uint8_t> bytes = {0, 'a', 's', 'm', 1,   0,   0,   0, 1, 4,  1, 0x60, 0, 0, 3,    2,    1,   0,
                                7, 7,   1,   3,   'r', 'u', 'n', 0, 0, 10, 6, 1,    4, 0, 0x0b, 0x01, 0x0b};
  EXPECT_THAT(Fault(bytes).message, HasSubstr("an instruction follows the function's end"));
}

// When an end is missing, the body's last byte closes a block instead of the function.
TEST(WasmFrontTest, RefusesBlocksLeftOpen) {
  std::vector<uint8_t> bytes = {0, 'a', 's', 'm', 1,   0,   0,   0, 1, 4,  1, 0x60, 0, 0, 3,    2,    1,    0,
                                7, 7,   1,   3,   'r', 'u', 'n', 0, 0, 10, 7, 1,    5, 0, 0x02, 0x40, 0x01, 0x0b};
  EXPECT_THAT(Fault(bytes).message, HasSubstr("a function's body ends inside a block"));
}

std::vector<uint8_t> Nested(uint32_t depth) {
  std::vector<uint8_t> body = {0};
  for (uint32_t i = 0; i < depth; ++i) {
    body.insert(body.end(), {0x02, 0x40});
  }
  body.insert(body.end(), depth + 1, 0x0b);
  std::vector<uint8_t> bytes = {0, 'a', 's', 'm', 1, 0, 0, 0, 1,   4,   1,   0x60, 0, 0,
                                3, 2,   1,   0,   7, 7, 1, 3, 'r', 'u', 'n', 0,    0, 10};
  const auto leb = [&](uint32_t value) {  // Padded to five bytes.
    for (int i = 0; i < 5; ++i, value >>= 7) {
      bytes.push_back(static_cast<uint8_t>((value & 0x7f) | (i < 4 ? 0x80 : 0)));
    }
  };
  leb(static_cast<uint32_t>(body.size()) + 6);
  bytes.push_back(1);
  leb(static_cast<uint32_t>(body.size()));
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

// Nesting costs no stack, and the limit is exact.
TEST(WasmFrontTest, BoundsNesting) {
  const ReadOutcome deepest = ReadWasm(Nested(limits::kWasmNestingMax - 1), Options());
  ASSERT_TRUE(deepest.module) << ToString(deepest.diagnostics);
  EXPECT_TRUE(ir::Verify(*deepest.module).empty());
  EXPECT_EQ(Fault(Nested(limits::kWasmNestingMax)).message, "Blocks nest deeper than the limit (1000).");
  EXPECT_EQ(Fault(Nested(1'000'000)).message, "Blocks nest deeper than the limit (1000).");
}

// A few bytes can declare many locals.
TEST(WasmFrontTest, BoundsLocals) {
  std::string wat = "(module (func (export \"run\")";
  for (int i = 0; i < 50'001; ++i) {
    wat += "(local i32)";
  }
  EXPECT_EQ(Fault(Assemble(wat + "))")).message, "The function has more locals (50001) than the limit (50000).");
}

// The IR's size is the number of locals times blocks; it is bounded although the module is small.
TEST(WasmFrontTest, BoundsValues) {
  std::string wat = "(module (func (export \"run\")";
  constexpr int kLocals = 40'000, kDepth = 990;
  for (int i = 0; i < kLocals; ++i) {
    wat += "(local i32)";
  }
  for (int i = 0; i < kDepth; ++i) {
    wat += "(block ";
  }
  for (int i = 0; i < kLocals; ++i) {
    wat += "(local.set " + std::to_string(i) + " (i32.const 1))";
  }
  wat += std::string(kDepth, ')') + "))";
  EXPECT_THAT(Fault(Assemble(wat)).message, HasSubstr("needs more values in the kernel IR than the limit"));
}

// memory.grow determines the maximum size of the memory.
TEST(WasmFrontTest, MemoryMaximum) {
  struct Case {
    const char* memory;
    bool grows;
    uint64_t want_pages;
  };
  for (const Case& c : {Case{"2", false, 2}, Case{"2 100", false, 2}, Case{"2 100", true, 100}, Case{"2", true, 258},
                        Case{"2 65536", true, 16384}, Case{"16384", true, 16384}}) {
    SCOPED_TRACE(c.memory);
    const std::string body = c.grows ? "(drop (memory.grow (i32.const 1)))" : "";
    const ir::Module module =
        Read(std::string("(module (memory ") + c.memory + ") (func (export \"run\") " + body + "))");
    EXPECT_EQ(module.memory_bytes_max, c.want_pages * 65536);
    EXPECT_EQ(module.memory_bytes % 65536, 0u);
  }
}

// Later segments win; the merged segments are sorted and do not touch.
TEST(WasmFrontTest, MergesSegments) {
  const std::vector<std::vector<uint8_t>> bytes = {{1, 1, 1, 1, 1, 1}, {2, 2}, {3, 3, 3}, {}, {5}, {6, 6}};
  const std::vector<uint64_t> offsets = {10, 12, 14, 0, 30, 8};
  std::vector<DataSegment> segments;
  std::vector<int> memory(40, -1);
  for (size_t i = 0; i < bytes.size(); ++i) {
    DataSegment& segment = segments.emplace_back();
    segment.offset.low = offsets[i];
    segment.bytes = bytes[i];
    std::copy(bytes[i].begin(), bytes[i].end(), memory.begin() + static_cast<ptrdiff_t>(offsets[i]));
  }
  const std::vector<ir::DataSegment> merged = MergeSegments(segments);
  std::vector<int> found(40, -1);
  for (const ir::DataSegment& segment : merged) {
    std::copy(segment.bytes.begin(), segment.bytes.end(), found.begin() + static_cast<ptrdiff_t>(segment.address));
  }
  EXPECT_EQ(found, memory);
  ASSERT_EQ(merged.size(), 2u);
  EXPECT_EQ(merged[0].address, 8u);
  EXPECT_EQ(merged[0].bytes.size(), 9u);
}

// Only functions that the entry reaches are lowered, and a table counts only when reachable code calls through it.
TEST(WasmFrontTest, DropsWhatIsNotReached) {
  const ir::Module direct = Read(
      "(module (table 1 funcref) (elem (i32.const 0) $b) (func $a) (func $b) (func $c (call $a))"
      " (func (export \"run\") (call $c)))");
  EXPECT_EQ(direct.functions.size(), 3u);
  EXPECT_TRUE(direct.references.empty());
  EXPECT_EQ(direct.state_bytes, 0u);
  const ir::Module indirect = Read(
      "(module (table 2 funcref) (elem (i32.const 1) $b) (func $a) (func $b) (func (export \"run\")"
      " (call_indirect (i32.const 1))))");
  EXPECT_EQ(indirect.functions.size(), 2u);
  ASSERT_EQ(indirect.references.size(), 1u);
  EXPECT_EQ(indirect.function(indirect.references[0].function).name, "b");
  EXPECT_EQ(indirect.state_bytes, 12u);
}

// A shared memory gives a warning: atomics work, but instances do not share the memory as the author may expect.
TEST(WasmFrontTest, WarnsOfSharedMemory) {
  const ReadOutcome outcome = ReadWasm(Assemble("(module (memory 1 1 shared) (func (export \"run\") (atomic.fence)"
                                                " (drop (i64.atomic.rmw16.add_u (i32.const 0) (i64.const 1)))))"),
                                       Options());
  ASSERT_TRUE(outcome.module);
  EXPECT_TRUE(ir::Verify(*outcome.module).empty());
  ASSERT_EQ(outcome.diagnostics.size(), 1u);
  EXPECT_EQ(outcome.diagnostics[0].severity, Severity::kWarning);
}

// A 64-bit memory makes addresses, buffers and the import's signature 64 bits wide.
TEST(WasmFrontTest, Memory64) {
  const ir::Module module = Read(
      "(module (import \"hpvm\" \"local_alloc\" (func $l (param i64) (result i64)))"
      " (import \"hpvm\" \"buffer_size\" (func $s (param i32) (result i64))) (memory i64 1) (data (i64.const 16) \"x\")"
      " (func (export \"run\") (param i64) (i64.store (local.get 0) (i64.add (call $s (i32.const 0)) (memory.size)))"
      " (memory.fill (call $l (i64.const 8)) (i32.const 1) (i64.const 8))))",
      Options({{.name = "a"}}));
  EXPECT_TRUE(module.is_memory64);
  EXPECT_TRUE(module.uses_group_memory);
  std::array<uint64_t, 3> buffer{};
  ir::Launch launch;
  launch.arguments = {{reinterpret_cast<uint8_t*>(buffer.data()), sizeof(buffer), 0}};
  const auto report = ir::Interpret(module, launch);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->code, ir::TrapCode::kNone);
  EXPECT_EQ(buffer[0], sizeof(buffer) + 1);
}

// The wrapper adds the sizes, indices and extents of the HPVM-web convention.
TEST(WasmFrontTest, HpvmWebConvention) {
  const ir::Module module = Read(
      "(module (memory 1) (func (export \"run\") (param $a i32) (param $bytes i64) (param $s f32)"
      " (param $x i32) (param $y i32) (param $z i32) (param $dx i32) (param $dy i32) (param $dz i32) (local $at i32)"
      " (local.set $at (i32.add (local.get $a) (i32.shl (i32.add (i32.mul (local.get $y) (local.get $dx)) (local.get "
      "$x)) (i32.const 3))))"
      " (i64.store (local.get $at) (i64.add (i64.mul (local.get $bytes) (i64.const 1000))"
      "   (i64.extend_i32_u (i32.add (i32.mul (local.get $dy) (i32.const 10)) (i32.add (local.get $y) (local.get "
      "$dz))))))))",
      Options({{.name = "a"}, {.name = "s", .is_buffer = false, .scalar = ir::Type::kF32}}, Abi::kHpvmWeb));
  std::vector<int64_t> buffer(6), want;
  for (int i = 0; i < 6; ++i) {
    want.push_back(48'000 + 20 + i / 3 + 1);
  }
  ir::Launch launch;
  launch.extent = {3, 2, 1};
  launch.arguments = {{reinterpret_cast<uint8_t*>(buffer.data()), 48, 0}, {}};
  const auto report = ir::Interpret(module, launch);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->code, ir::TrapCode::kNone) << ir::ToString(*report, module);
  EXPECT_EQ(buffer, want);
}

// Every arithmetic instruction verifies, so operands, types and results are right in the table.
TEST(WasmFrontTest, EveryArithmeticInstruction) {
  struct Case {
    const char* types;  // Separated by spaces.
    const char* names;
    int operands;
    bool is_compare;
  };
  const auto words = [](const char* text) {
    std::istringstream stream(text);
    return std::vector<std::string>{std::istream_iterator<std::string>(stream), {}};
  };
  constexpr Case kCases[] = {
      {"i32 i64", "clz ctz popcnt extend8_s extend16_s", 1, false},
      {"i32 i64", "add sub mul div_s div_u rem_s rem_u and or xor shl shr_s shr_u rotl rotr", 2, false},
      {"i32 i64", "eqz", 1, true},
      {"i32 i64", "eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u", 2, true},
      {"f32 f64", "abs neg ceil floor trunc nearest sqrt", 1, false},
      {"f32 f64", "add sub mul div min max copysign", 2, false},
      {"f32 f64", "eq ne lt gt le ge", 2, true},
  };
  for (const Case& c : kCases) {
    for (const std::string& type : words(c.types)) {
      for (const std::string& name : words(c.names)) {
        SCOPED_TRACE(type + "." + name);
        const std::string operand = "(" + type + ".const 3)";
        const std::string result = c.is_compare ? "i32" : type;
        Read("(module (global $g (mut " + result + ") (" + result +
             ".const 0)) (func (export \"run\") (global.set $g (" + type + "." + name + operand +
             (c.operands == 2 ? operand : "") + "))))");
      }
    }
  }
}

// hpvm.assert traps, and `in` buffers stay read-only.
TEST(WasmFrontTest, AssertAndReadOnly) {
  const std::string wat =
      "(module (import \"hpvm\" \"assert\" (func $assert (param i32))) (memory 1)"
      " (func (export \"run\") (param i32 i32) (call $assert (local.get 1)) (i32.store (local.get 0) (i32.const 1))))";
  const ir::Module module = Read(
      wat, Options({{.name = "a", .is_writable = false}, {.name = "s", .is_buffer = false, .scalar = ir::Type::kI32}}));
  alignas(8) std::array<uint32_t, 2> words{};
  ir::Launch launch;
  for (const auto& [scalar, want] :
       {std::pair{0, ir::TrapCode::kAssert}, std::pair{1, ir::TrapCode::kReadOnlyBuffer}}) {
    launch.arguments = {{reinterpret_cast<uint8_t*>(words.data()), sizeof(words), 0},
                        {nullptr, 0, static_cast<uint64_t>(scalar)}};
    const auto report = ir::Interpret(module, launch);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->code, want);
  }
}

}  // namespace
}  // namespace hpvm::wasm
