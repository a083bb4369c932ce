// SPDX-License-Identifier: Apache-2.0
// Tests vectors through the whole front end: compares modules in the text form with V8 and wabt's interpreter, and
// runs C that clang compiled with -msimd128.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "compiler/front/wasm/testing/files.h"
#include "compiler/front/wasm/testing/v128_golden.h"
#include "compiler/front/wasm/testing/wabt.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::wasm {
namespace {

const std::string kFolder = HPVMD_SOURCE_DIR "/tests/golden/wasm_simd/";
constexpr size_t kCasesAt = 4096;  // Address in module memory.

std::optional<ir::Module> Read(const std::vector<uint8_t>& bytes, const std::string& entry,
                               std::vector<ParamSpec> params) {
  const WasmOptions options{.entry = entry, .params = std::move(params), .module_name = "simd"};
  ReadOutcome outcome = ReadWasm(bytes, options);
  EXPECT_EQ(ToString(outcome.diagnostics), "");
  if (!outcome.module) {
    return std::nullopt;
  }
  EXPECT_EQ(ToString(ir::Verify(*outcome.module)), "");
  return std::move(*outcome.module);
}

void RunKernel(const ir::Module& module, uint64_t instances, std::vector<ir::Argument> arguments) {
  ir::Launch launch;
  launch.extent[0] = instances;
  launch.arguments = std::move(arguments);
  const auto report = ir::Interpret(module, launch);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->code, ir::TrapCode::kNone) << ir::ToString(*report, module);
}

// Returns text such as "1 2 3".
std::string Numbers(const std::vector<uint8_t>& bytes) {
  std::string text;
  for (const uint8_t byte : bytes) {
    text += ' ' + std::to_string(byte);
  }
  return text;
}

std::string InstructionText(const V128Group& group) {
  const V128Immediate& immediate = group.immediate;
  if (!immediate.bytes.empty()) {
    return group.name + (group.name == "v128.const" ? " i8x16" : "") + Numbers(immediate.bytes);
  }
  if (immediate.text == "-") {
    return group.name;
  }
  const bool has_lane = group.name.ends_with("_lane") || group.name.find("_lane_") != std::string::npos;
  const bool is_memory = group.name.starts_with("v128.");
  return group.name + (is_memory ? " offset=" + std::to_string(immediate.offset) : "") +
         (has_lane ? ' ' + std::to_string(immediate.lane) : "");
}

struct Signature {
  std::vector<std::string> params;  // "v128", "i32" and so on; "at" for an address.
  std::string result;               // Empty for stores.
};

Signature SignatureOf(const std::string& name) {
  const std::string shape = name.substr(0, name.find('.')), rest = name.substr(name.find('.') + 1);
  const std::string scalar = shape == "v128" ? "" : shape[1] == '8' || shape[1] == '1' ? "i32" : shape.substr(0, 3);
  const auto starts = [&](const char* text) { return rest.starts_with(text); };
  const bool is_lane = rest.ends_with("_lane");
  if (shape == "v128" && starts("load")) {
    return {is_lane ? std::vector<std::string>{"at", "v128"} : std::vector<std::string>{"at"}, "v128"};
  }
  if (shape == "v128" && starts("store")) {
    return {{"at", "v128"}, ""};
  }
  if (rest == "const" || rest == "splat") {
    return {rest == "const" ? std::vector<std::string>{} : std::vector<std::string>{scalar}, "v128"};
  }
  if (starts("extract_lane") || rest == "any_true" || rest == "all_true" || rest == "bitmask") {
    return {{"v128"}, starts("extract_lane") ? scalar : "i32"};
  }
  if (rest == "bitselect") {
    return {{"v128", "v128", "v128"}, "v128"};
  }
  if (starts("replace_lane")) {
    return {{"v128", scalar}, "v128"};
  }
  if (starts("shl") || starts("shr_")) {
    return {{"v128", "i32"}, "v128"};
  }
  for (const char* unary : {"not", "abs", "neg", "popcnt", "ceil", "floor", "trunc", "nearest", "sqrt", "extend_",
                            "extadd_", "convert_", "demote_", "promote_"}) {
    if (starts(unary)) {
      return {{"v128"}, "v128"};
    }
  }
  return {{"v128", "v128"}, "v128"};
}

