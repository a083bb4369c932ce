// SPDX-License-Identifier: Apache-2.0
// Tests the code for imports: mathematics, prints, assertions. The interpreter runs it.
#include "compiler/front/wasm/read/imports.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "compiler/front/wasm/lower/math.h"
#include "compiler/front/wasm/testing/wabt.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/print_format.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/math/math_module.h"

namespace hpvm::wasm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ReadOutcome Read(const std::string& wat, std::vector<ParamSpec> params = {}) {
  return ReadWasm(Assemble(wat), {.entry = "run", .params = std::move(params), .module_name = "imports"});
}

class Lines : public ir::PrintSink {
 public:
  explicit Lines(const ir::Module& module) : module_(module) {}
  void Print(const std::array<uint64_t, 3>& instance, uint32_t format, std::span<const uint64_t> values) override {
    lines.push_back(std::to_string(instance[0]) + ": " +
                    ir::FormatPrint(module_.formats[format], values, module_.data));
  }
  std::vector<std::string> lines;

 private:
  const ir::Module& module_;
};

// Runs a kernel with no buffer or one buffer.
ir::TrapReport Interpreted(const ir::Module& module, uint64_t instances, ir::PrintSink* sink,
                           std::vector<uint64_t>* buffer) {
  ir::Launch launch;
  launch.extent = {instances, 1, 1};
  launch.print = sink;
  if (buffer != nullptr) {
    launch.arguments = {{reinterpret_cast<uint8_t*>(buffer->data()), buffer->size() * 8, 0}};
  }
  const StatusOr<ir::TrapReport> report = ir::Interpret(module, launch);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : ir::TrapReport{};
}

// Calls one function of each kind in a kernel that has memory of its own; the results go where they belong.
TEST(MathImportTest, CallsTheLibrary) {
  const ReadOutcome outcome = Read(R"((module
    (import "hpvm" "sin_f64" (func $sin (param f64) (result f64)))
    (import "hpvm" "pow_f32" (func $pow (param f32 f32) (result f32)))
    (import "hpvm" "fma_f64" (func $fma (param f64 f64 f64) (result f64)))
    (memory 1) (data (i32.const 1024) "\01\02\03\04")
    (func (export "run") (param $out i32)
      (f64.store (local.get $out) (call $sin (f64.const 1e22)))
      (f32.store offset=8 (local.get $out) (call $pow (f32.const 2) (f32.const 0.5)))
      (f64.store offset=16 (local.get $out) (call $fma (f64.const 3) (f64.const 5) (f64.const 7)))
      (i32.store offset=24 (local.get $out) (i32.load (i32.const 1024))))))",
                                   {{.name = "out"}});
  ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
  const Diagnostics faults = ir::Verify(*outcome.module);
  ASSERT_TRUE(faults.empty()) << ToString(faults);
  std::vector<uint64_t> out(4);
  EXPECT_EQ(Interpreted(*outcome.module, 1, nullptr, &out).code, ir::TrapCode::kNone);
  EXPECT_EQ(std::bit_cast<double>(out[0]), -0.8522008497671888);
  EXPECT_EQ(std::bit_cast<float>(static_cast<uint32_t>(out[1])), 1.41421356f);
  EXPECT_EQ(std::bit_cast<double>(out[2]), 22);
  EXPECT_EQ(out[3], 0x04030201u);
}

// Only called functions are lowered, and a kernel without mathematics contains none of the library.
TEST(MathImportTest, AppendsWhatIsReached) {
  const std::string imports =
      "(module (import \"hpvm\" \"fmod_f32\" (func $fmod (param f32 f32) (result f32)))"
      "(import \"hpvm\" \"sin_f64\" (func $sin (param f64) (result f64)))";
  const ReadOutcome none = Read(imports + "(func (export \"run\")))");
  ASSERT_TRUE(none.module) << ToString(none.diagnostics);
  EXPECT_EQ(none.module->functions.size(), 1u);
  EXPECT_EQ(none.module->state_bytes, 0u);
  const ReadOutcome one = Read(imports + "(func (export \"run\") (drop (call $fmod (f32.const 5) (f32.const 3)))))");
  ASSERT_TRUE(one.module) << ToString(one.diagnostics);
  EXPECT_EQ(one.module->functions.size(), 3u) << "The kernel, the form and musl's function.";
  const ReadOutcome both = Read(imports + R"((func (export "run")
    (drop (call $fmod (f32.const 5) (f32.const 3))) (drop (call $sin (f64.const 5))))))");
  ASSERT_TRUE(both.module) << ToString(both.diagnostics);
  EXPECT_GT(both.module->functions.size(), 6u);
  EXPECT_EQ(both.module->globals.size(), 0u) << "The stack pointer is a constant.";
}

