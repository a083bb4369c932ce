// SPDX-License-Identifier: Apache-2.0
// Compares the results of lowered modules with wabt's interpreter.
#include <algorithm>
#include <filesystem>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "compiler/front/wasm/testing/files.h"
#include "compiler/front/wasm/testing/wabt.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::wasm {
namespace {

constexpr uint32_t kInstances = 16;

// Returns the array that "run" writes; nothing when an instance traps.
std::optional<std::vector<uint32_t>> RunInIr(const ir::Module& module) {
  std::vector<uint32_t> out(kInstances);
  ir::Launch launch;
  launch.extent = {kInstances, 1, 1};
  launch.arguments = {{reinterpret_cast<uint8_t*>(out.data()), out.size() * sizeof(uint32_t), 0}};
  const auto report = ir::Interpret(module, launch, {.steps_max = 1'000'000});
  EXPECT_TRUE(report.ok()) << report.status();
  if (!report.ok() || report->code != ir::TrapCode::kNone) {
    return std::nullopt;
  }
  return out;
}

// Sets `*ran` when the module ran to its end.
void ExpectSameAsWabt(const std::vector<uint8_t>& bytes, bool* ran) {
  WasmOptions options{.entry = "run", .params = {{.name = "out"}}, .module_name = "test"};
  const ReadOutcome outcome = ReadWasm(bytes, options);
  ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
  const Diagnostics faults = ir::Verify(*outcome.module);
  ASSERT_TRUE(faults.empty()) << ToString(faults) << "\n" << ir::Print(*outcome.module);
  const auto out = RunInIr(*outcome.module);
  EXPECT_EQ(out, RunInWabt(bytes, kInstances)) << ir::Print(*outcome.module);
  *ran = out.has_value();
}

// Each control shape has a file.
TEST(WasmControlTest, EveryShapeRunsAsInWabt) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(HPVMD_SOURCE_DIR "/tests/golden/front_wasm/control")) {
    SCOPED_TRACE(entry.path().filename().string());
    ASSERT_EQ(entry.path().extension(), ".wat");
    const std::string text = ReadText(entry.path());
    bool ran = false;
    ASSERT_NO_FATAL_FAILURE(ExpectSameAsWabt(Assemble(text), &ran));
    EXPECT_TRUE(ran);
    ++count;
  }
  EXPECT_GE(count, 8);
}