// Returns a module whose instance i runs the instruction on case i / 4 of its memory and returns word i % 4 of the
// result.
std::string ModuleText(const V128Group& group, const std::vector<uint8_t>& memory) {
  const Signature signature = SignatureOf(group.name);
  const std::string result_at = std::to_string(kV128ResultAt);
  std::string body = InstructionText(group);
  for (size_t i = 0; i < signature.params.size(); ++i) {
    const std::string& type = signature.params[i];
    const std::string address =
        signature.result.empty() ? "(i32.add (local.get $case) (i32.const " + result_at + "))" : "(local.get $case)";
    body +=
        ' ' + (type == "at" ? address : '(' + type + ".load offset=" + std::to_string(16 * i) + " (local.get $case))");
  }
  body = '(' + body + ')';
  if (!signature.result.empty()) {
    body = '(' + signature.result + ".store offset=" + result_at + " (local.get $case) " + body + ')';
  }
  std::string data;
  for (const char digit : HexOf(memory.data(), memory.size())) {
    data += (data.size() % 3 == 0 ? "\\" : "") + std::string(1, digit);
  }
  return R"((module (import "hpvm" "instance_id" (func $id (param i32) (result i32))) (memory 1)
  (func (export "run") (param $out i32) (local $i i32) (local $case i32)
    (local.set $i (call $id (i32.const 0)))
    (local.set $case (i32.add (i32.const )" +
         std::to_string(kCasesAt) +
         R"() (i32.shl (i32.shr_u (local.get $i) (i32.const 2)) (i32.const 6))))
    )" + body +
         R"(
    (i32.store (i32.add (local.get $out) (i32.shl (local.get $i) (i32.const 2)))
      (i32.load offset=)" +
         result_at + R"( (i32.add (local.get $case)
        (i32.shl (i32.and (local.get $i) (i32.const 3)) (i32.const 2))))))
  (data (i32.const )" +
         std::to_string(kCasesAt) + ") \"" + data + "\"))";
}

// Returns the words that "run" writes.
std::vector<uint32_t> RunInIr(const std::vector<uint8_t>& bytes, size_t instances) {
  std::vector<uint32_t> out(instances);
  const auto module = Read(bytes, "run", {{.name = "out"}});
  if (module) {
    RunKernel(*module, instances, {{reinterpret_cast<uint8_t*>(out.data()), out.size() * 4, 0}});
  }
  return out;
}

const uint8_t* Bytes(const std::vector<uint32_t>& words, size_t index) {
  return reinterpret_cast<const uint8_t*>(words.data() + 4 * index);
}

// Every instruction with every immediate is decoded as V8 decodes it.
TEST(SimdFrontTest, ComputesAsV8Does) {
  for (const V128Group& group : ReadV128Golden(kFolder + "v128.golden")) {
    SCOPED_TRACE(group.name + ' ' + group.immediate.text);
    const std::vector<uint32_t> found = RunInIr(Assemble(ModuleText(group, group.memory)), 4 * group.cases());
    for (size_t i = 0; i < group.cases(); ++i) {
      EXPECT_TRUE(SameV128(group.name, Bytes(found, i), &group.want[16 * i]))
          << HexOf(Bytes(found, i), 16) << " instead of " << HexOf(&group.want[16 * i], 16);
    }
  }
}