// A math function in a table is called like any other function.
TEST(MathImportTest, IsReachedThroughTables) {
  const ReadOutcome table = Read(R"((module
    (import "hpvm" "cbrt_f64" (func $cbrt (param f64) (result f64)))
    (type $t (func (param f64) (result f64)))
    (table funcref (elem $cbrt)) (memory 1)
    (func (export "run") (param $out i32)
      (f64.store (local.get $out) (call_indirect (type $t) (f64.const 27) (i32.const 0))))))",
                                 {{.name = "out"}});
  ASSERT_TRUE(table.module) << ToString(table.diagnostics);
  ASSERT_TRUE(ir::Verify(*table.module).empty());
  std::vector<uint64_t> out(1);
  EXPECT_EQ(Interpreted(*table.module, 1, nullptr, &out).code, ir::TrapCode::kNone);
  EXPECT_EQ(std::bit_cast<double>(out[0]), 3);
}

// Start functions may use the library, too.
TEST(MathImportTest, RunsInStartFunctions) {
  const ReadOutcome outcome = Read(R"((module
    (import "hpvm" "cos_f64" (func $cos (param f64) (result f64)))
    (import "hpvm" "erf_f32" (func $erf (param f32) (result f32)))
    (memory 1)
    (func $start (f64.store (i32.const 8) (call $cos (f64.const 1e22))))
    (start $start)
    (func (export "run") (param $out i32)
      (f64.store (local.get $out) (f64.load (i32.const 8)))
      (f32.store offset=8 (local.get $out) (call $erf (f32.const 0.5))))))",
                                   {{.name = "out"}});
  ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
  ASSERT_TRUE(ir::Verify(*outcome.module).empty());
  std::vector<uint64_t> out(2);
  EXPECT_EQ(Interpreted(*outcome.module, 1, nullptr, &out).code, ir::TrapCode::kNone);
  EXPECT_EQ(std::bit_cast<double>(out[0]), 0.52321478539513899);
  EXPECT_EQ(std::bit_cast<float>(static_cast<uint32_t>(out[1])), 0.520499878f);
}

// Returns a module with all functions of the library in the given forms.
ir::Module LibraryOf(MathForms forms, std::vector<ir::FunctionId>& ids) {
  std::vector<uint32_t> all(math::MathFunctions().size());
  std::iota(all.begin(), all.end(), 0);
  ir::Module module;
  module.functions.resize(1);
  module.functions[0].name = "run";
  ir::Builder builder(module.functions[0]);
  builder.BeginBody();
  builder.Return({});
  module.entry = ir::FunctionId(0u);
  ids = AppendMath(all, forms, module);
  return module;
}

// Device operations occur only in device forms, once each.
TEST(MathImportTest, DeviceFormsAskTheDevice) {
  std::vector<ir::FunctionId> ids;
  for (const MathForms forms : {MathForms::kExact, MathForms::kFast, MathForms::kDevice}) {
    const ir::Module module = LibraryOf(forms, ids);
    const Diagnostics faults = ir::Verify(module);
    EXPECT_TRUE(faults.empty()) << ToString(faults);
    for (size_t i = 0; i < ids.size(); ++i) {
      const math::MathFunction& function = math::MathFunctions()[i];
      const bool is_device = forms == MathForms::kDevice && !function.device_name.empty();
      const std::vector<ir::Op>& ops = module.function(ids[i]).ops;
      EXPECT_EQ(std::ranges::count(ops, ir::Family::kApprox, [](const ir::Op& op) { return ir::Info(op.code).family; }),
                is_device ? (function.name == "tanh_f32" ? 3 : 1) : 0)
          << function.name;
      EXPECT_EQ(module.function(ids[i]).fast_math == ir::FastMath::kContract,
                is_device || (forms != MathForms::kExact && !function.fast_name.empty()))
          << function.name;
    }
  }
}