// Writes random programs over four i32 locals with every control instruction; loops end because each iteration takes
// from $fuel.
class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  std::string Module() {
    std::string body;
    labels_.push_back({false, false});
    for (int i = 0; i < 3; ++i) {
      body += Statement(4);
    }
    return "(module (import \"hpvm\" \"instance_id\" (func $id (param i32) (result i32))) (memory 1)\n"
           "(global $fuel (mut i32) (i32.const 300)) (global $sink (mut i32) (i32.const 0))\n"
           "(func $f (param $a i32) (result i32) (local $b i32) (local $c i32) (local $d i32)\n" +
           body + "(i32.add (i32.add (local.get $a) (local.get $b)) (i32.mul (local.get $c) (local.get $d))))\n" +
           "(func (export \"run\") (param $out i32) (i32.store (i32.add (local.get $out)"
           " (i32.shl (call $id (i32.const 0)) (i32.const 2)))"
           " (i32.xor (call $f (call $id (i32.const 0))) (global.get $sink)))))";
  }

 private:
  struct Label {
    bool is_loop;
    bool has_result;
  };

  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  std::string Local() { return std::string("$") + "abcd"[Below(4)]; }

  // Returns an expression of type i32.
  std::string Value(int depth) {
    switch (depth <= 0 ? Below(2) : Below(9)) {
      case 0:
        return "(local.get " + Local() + ")";
      case 1:
        return "(i32.const " + std::to_string(Below(9)) + ")";
      case 2:
        return "(local.tee " + Local() + " " + Value(depth - 1) + ")";
      case 3:
        return "(select " + Value(depth - 1) + " " + Value(depth - 1) + " " + Value(depth - 1) + ")";
      case 4:
        return Block("block", depth, true);
      case 5:
        return Block("loop", depth, true);
      case 6:
        return If(depth, true);
      default: {
        static constexpr const char* kOperators[] = {"add", "sub", "mul", "lt_s", "xor", "rotl"};
        return std::string("(i32.") + kOperators[Below(6)] + " " + Value(depth - 1) + " " + Value(depth - 1) + ")";
      }
    }
  }

  std::string Statement(int depth) {
    switch (depth <= 0 ? Below(2) : Below(10)) {
      case 0:
      case 1:
        return "(local.set " + Local() + " " + Value(depth - 1) + ")\n";
      case 2:
        return Block("block", depth, false);
      case 3:
        return Block("loop", depth, false);
      case 4:
        return If(depth, false);
      case 5:
        return "(drop " + Value(depth - 1) + ")\n";
      case 6:
      case 7:
        return Branch(depth, true);
      case 8:
        return Below(3) == 0 ? Branch(depth, false) : Statement(depth - 1);
      default:
        return Below(6) == 0 ? "(return " + Value(depth - 1) + ")\n" : Table(depth);
    }
  }

  std::string Body(int depth) {
    std::string text;
    for (uint32_t i = 1 + Below(3); i > 0; --i) {
      text += Statement(depth - 1);
    }
    return text;
  }

  std::string Block(const std::string& kind, int depth, bool has_result) {
    labels_.push_back({kind == "loop", has_result});
    std::string text = "(" + kind + (has_result ? " (result i32)\n" : "\n");
    if (kind == "loop") {  // Without fuel, the function returns.
      text +=
          "(if (i32.eqz (global.get $fuel)) (then (return (local.get $a))))\n"
          "(global.set $fuel (i32.sub (global.get $fuel) (i32.const 1)))\n";
    }
    text += Body(depth) + (has_result ? Value(depth - 1) : "") + ")\n";
    labels_.pop_back();
    return text;
  }

  std::string If(int depth, bool has_result) {
    std::string text = std::string("(if ") + (has_result ? "(result i32) " : "") + Value(depth - 1);
    labels_.push_back({false, has_result});
    text += " (then " + Body(depth) + (has_result ? Value(depth - 1) : "") + ")";
    if (has_result || Below(2) == 0) {
      text += " (else " + Body(depth) + (has_result ? Value(depth - 1) : "") + ")";
    }
    labels_.pop_back();
    return text + ")\n";
  }

  // Returns true when a branch to that depth carries a value; the function's own label does.
  bool Carries(uint32_t depth) const {
    const Label& label = labels_[labels_.size() - 1 - depth];
    return depth + 1 == labels_.size() || (!label.is_loop && label.has_result);
  }

  std::string Branch(int depth, bool is_conditional) {
    const uint32_t to = Below(static_cast<uint32_t>(labels_.size()));
    const std::string value = Carries(to) ? " " + Value(depth - 1) : "";
    if (!is_conditional) {
      return "(br " + std::to_string(to) + value + ")\n";
    }
    const std::string text = "(br_if " + std::to_string(to) + value + " " + Value(depth - 1) + ")\n";
    return Carries(to) ? "(global.set $sink " + text + ")" : text;
  }

  std::string Table(int depth) {
    const uint32_t first = Below(static_cast<uint32_t>(labels_.size()));
    std::string targets;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t to = Below(static_cast<uint32_t>(labels_.size()));
      targets += " " + std::to_string(Carries(to) == Carries(first) ? to : first);
    }
    return "(br_table" + targets + (Carries(first) ? " " + Value(depth - 1) : "") + " " + Value(depth - 1) + ")\n";
  }

  std::mt19937 random_;
  std::vector<Label> labels_;
};

// Random control flow gives wabt's results.
TEST(WasmControlTest, RandomProgramsRunAsInWabt) {
  int ran = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const std::string text = Generator(seed).Module();
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + text);
    bool ends = false;
    ASSERT_NO_FATAL_FAILURE(ExpectSameAsWabt(Assemble(text), &ends));
    ASSERT_FALSE(HasFailure());
    ran += ends;
  }
  EXPECT_EQ(ran, 300);
}

}  // namespace
}  // namespace hpvm::wasm