// Returns lanes on and around the edges of all integer and float types.
uint64_t RandomLane(std::mt19937_64& random) {
  constexpr uint64_t kFloats[] = {0x3f8000003f800000, 0x8000000080000000, 0x7f8000007fc00000, 0x4f0000004effffff,
                                  0xcf000001cf000000, 0x0000000100800000, 0x3ff0000000000000, 0x7ff0000000000000,
                                  0x7ff8000000000000, 0x41dfffffffc00000, 0xc1e0000000000000, 0x41efffffffe00000,
                                  0x3ff8000040200000, 0xbfe0000000000000, 0x47efffffe0000000, 0x0000000000000001};
  const uint64_t bits = random();
  switch (random() % 5) {
    case 0:
      return bits;
    case 1:
      return kFloats[bits % std::size(kFloats)];
    case 2:
      return bits & 0x8080808080808080;
    case 3:
      return (bits & 0x0101010101010101) + (random() % 2 == 0 ? 0x7f7f7f7f7f7f7f7f : 0x7fff7fff7fff7fff);
    default:
      return (bits % 7 - 3) * (random() % 2 == 0 ? 0x0000000100000001 : 0x0001000100010001);
  }
}

// wabt's interpreter gives the same results on random operands.
TEST(SimdFrontTest, ComputesAsWabtDoes) {
  constexpr size_t kCases = 40;
  std::mt19937_64 random(7);
  std::set<std::string> done;
  for (const V128Group& group : ReadV128Golden(kFolder + "v128.golden")) {
    if (!done.insert(group.name).second) {
      continue;
    }
    SCOPED_TRACE(group.name);
    std::vector<uint8_t> memory(kCases * kV128CaseBytes);
    for (size_t at = 0; at < memory.size(); at += 8) {
      const uint64_t lane = RandomLane(random);
      std::memcpy(&memory[at], &lane, 8);
    }
    const std::vector<uint8_t> bytes = Assemble(ModuleText(group, memory));
    const std::vector<uint32_t> found = RunInIr(bytes, 4 * kCases);
    const auto want = RunInWabt(bytes, 4 * kCases);
    ASSERT_TRUE(want);
    for (size_t i = 0; i < kCases; ++i) {
      EXPECT_TRUE(SameV128(group.name, Bytes(found, i), Bytes(*want, i)))
          << HexOf(&memory[i * kV128CaseBytes], 48) << '\n'
          << HexOf(Bytes(found, i), 16) << " instead of " << HexOf(Bytes(*want, i), 16);
    }
  }
  EXPECT_EQ(done.size(), 236u);
}

// Writes random programs over six vectors and a word. Float arithmetic is left out: the payload of its NaN results is
// unspecified, and other instructions would expose it.
class ProgramText {
 public:
  ProgramText(const std::vector<V128Group>& instructions, uint64_t seed) : instructions_(instructions), random_(seed) {}

  std::string Module(int steps) {
    std::string body;
    for (int i = 0; i < 6; ++i) {
      body += "(local.set $v" + std::to_string(i) + " (v128.load offset=" + std::to_string(16 * i) +
              " (local.get $case)))\n";
    }
    body += "(local.set $s (i32.load offset=100 (local.get $case)))\n" + Steps(steps, 2);
    std::string data;
    for (int i = 0; i < 64; ++i) {
      const uint64_t lane = RandomLane(random_);
      for (int byte = 0; byte < 8; ++byte) {
        data += '\\' + HexOf(reinterpret_cast<const uint8_t*>(&lane) + byte, 1);
      }
    }
    return R"((module (import "hpvm" "instance_id" (func $id (param i32) (result i32))) (memory 1)
  (func (export "run") (param $out i32) (local $case i32) (local $i i32) (local $s i32)
    (local $v0 v128) (local $v1 v128) (local $v2 v128) (local $v3 v128) (local $v4 v128) (local $v5 v128)
    (local.set $i (call $id (i32.const 0)))
    (local.set $case (i32.add (i32.const 4096) (i32.mul (local.get $i) (i32.const 24)))))" +
           body + Sum() + ")\n(data (i32.const 4096) \"" + data + "\"))";
  }

