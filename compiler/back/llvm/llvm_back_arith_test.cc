// SPDX-License-Identifier: Apache-2.0
// Compares every numeric operation, at every pair of edge values, with the interpreter.
#include <gtest/gtest.h>

#include "compiler/back/llvm/testing/compare.h"
#include "compiler/back/llvm/testing/forms.h"

namespace hpvm::cpu {
namespace {

using ir::Opcode;
using ir::Type;
using testing::Compared;
using testing::Form;

// Returns a kernel r[0] = op(x, y), stored with the result's own width.
ir::Module KernelOf(const Form& form) {
  ir::Module module;
  module.name = "op";
  ir::Function function;
  function.name = "op";
  function.type.params = {Type::kI32, form.type, form.type};
  module.params = {{"r", true, true, Type::kI32}, {"x", false, true, form.type}, {"y", false, true, form.type}};
  ir::Builder builder(function);
  std::span<const ir::ValueId> params = builder.BeginBody();
  std::vector<ir::ValueId> operands(params.begin(), params.end());
  ir::Op op{.code = form.code};
  op.type = form.type;
  op.source = 77;
  ir::ValueId result = builder.Append1(op, std::span(operands).subspan(1, form.operands), form.result);
  ir::Op store{.code = Opcode::kStore};
  store.type = form.result;
  store.width = static_cast<uint8_t>(ir::Bytes(form.result));
  const ir::ValueId stored[] = {operands[0], result};
  builder.Append(store, stored, {});
  builder.Return({});
  module.functions.push_back(std::move(function));
  module.entry = ir::FunctionId(0u);
  return module;
}

void CheckForm(const Form& form) {
  SCOPED_TRACE(std::string(ir::Info(form.code).text) + "." + std::string(ir::Name(form.type)) + " -> " +
               std::string(ir::Name(form.result)));
  Compared kernel(KernelOf(form));
  ASSERT_TRUE(kernel.ok());
  std::vector<uint64_t> edges = testing::EdgesOf(form.type);
  std::vector<uint64_t> second = form.operands == 2 ? edges : std::vector<uint64_t>{0};
  for (uint64_t x : edges) {
    for (uint64_t y : second) {
      SCOPED_TRACE(::testing::Message() << std::hex << "x 0x" << x << " y 0x" << y);
      Compared::Input input;
      input.buffers = {{0}, {}, {}};
      input.scalars = {0, x, y};
      input.nan_is_any = !ir::IsInt(form.result);
      input.float_bytes = ir::Bytes(form.result);
      kernel.Check(input);
      if (::testing::Test::HasFailure()) {
        return;
      }
    }
  }
}

class ArithmeticTest : public ::testing::TestWithParam<Opcode> {};

// Gives the same bits and traps as the interpreter for every operation of these families; a new opcode is included by
// its line in the table.
TEST_P(ArithmeticTest, AgreesWithInterpreter) {
  std::vector<Form> forms = testing::AllFormsOf(GetParam());
  ASSERT_FALSE(forms.empty());
  for (const Form& form : forms) {
    CheckForm(form);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ArithmeticTest, ::testing::ValuesIn(testing::ArithmeticOpcodes()),
                         [](const auto& info) { return std::string(ir::Info(info.param).text); });

// A product and a sum stay two operations, each rounded: 1 - (1 - e)(1 + e) gives 0, or e^2 when fused.
TEST(ArithmeticTest, NeverFusesMultiplyAndAdd) {
  Compared kernel(std::string(R"(module "fma"
param buffer inout "r"
param f32 "a"
param f32 "b"
param f32 "c"
entry f0
func f0 "fma" (%r: i32, %a: f32, %b: f32, %c: f32) -> () {
  %m: f32 = fmul.f32 %a, %b
  %s: f32 = fadd.f32 %m, %c
  store.f32 flat %r, %s
  return ()
}
)"));
  Compared::Input input;
  input.buffers = {{0}, {}, {}, {}};
  input.scalars = {0, 0x3f800001, 0x3f7fffff, 0xbf800000};
  kernel.Check(input);
  EXPECT_EQ(input.buffers[0][0] & 0xffffffff, 0u);  // Fused it would be 2^-24 - 2^-47.
}

// select takes its first value when the condition is any number but 0.
TEST(ArithmeticTest, Selects) {
  Compared kernel(std::string(R"(module "select"
param buffer inout "r"
param i32 "c"
entry f0
func f0 "select" (%r: i32, %c: i32) -> () {
  %a: f64 = const.f64 0x7ff0000000000001
  %b: f64 = const.f64 2.5
  %s: f64 = select.f64 %c, %a, %b
  store.f64 flat %r, %s
  return ()
}
)"));
  for (uint64_t c : {0u, 1u, 2u, 0x80000000u}) {
    Compared::Input input;
    input.buffers = {{0}, {}};
    input.scalars = {0, c};
    kernel.Check(input);
  }
}

// Every operation quiets a signalling NaN, except those that only change the sign, even where LLVM simplifies it away.
TEST(ArithTest, SignallingNansAreQuieted) {
  const char* kBodies[] = {
      "%v: T = fmul.T %x, %one",
      "%v: T = fmul.T %x, %minus",
      "%v: T = fmul.T %one, %x",
      "%v: T = fdiv.T %x, %one",
      "%v: T = fdiv.T %x, %minus",
      "%v: T = fsub.T %x, %zero",
      "%v: T = fsub.T %nzero, %x",
      "%v: T = fadd.T %x, %nzero",
      "%v: T = fadd.T %zero, %x",
      "%v: T = fmin.T %x, %one",
      "%v: T = fmin.T %one, %x",
      "%v: T = fmax.T %x, %x",
      "%v: T = fmax.T %zero, %x",
      // Beside an operand that cannot be a NaN, LLVM looks for quiet NaNs only.
      "%c: T = convert_s.i32 %r\n%v: T = fmax.T %c, %x",
      "%c: T = convert_s.i32 %r\n%v: T = fmax.T %x, %c",
      "%c: T = convert_s.i32 %r\n%v: T = fmin.T %c, %x",
      "%c: T = convert_s.i32 %r\n%v: T = fmin.T %x, %c",
      "%v: T = ffloor.T %x",
      "%v: T = fsqrt.T %x",
      "%v: T = fnearest.T %x",
      "%n: T = fneg.T %x\n%v: T = fmul.T %n, %minus",
      "%n: T = fabs.T %x\n%v: T = fadd.T %n, %zero",
  };
  for (const char* type : {"f32", "f64"}) {
    uint64_t nan = type[1] == '3' ? 0x7fa00000 : 0x7ff4000000000000;
    uint64_t quiet = type[1] == '3' ? 0x00400000 : 0x0008000000000000;
    for (std::string body : kBodies) {
      SCOPED_TRACE(std::string(type) + " " + body);
      for (size_t at; (at = body.find('T')) != std::string::npos;) {
        body.replace(at, 1, type);
      }
      std::string t = type;
      Compared kernel("module \"nan\"\nparam buffer inout \"r\"\nparam " + t +
                      " \"x\"\nentry f0\nfunc f0 \"nan\" (%r: i32, %x: " + t + ") -> () {\n%one: " + t + " = const." +
                      t + " 1\n%minus: " + t + " = const." + t + " -1\n%zero: " + t + " = const." + t + " 0\n%nzero: " +
                      t + " = fneg." + t + " %zero\n" + body + "\nstore." + t + " flat %r, %v\nreturn ()\n}\n");
      Compared::Input input;
      input.buffers = {{0}, {}};
      input.scalars = {0, nan};
      input.nan_is_any = true;
      input.float_bytes = type[1] == '3' ? 4 : 8;
      kernel.Check(input);
      EXPECT_NE(input.buffers[0][0] & quiet, 0u) << std::hex << input.buffers[0][0];
    }
  }
}

// A NaN constant that guards a square root keeps its bits.
TEST(ArithTest, GuardedSquareRootGivesTheConstant) {
  Compared kernel(std::string(R"(module "guard"
param buffer inout "r"
param f64 "x"
entry f0
func f0 "guard" (%r: i32, %x: f64) -> () {
  %nan: f64 = const.f64 0x7ff8000000000000
  %s: f64 = fsqrt.f64 %x
  %c: i32 = fne.f64 %s, %s
  %v: f64 = select.f64 %c, %nan, %s
  store.f64 flat %r, %v
  return ()
}
)"));
  for (uint64_t x : {0xbff0000000000000ull, 0x4010000000000000ull, 0x8000000000000000ull}) {
    Compared::Input input;
    input.buffers = {{0}, {}};
    input.scalars = {0, x};
    kernel.Check(input);
  }
}

// A NaN that was demoted and promoted again is quieted.
TEST(ArithTest, DemotedPromotedNansAreQuieted) {
  Compared kernel(std::string(R"(module "nan"
param buffer inout "r"
param f32 "x"
entry f0
func f0 "nan" (%r: i32, %x: f32) -> () {
  %d: f64 = promote.f32 %x
  %v: f32 = demote.f64 %d
  store.f32 flat %r, %v
  return ()
}
)"));
  Compared::Input input;
  input.buffers = {{0}, {}};
  input.scalars = {0, 0x7fa00000};
  kernel.Check(input);
  EXPECT_EQ(input.buffers[0][0], 0x7fe00000u);
}

}  // namespace
}  // namespace hpvm::cpu