// Sine and cosine of one angle reduce it once; a reduction inside a branch is not reused after the branch.
TEST(MathImportTest, SineAndCosineShareTheirAngle) {
  const std::vector<uint8_t> bytes = Assemble(R"((module
    (import "hpvm" "sin_f32" (func $sin (param f32) (result f32)))
    (import "hpvm" "cos_f32" (func $cos (param f32) (result f32)))
    (memory 1)
    (func (export "run") (param $out i32) (param $x f32) (param $y f32)
      (f32.store (local.get $out) (call $sin (local.get $x)))
      (f32.store (local.get $out) (call $cos (local.get $x)))
      (if (local.get $out) (then (f32.store (local.get $out) (call $sin (local.get $y)))
                                 (f32.store (local.get $out) (call $cos (local.get $x)))))
      (f32.store (local.get $out) (call $cos (local.get $y))))))");
  WasmOptions options;
  options.entry = "run";
  options.params = {{.name = "out"},
                    {.name = "x", .is_buffer = false, .scalar = ir::Type::kF32},
                    {.name = "y", .is_buffer = false, .scalar = ir::Type::kF32}};
  options.fast_math = options.device_math = true;
  const ReadOutcome outcome = ReadWasm(bytes, options);
  ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
  EXPECT_TRUE(ir::Verify(*outcome.module).empty());
  const std::vector<ir::Op>& ops = outcome.module->function(outcome.module->entry).ops;
  EXPECT_EQ(std::ranges::count(ops, ir::Opcode::kCall, &ir::Op::code), 3);
  EXPECT_EQ(std::ranges::count(ops, ir::Opcode::kApproxSin, &ir::Op::code), 2);
  EXPECT_EQ(std::ranges::count(ops, ir::Opcode::kApproxCos, &ir::Op::code), 3);
}

// Every function of the library lowers to a module that verifies.
TEST(MathImportTest, EveryFunctionVerifies) {
  std::vector<ir::FunctionId> ids;
  const ir::Module module = LibraryOf(MathForms::kExact, ids);
  const Diagnostics faults = ir::Verify(module);
  EXPECT_TRUE(faults.empty()) << ToString(faults);
  for (uint32_t i = 0; i < ids.size(); ++i) {
    const ir::Type type = math::MathFunctions()[i].is_f64 ? ir::Type::kF64 : ir::Type::kF32;
    EXPECT_EQ(module.function(ids[i]).type.params, std::vector<ir::Type>(math::MathFunctions()[i].arguments, type));
    EXPECT_THAT(module.function(ids[i]).type.results, ElementsAre(type));
  }
  ASSERT_EQ(module.state.size(), 1u);
  EXPECT_EQ(module.state[0].address + module.state[0].bytes.size(), module.state_bytes);
  EXPECT_LT(module.state_bytes, 20u * 1024);
}

constexpr char kPrint[] = R"((module
    (import "hpvm" "print" (func $print (param i32 i32)))
    (import "hpvm" "instance_id" (func $id (param i32) (result i32)))
    (memory 1)
    (data (i32.const 1024) "i=%d f=%.1f l=%lld c=%c s=%s\00text\00plain\00%q\00")
    (func (export "run")
      (i32.store (i32.const 64) (call $id (i32.const 0)))
      (f64.store (i32.const 72) (f64.const 2.5))
      (i64.store (i32.const 80) (i64.const -3))
      (i32.store (i32.const 88) (i32.const 65))
      (i32.store (i32.const 92) (i32.const 1053))
)";

// Values lie as C passes them: a double after an int lies at the next multiple of 8.
TEST(PrintImportTest, LoadsItsArguments) {
  const ReadOutcome outcome = Read(std::string(kPrint) + R"(
      (call $print (i32.const 1024) (i32.const 64))
      (call $print (i32.const 1058) (i32.const 0))
      (call $print (i32.const 1058) (i32.const 0)))))");
  ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
  ASSERT_TRUE(ir::Verify(*outcome.module).empty());
  EXPECT_THAT(outcome.module->formats, ElementsAre("i=%d f=%.1f l=%lld c=%c s=%s", "plain"));
  Lines lines(*outcome.module);
  EXPECT_EQ(Interpreted(*outcome.module, 2, &lines, nullptr).code, ir::TrapCode::kNone);
  EXPECT_THAT(lines.lines, ElementsAre("0: i=0 f=2.5 l=-3 c=A s=text", "0: plain", "0: plain",
                                       "1: i=1 f=2.5 l=-3 c=A s=text", "1: plain", "1: plain"));
}