 private:
  std::string Vector() {
    if (random_() % 6 == 0) {
      std::vector<uint8_t> bytes(16, static_cast<uint8_t>(random_()));
      bytes[random_() % 16] = static_cast<uint8_t>(random_());
      return "(v128.const i8x16" + Numbers(bytes) + ')';
    }
    return "(local.get $v" + std::to_string(random_() % 6) + ')';
  }
  std::string Scalar(const std::string& type) {
    const std::string word =
        random_() % 2 == 0 ? "(local.get $s)" : "(i32.const " + std::to_string(random_() % 40) + ')';
    if (type == "i32") {
      return word;
    }
    const std::string wide = "(i64.extend_i32_s " + word + ')';
    return type == "f32"   ? "(f32.reinterpret_i32 " + word + ')'
           : type == "i64" ? wide
                           : "(f64.reinterpret_i64 " + wide + ')';
  }
  std::string Step() {
    const V128Group& group = instructions_[random_() % instructions_.size()];
    const Signature signature = SignatureOf(group.name);
    std::string text = '(' + InstructionText(group);
    for (const std::string& type : signature.params) {
      text += ' ' + (type == "v128" ? Vector() : type == "at" ? "(i32.const 4096)" : Scalar(type));
    }
    text += ')';
    const std::string& result = signature.result;
    if (result == "v128") {
      return "(local.set $v" + std::to_string(random_() % 6) + ' ' + text + ")\n";
    }
    text = result == "f32"   ? "(i32.reinterpret_f32 " + text + ')'
           : result == "f64" ? "(i32.wrap_i64 (i64.reinterpret_f64 " + text + "))"
           : result == "i64" ? "(i32.wrap_i64 " + text + ')'
                             : text;
    return result.empty() ? text + '\n' : "(local.set $s (i32.add (local.get $s) " + text + "))\n";
  }
  std::string Steps(int count, int depth) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      if (depth > 0 && random_() % 12 == 0) {
        text += "(if (i32.and (local.get $s) (i32.const 1)) (then\n" + Steps(3, depth - 1) + ") (else\n" +
                Steps(3, depth - 1) + "))\n";
      } else {
        text += Step();
      }
    }
    return text;
  }
  static std::string Sum() {
    std::string sum = "(local.get $s)";
    for (int i = 0; i < 24; ++i) {
      sum = "(i32.xor (i32.rotl " + sum + " (i32.const 5)) (i32x4.extract_lane " + std::to_string(i % 4) +
            " (local.get $v" + std::to_string(i / 4) + ")))";
    }
    return "(i32.store (i32.add (local.get $out) (i32.shl (local.get $i) (i32.const 2))) " + sum + ')';
  }

  const std::vector<V128Group>& instructions_;
  std::mt19937_64 random_;
};

// Folding across instructions changes no result.
TEST(SimdFrontTest, ProgramsComputeAsInWabt) {
  const char* const seeds = std::getenv("HPVMD_SEEDS");
  const uint64_t programs = seeds != nullptr ? std::strtoull(seeds, nullptr, 10) : 150;
  std::vector<V128Group> instructions = ReadV128Golden(kFolder + "v128.golden");
  std::erase_if(instructions, [](const V128Group& group) { return IsV128Arithmetic(group.name); });
  constexpr size_t kInstances = 6;
  for (uint64_t seed = 0; seed < programs; ++seed) {
    const std::string text = ProgramText(instructions, seed).Module(40);
    const std::vector<uint8_t> bytes = Assemble(text);
    const auto want = RunInWabt(bytes, kInstances);
    ASSERT_TRUE(want) << text;
    ASSERT_EQ(RunInIr(bytes, kInstances), *want) << "seed " << seed << '\n' << text;
  }
}

