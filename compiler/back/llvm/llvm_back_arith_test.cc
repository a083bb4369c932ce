// SPDX-License-Identifier: Apache-2.0
// Every operation on numbers, at every pair of edge values, against the interpreter.
#include <gtest/gtest.h>

#include "compiler/back/llvm/testing/compare.h"

namespace hpvm {
namespace {

using ir::Family;
using ir::Opcode;
using ir::Type;
using testing::Compared;

constexpr Opcode kAllOpcodes[] = {
#define HPVM_OP(name, text, effects, family) Opcode::name,
#include "compiler/ir/opcodes.def"
#undef HPVM_OP
};

std::vector<uint64_t> EdgesOf(Type type) {
  switch (type) {
    case Type::kI32:
      return {0,   1,      2,      7,          31,         32,         33,         127,        128,
              255, 0x7fff, 0x8000, 0x7fffffff, 0x80000000, 0x80000001, 0xfffffffe, 0xffffffff, 0x12345678};
    case Type::kI64:
      return {0,
              1,
              2,
              31,
              63,
              64,
              65,
              0x80,
              0x8000,
              0x7fffffff,
              0x80000000,
              0xffffffff,
              0x100000000,
              0x7fffffffffffffff,
              0x8000000000000000,
              0x8000000000000001,
              0xfffffffffffffffe,
              0xffffffffffffffff,
              0x123456789abcdef0,
              0x20000000000001};
    case Type::kF32:  // Zeros, ones, halves, denormals, limits of integers, infinities, NaNs quiet and signalling.
      return {0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x3f000000, 0xbf000000, 0x3fc00000,
              0x40200000, 0xc0200000, 0x00000001, 0x80000001, 0x007fffff, 0x7f7fffff, 0xff7fffff,
              0x4effffff, 0x4f000000, 0xcf000000, 0xcf000001, 0x4f7fffff, 0x4f800000, 0x5effffff,
              0x5f000000, 0xdf000000, 0xdf000001, 0x5f7fffff, 0x5f800000, 0x7f800000, 0xff800000,
              0x7fc00000, 0xffc12345, 0x7f800001, 0xbf7fffff, 0x4b7fffff, 0x3eaaaaab};
    default:
      return {0x0000000000000000, 0x8000000000000000, 0x3ff0000000000000, 0xbff0000000000000, 0x3fe0000000000000,
              0xbfe0000000000000, 0x3ff8000000000000, 0x4004000000000000, 0x0000000000000001, 0x800fffffffffffff,
              0x7fefffffffffffff, 0xffefffffffffffff, 0x41dfffffffc00000, 0x41dfffffffffffff, 0x41e0000000000000,
              0xc1e0000000000000, 0xc1e00000001fffff, 0xc1e0000000200000, 0x41efffffffe00000, 0x41f0000000000000,
              0x43dfffffffffffff, 0x43e0000000000000, 0xc3e0000000000000, 0xc3e0000000000001, 0x43efffffffffffff,
              0x43f0000000000000, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0xfff8000000012345,
              0x7ff0000000000001, 0xbfefffffffffffff, 0x3fd5555555555555, 0x47efffffe0000000, 0x36a0000000000000};
  }
}

// One form of an operation: operand type and count, result type.
struct Form {
  Opcode code;
  Type type;
  uint32_t operands;
  Type result;
};

std::vector<Form> FormsOf(Opcode code) {
  constexpr Type kInts[] = {Type::kI32, Type::kI64}, kFloats[] = {Type::kF32, Type::kF64};
  std::vector<Form> forms;
  auto add = [&](Type type, uint32_t operands, Type result) { forms.push_back({code, type, operands, result}); };
  switch (ir::Info(code).family) {
    case Family::kIntUnary:
      for (Type type : kInts) {
        if (code != Opcode::kExtend32 || type == Type::kI64) {
          add(type, 1, type);
        }
      }
      break;
    case Family::kIntBinary:
      for (Type type : kInts) {
        add(type, 2, type);
      }
      break;
    case Family::kIntCompare:
      for (Type type : kInts) {
        add(type, code == Opcode::kEqz ? 1 : 2, Type::kI32);
      }
      break;
    case Family::kFloatUnary:
      for (Type type : kFloats) {
        add(type, 1, type);
      }
      break;
    case Family::kFloatBinary:
      for (Type type : kFloats) {
        add(type, 2, type);
      }
      break;
    case Family::kFloatCompare:
      for (Type type : kFloats) {
        add(type, 2, Type::kI32);
      }
      break;
    default:
      break;
  }
  return forms;
}

std::vector<Form> ConversionsOf(Opcode code) {
  std::vector<Form> forms;
  auto add = [&](Type type, Type result) { forms.push_back({code, type, 1, result}); };
  switch (code) {
    case Opcode::kWrap:
      add(Type::kI64, Type::kI32);
      break;
    case Opcode::kExtendS:
    case Opcode::kExtendU:
      add(Type::kI32, Type::kI64);
      break;
    case Opcode::kDemote:
      add(Type::kF64, Type::kF32);
      break;
    case Opcode::kPromote:
      add(Type::kF32, Type::kF64);
      break;
    case Opcode::kReinterpret:
      add(Type::kI32, Type::kF32);
      add(Type::kF32, Type::kI32);
      add(Type::kI64, Type::kF64);
      add(Type::kF64, Type::kI64);
      break;
    default:
      for (Type i : {Type::kI32, Type::kI64}) {
        for (Type f : {Type::kF32, Type::kF64}) {
          bool from_int = code == Opcode::kConvertS || code == Opcode::kConvertU;
          from_int ? add(i, f) : add(f, i);
        }
      }
  }
  return forms;
}

// A kernel r[0] = op(x, y), stored with the result's own width.
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
  std::vector<uint64_t> edges = EdgesOf(form.type);
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

// Same bits and same traps as the interpreter for every operation of these families; a new opcode joins by its line in
// the table.
TEST_P(ArithmeticTest, AgreesWithInterpreter) {
  std::vector<Form> forms =
      ir::Info(GetParam()).family == Family::kConvert ? ConversionsOf(GetParam()) : FormsOf(GetParam());
  ASSERT_FALSE(forms.empty());
  for (const Form& form : forms) {
    CheckForm(form);
  }
}

std::vector<Opcode> ArithmeticOpcodes() {
  std::vector<Opcode> codes;
  for (Opcode code : kAllOpcodes) {
    Family family = ir::Info(code).family;
    if (family >= Family::kIntUnary && family <= Family::kConvert) {
      codes.push_back(code);
    }
  }
  return codes;
}

INSTANTIATE_TEST_SUITE_P(All, ArithmeticTest, ::testing::ValuesIn(ArithmeticOpcodes()),
                         [](const auto& info) { return std::string(ir::Info(info.param).text); });

// A product and a sum stay two operations, each rounded: 1 - (1 - e)(1 + e) is 0 or e^2, and fused it is the other.
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

// A signalling NaN comes out quiet of everything but what only moves the sign, also where LLVM sees nothing to do.
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

// So does what was widened and narrowed again.
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
}  // namespace hpvm