// In a 64-bit module pointers and longs take 8 bytes.
TEST(PrintImportTest, Memory64) {
  const ReadOutcome outcome = Read(R"((module
    (import "hpvm" "print" (func $print (param i64 i64)))
    (memory i64 1) (data (i64.const 8) "%d %ld %p\00")
    (func (export "run")
      (i32.store (i64.const 64) (i32.const 7)) (i64.store (i64.const 72) (i64.const -1))
      (i64.store (i64.const 80) (i64.const 255))
      (call $print (i64.const 8) (i64.const 64)))))");
  ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
  Lines lines(*outcome.module);
  EXPECT_EQ(Interpreted(*outcome.module, 1, &lines, nullptr).code, ir::TrapCode::kNone);
  EXPECT_THAT(lines.lines, ElementsAre("0: 7 -1 0xff"));
}

// Formats that cannot be read at compile time are refused at their use, with advice.
TEST(PrintImportTest, RefusesOtherFormats) {
  const struct {
    const char* call;
    const char* message;
  } cases[] = {
      {"(call $print (i32.load (i32.const 0)) (i32.const 0))", "not known at compile time. Pass a string literal"},
      {"(call $print (select (i32.const 1024) (i32.const 1058) (call $id (i32.const 0))) (i32.const 0))",
       "choose between literals with an if around two calls"},
      {"(call $print (i32.const 1064) (i32.const 0))", "has the conversion \"q\""},
      {"(call $print (i32.const 5000) (i32.const 0))", "at address 5000 of module memory, is not a string"},
      {"(call $print (i32.const -1) (i32.const 0))", "at address 4294967295 of module memory, is not a string"},
  };
  for (const auto& [call, message] : cases) {
    const ReadOutcome outcome = Read(std::string(kPrint) + call + "))");
    EXPECT_FALSE(outcome.module) << call;
    EXPECT_THAT(ToString(outcome.diagnostics), HasSubstr(message));
    ASSERT_FALSE(outcome.diagnostics.empty());
    EXPECT_TRUE(outcome.diagnostics[0].offset.has_value());
  }
}

// Through a table the format is a parameter.
TEST(PrintImportTest, RefusesPrintInTables) {
  const ReadOutcome outcome = Read(R"((module
    (import "hpvm" "print" (func $print (param i32 i32))) (type $t (func (param i32 i32)))
    (table funcref (elem $print)) (memory 1) (data (i32.const 0) "x\00")
    (func (export "run") (call_indirect (type $t) (i32.const 0) (i32.const 0) (i32.const 0)))))");
  EXPECT_FALSE(outcome.module);
  EXPECT_THAT(ToString(outcome.diagnostics), HasSubstr("not known at compile time"));
}

// AssemblyScript's abort is a failed assertion; "env" has no other known function, and "hpvm" has no abort.
TEST(ImportTest, Abort) {
  const ReadOutcome outcome = Read(R"((module (import "env" "abort" (func $abort (param i32 i32 i32 i32)))
    (func (export "run") (call $abort (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 2)) unreachable)))");
  ASSERT_TRUE(outcome.module) << ToString(outcome.diagnostics);
  EXPECT_EQ(Interpreted(*outcome.module, 1, nullptr, nullptr).code, ir::TrapCode::kAssert);
  const struct {
    const char* import;
    const char* message;
  } cases[] = {
      {"\"hpvm\" \"abort\" (func (param i32 i32 i32 i32))", "The import \"hpvm.abort\" does not exist."},
      {"\"env\" \"abort\" (func)", "is declared as () -> (); its type is (i32, i32, i32, i32) -> ()."},
      {"\"env\" \"sinf\" (func (param f32) (result f32))", "hpvm.h has it as hpvm_sin_f32."},
      {"\"env\" \"erf\" (func (param f64) (result f64))", "hpvm.h has it as hpvm_erf_f64."},
      {"\"hpvm\" \"sinf\" (func (param f32) (result f32))", "Near names are "},
      {"\"hpvm\" \"exp_f32\" (func (param f64) (result f32))",
       "is declared as (f64) -> (f32); its type is (f32) -> (f32)."},
      {"\"hpvm\" \"print\" (func (param i32))", "its type is (i32, i32) -> ()."},
  };
  for (const auto& [import, message] : cases) {
    const ReadOutcome refused = Read("(module (import " + std::string(import) + ") (func (export \"run\")))");
    EXPECT_FALSE(refused.module);
    EXPECT_THAT(ToString(refused.diagnostics), HasSubstr(message));
  }
}

}  // namespace
}  // namespace hpvm::wasm