// Vectors pass through locals, parameters, results of blocks and functions, globals, select and loops.
TEST(SimdFrontTest, VectorsFlowThroughControl) {
  const std::string text = R"((module
  (import "hpvm" "instance_id" (func $id (param i32) (result i32)))
  (memory 1)
  (global $kept (mut v128) (v128.const i32x4 1 2 3 4))
  (type $binary (func (param v128 v128) (result v128)))
  (table funcref (elem $add $mul))
  (func $add (type $binary) (f32x4.add (local.get 0) (local.get 1)))
  (func $mul (type $binary) (i32x4.mul (local.get 0) (local.get 1)))
  (func $pair (param i32 v128) (result v128 i32 v128)
    (local.get 1) (local.get 0) (i8x16.splat (local.get 0)))
  (func (export "run") (param $out i32) (local $i i32) (local $v v128) (local $w v128) (local $n i32)
    (local.set $i (call $id (i32.const 0)))
    (local.set $w (f32x4.convert_i32x4_s (i32x4.splat (local.get $i))))
    (block $out2 (result v128)
      (loop $again (result v128)
        (local.set $v (call_indirect (type $binary) (local.get $v) (local.get $w)
          (i32.and (local.get $n) (i32.const 1))))
        (if (v128.any_true (i32x4.gt_s (local.get $v) (global.get $kept)))
          (then (global.set $kept (i16x8.add (global.get $kept) (local.get $v))))
          (else (local.set $w (f32x4.replace_lane 2 (local.get $w) (f32.const 1.5)))))
        (br_if $out2 (f64x2.neg (local.get $v)) (i32.gt_u (local.get $n) (local.get $i)))
        (drop)
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br $again)))
    (local.set $v)
    (call $pair (local.get $n) (local.get $v))
    (local.set $w) (local.set $n) (local.set $v)
    (v128.store (i32.const 64) (v128.xor (select (result v128) (local.get $v) (local.get $w)
      (i32.and (local.get $i) (i32.const 3))) (global.get $kept)))
    (i32.store (i32.add (local.get $out) (i32.shl (local.get $i) (i32.const 2)))
      (i32.add (local.get $n) (i32.load (i32.add (i32.const 64) (i32.shl (i32.and (local.get $i) (i32.const 3))
        (i32.const 2))))))))
)";
  const std::vector<uint8_t> bytes = Assemble(text);
  const std::vector<uint32_t> found = RunInIr(bytes, 32);
  const auto want = RunInWabt(bytes, 32);
  ASSERT_TRUE(want);
  EXPECT_EQ(found, *want);
  EXPECT_GT(std::set<uint32_t>(found.begin(), found.end()).size(), 16u);
}

// A relaxed instruction is refused by name.
TEST(SimdFrontTest, RefusesRelaxedSimd) {
  const std::vector<uint8_t> bytes = {
      0, 'a', 's', 'm', 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0, 3, 2, 1, 0, 7, 7, 1, 3, 'r', 'u', 'n', 0, 0,
      // v128.const 0, thrice; f32x4.relaxed_madd; drop.
      10, 64, 1, 62, 0, 0xfd, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfd, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0,
      0, 0, 0, 0, 0, 0, 0, 0xfd, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfd, 0x85, 2, 0x1a, 0x0b};
  const ReadOutcome outcome = ReadWasm(bytes, {.entry = "run", .params = {}, .module_name = "relaxed"});
  EXPECT_FALSE(outcome.module);
  EXPECT_THAT(ToString(outcome.diagnostics), testing::HasSubstr("relaxed"));
}

template <typename T>
ir::Argument Buffer(std::vector<T>& values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T), 0};
}
ir::Argument Scalar(uint32_t bits) { return {nullptr, 0, bits}; }
ParamSpec In(const char* name) { return {.name = name, .is_writable = false}; }
ParamSpec Out(const char* name) { return {.name = name}; }
ParamSpec Plain(const char* name, ir::Type type = ir::Type::kI32) {
  return {.name = name, .is_buffer = false, .scalar = type};
}

class SimdKernelTest : public testing::Test {
 protected:
  std::optional<ir::Module> Load(const std::string& file, const std::string& entry, std::vector<ParamSpec> params) {
    return Read(ReadBytes(kFolder + file), entry, std::move(params));
  }
  template <typename T>
  std::vector<T> Random(size_t count, int low, int high) {
    std::vector<T> values(count);
    std::uniform_int_distribution<int> distribution(low, high);
    std::generate(values.begin(), values.end(), [&] { return static_cast<T>(distribution(random_)); });
    return values;
  }
  // Uses small integers, so that sums of floats are exact in any order.
  template <typename T, typename Sum>
  void ExpectDot(const std::string& entry) {
    constexpr size_t kInstances = 3, kShare = 40;
    const auto module = Load("dot.wasm", entry, {In("x"), In("y"), Out("out"), Plain("share")});
    ASSERT_TRUE(module);
    auto x = Random<T>(kInstances * kShare, -300, 300), y = Random<T>(kInstances * kShare, -300, 300);
    std::vector<Sum> out(kInstances), want(kInstances);
    for (size_t i = 0; i < x.size(); ++i) {
      want[i / kShare] += static_cast<Sum>(x[i]) * static_cast<Sum>(y[i]);
    }
    RunKernel(*module, kInstances, {Buffer(x), Buffer(y), Buffer(out), Scalar(kShare)});
    EXPECT_EQ(out, want);
  }

  std::mt19937 random_{42};
};

TEST_F(SimdKernelTest, Saxpy) {
  const auto module = Load("saxpy.wasm", "saxpy", {In("x"), Out("y"), Plain("a", ir::Type::kF32), Plain("share")});
  ASSERT_TRUE(module);
  auto x = Random<float>(77, -999, 999), y = Random<float>(77, -999, 999);
  std::vector<float> want(y.size());
  for (size_t i = 0; i < y.size(); ++i) {
    want[i] = 0.5f * x[i] + y[i];
  }
  RunKernel(*module, 5, {Buffer(x), Buffer(y), Scalar(0x3f000000), Scalar(17)});
  EXPECT_EQ(y, want);
}

TEST_F(SimdKernelTest, DotOfFloats) { ExpectDot<float, float>("dot_f32"); }
TEST_F(SimdKernelTest, DotOfDoubles) { ExpectDot<double, double>("dot_f64"); }
TEST_F(SimdKernelTest, DotOfShorts) { ExpectDot<int16_t, int32_t>("dot_i16"); }

TEST_F(SimdKernelTest, HistogramOfBytes) {
  const auto module = Load("bytes.wasm", "occurs", {In("bytes"), Out("bins"), Plain("count")});
  ASSERT_TRUE(module);
  auto bytes = Random<uint8_t>(1003, 0, 255);
  std::vector<int32_t> bins(256), want(256);
  for (const uint8_t byte : bytes) {
    ++want[byte];
  }
  RunKernel(*module, 256, {Buffer(bytes), Buffer(bins), Scalar(static_cast<uint32_t>(bytes.size()))});
  EXPECT_EQ(bins, want);
}

TEST_F(SimdKernelTest, SobelOfBytes) {
  constexpr int kWidth = 45, kHeight = 9;
  const auto module = Load("bytes.wasm", "sobel", {In("image"), Out("out"), Plain("width"), Plain("height")});
  ASSERT_TRUE(module);
  auto image = Random<uint8_t>(kWidth * kHeight, 0, 255);
  for (int i = 0; i < 100; ++i) {
    image[100 + i] = static_cast<uint8_t>(i);  // Small enough to stay below 255.
  }
  std::vector<uint8_t> out(image.size()), want(image.size());
  for (int y = 1; y < kHeight - 1; ++y) {
    for (int x = 1; x < kWidth - 1; ++x) {
      const auto at = [&](int dx, int dy) { return int{image[(y + dy) * kWidth + x + dx]}; };
      const int across = at(1, -1) + 2 * at(1, 0) + at(1, 1) - at(-1, -1) - 2 * at(-1, 0) - at(-1, 1);
      const int down = at(-1, 1) + 2 * at(0, 1) + at(1, 1) - at(-1, -1) - 2 * at(0, -1) - at(1, -1);
      want[y * kWidth + x] = static_cast<uint8_t>(std::min(std::abs(across) + std::abs(down), 255));
    }
  }
  RunKernel(*module, kHeight, {Buffer(image), Buffer(out), Scalar(kWidth), Scalar(kHeight)});
  EXPECT_EQ(out, want);
  EXPECT_THAT(out, testing::Contains(testing::AllOf(testing::Gt(0), testing::Lt(255))));
}

}  // namespace
}  // namespace hpvm::wasm
