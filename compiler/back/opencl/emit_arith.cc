// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/opencl/kernel_writer.h"
#include "compiler/back/opencl/literal.h"

namespace hpvm::opencl {
namespace {

std::string_view FloatSuffix(Type type) { return type == Type::kF32 ? "f32" : "f64"; }
std::string_view BitsOf(Type type) { return type == Type::kF32 ? "as_uint" : "as_ulong"; }
std::string_view FromBits(Type type) { return type == Type::kF32 ? "as_float" : "as_double"; }
std::string SignBit(Type type) { return type == Type::kF32 ? "0x80000000u" : "0x8000000000000000ul"; }
std::string NoSign(Type type) { return type == Type::kF32 ? "0x7fffffffu" : "0x7ffffffffffffffful"; }

// The range in which a conversion fits: lower < a (or <= a) and a < upper.
struct Limits {
  std::string_view lower, upper;
  bool takes_lower = false;
};
Limits LimitsOf(Type from, Type to, bool is_signed) {
  if (from == Type::kF32) {
    if (to == Type::kI32) {
      return is_signed ? Limits{"-2147483648.0f", "2147483648.0f", true} : Limits{"-1.0f", "4294967296.0f", false};
    }
    return is_signed ? Limits{"-9223372036854775808.0f", "9223372036854775808.0f", true}
                     : Limits{"-1.0f", "18446744073709551616.0f", false};
  }
  if (to == Type::kI32) {
    return is_signed ? Limits{"-2147483649.0", "2147483648.0", false} : Limits{"-1.0", "4294967296.0", false};
  }
  return is_signed ? Limits{"-9223372036854775808.0", "9223372036854775808.0", true}
                   : Limits{"-1.0", "18446744073709551616.0", false};
}

}  // namespace

std::string Arithmetic::IntUnary(const Op& op) {
  const std::string& a = text_.Operand(op, 0);
  const std::string one = Literal(op.type, 1);
  const std::string_view wide = SignedName(op.type), type = TypeName(op.type);
  switch (op.code) {
    case Opcode::kClz:
      return Cat("clz(", a, ")");
    case Opcode::kCtz:
      return Cat("popcount(~", a, " & (", a, " - ", one, "))");
    case Opcode::kPopcnt:
      return Cat("popcount(", a, ")");
    case Opcode::kExtend8:
      return Cat("(", type, ")(", wide, ")(char)", a);
    case Opcode::kExtend16:
      return Cat("(", type, ")(", wide, ")(short)", a);
    default:
      return Cat("(", type, ")(", wide, ")(int)", a);
  }
}

void Arithmetic::WriteIntBinary(OpId id) {
  const Op& op = v_.f.op(id);
  const std::string& a = text_.Operand(op, 0);
  const std::string& b = text_.Operand(op, 1);
  const std::string_view type = TypeName(op.type), wide = SignedName(op.type);
  const uint32_t bits = 8 * ir::Bytes(op.type);
  const auto plain = [&](std::string_view sign) { text_.Define(op.first_result, Cat(a, " ", sign, " ", b)); };
  uint64_t count = 0;
  const std::string by = text_.ConstantOf(v_.f.operands_of(op)[1], &count)
                             ? Literal(op.type, count % bits)
                             : Cat("(", b, " & ", Literal(op.type, bits - 1), ")");
  switch (op.code) {
    case Opcode::kAdd:
      return plain("+");
    case Opcode::kSub:
      return plain("-");
    case Opcode::kMul:
      return plain("*");
    case Opcode::kAnd:
      return plain("&");
    case Opcode::kOr:
      return plain("|");
    case Opcode::kXor:
      return plain("^");
    case Opcode::kShl:
      return text_.Define(op.first_result, Cat(a, " << ", by));
    case Opcode::kShrU:
      return text_.Define(op.first_result, Cat(a, " >> ", by));
    case Opcode::kShrS:
      return text_.Define(op.first_result, Cat("(", type, ")((", wide, ")", a, " >> ", by, ")"));
    case Opcode::kRotl:
      return text_.Define(op.first_result, Cat("rotate(", a, ", ", by, ")"));
    case Opcode::kRotr:
      return text_.Define(op.first_result, Cat("rotate(", a, ", (", Literal(op.type, 0), " - ", by, ") & ",
                                               Literal(op.type, bits - 1), ")"));
    default:
      return WriteDivision(id);
  }
}

void Arithmetic::WriteDivision(OpId id) {
  const Op& op = v_.f.op(id);
  const std::string& a = text_.Operand(op, 0);
  const std::string& b = text_.Operand(op, 1);
  const std::string zero = Literal(op.type, 0);
  const std::string minus_one = Literal(op.type, ir::Bytes(op.type) == 4 ? 0xffffffffull : ~uint64_t{0});
  const std::string lowest = Literal(op.type, uint64_t{1} << (8 * ir::Bytes(op.type) - 1));
  uint64_t divisor = 0;
  const bool is_constant = text_.ConstantOf(v_.f.operands_of(op)[1], &divisor);
  const bool is_minus_one = is_constant && Literal(op.type, divisor) == minus_one;
  if (!is_constant || divisor == 0) {
    traps_.Trap(id, Cat(b, " == ", zero), ir::TrapCode::kDivideByZero);
  }
  if (op.code == Opcode::kDivS && (!is_constant || is_minus_one)) {
    traps_.Trap(id, Cat(a, " == ", lowest, " && ", b, " == ", minus_one), ir::TrapCode::kIntegerOverflow);
  }
  const std::string_view type = TypeName(op.type), wide = SignedName(op.type);
  if (is_constant && divisor == 0) {
    return text_.Define(op.first_result, zero);  // Never reached; compilers refuse to divide by zero.
  }
  switch (op.code) {
    case Opcode::kDivU:
      return text_.Define(op.first_result, Cat(a, " / ", b));
    case Opcode::kRemU:
      return text_.Define(op.first_result, Cat(a, " % ", b));
    case Opcode::kDivS:
      return text_.Define(op.first_result, Cat("(", type, ")((", wide, ")", a, " / (", wide, ")", b, ")"));
    default:
      if (is_minus_one) {
        return text_.Define(op.first_result, zero);
      }
      return text_.Define(op.first_result, Cat(is_constant ? "" : Cat(b, " == ", minus_one, " ? ", zero, " : "), "(",
                                               type, ")((", wide, ")", a, " % (", wide, ")", b, ")"));
  }
}

std::string Arithmetic::IntCompare(const Op& op) {
  if (op.code == Opcode::kEqz) {
    return Cat("(uint)(", text_.Operand(op, 0), " == ", Literal(op.type, 0), ")");
  }
  constexpr std::string_view kSigns[] = {"==", "!=", "<", "<", ">", ">", "<=", "<=", ">=", ">="};
  constexpr bool kSigned[] = {false, false, true, false, true, false, true, false, true, false};
  const size_t which = static_cast<size_t>(op.code) - static_cast<size_t>(Opcode::kEq);
  const std::string cast = kSigned[which] ? Cat("(", SignedName(op.type), ")") : "";
  std::string operands[] = {text_.Operand(op, 0), text_.Operand(op, 1)};
  if (!hidden_compares_.empty() && hidden_compares_[op.first_result.index] != 0) {
    const std::string once = op.type == Type::kI64 ? "once64" : "once32";
    v_.helpers.Need(once);
    std::string& counter = operands[hidden_compares_[op.first_result.index] - 1];
    counter = Cat(once, "(", counter, ")");
  }
  return Cat("(uint)(", cast, operands[0], " ", kSigns[which], " ", cast, operands[1], ")");
}

// NVIDIA's compiler assumes that sums, products and quotients of constants are numbers, even 0 / 0, and therefore
// equal to themselves. It does not simplify tests of their bits.
std::string Arithmetic::FloatCompare(const Op& op) {
  constexpr std::string_view kSigns[] = {"==", "!=", "<", ">", "<=", ">="};
  const std::string &a = text_.Operand(op, 0), &b = text_.Operand(op, 1);
  const bool is_of_itself = a == b && (op.code == Opcode::kFEq || op.code == Opcode::kFNe);
  if (is_of_itself && !v_.target.is_processor) {
    return Cat("(uint)((", BitsOf(op.type), "(", a, ") & ", NoSign(op.type), ") ",
               op.code == Opcode::kFNe ? ">" : "<=", " ",
               op.type == Type::kF64 ? "0x7ff0000000000000ul" : "0x7f800000u", ")");
  }
  const size_t which = static_cast<size_t>(op.code) - static_cast<size_t>(Opcode::kFEq);
  return Cat("(uint)(", a, " ", kSigns[which], " ", b, ")");
}

// PoCL assumes that a rounded value is a number that fits an integer, and folds a NaN, an infinity or a large number
// known at compile time into an arbitrary value. From 2^23 (f64: 2^52) on all numbers are whole.
std::string Arithmetic::Rounded(std::string_view function, Type type, const std::string& a) const {
  if (!v_.target.is_processor) {
    return Cat(function, "(", a, ")");
  }
  const std::string_view whole = type == Type::kF64 ? "4503599627370496.0" : "8388608.0f";
  return Cat("fabs(", a, ") < ", whole, " ? ", function, "(", a, ") : ", a, " != ", a, " ? ", a, " + ", a, " : ", a);
}

std::string Arithmetic::FloatUnary(const Op& op) {
  const std::string& a = text_.Operand(op, 0);
  switch (op.code) {
    case Opcode::kFAbs:
      return Cat(FromBits(op.type), "(", BitsOf(op.type), "(", a, ") & ", NoSign(op.type), ")");
    case Opcode::kFNeg:
      return Cat(FromBits(op.type), "(", BitsOf(op.type), "(", a, ") ^ ", SignBit(op.type), ")");
    case Opcode::kFCeil:
      return Rounded("ceil", op.type, a);
    case Opcode::kFFloor:
      return Rounded("floor", op.type, a);
    case Opcode::kFTrunc:
      return Rounded("trunc", op.type, a);
    case Opcode::kFNearest:
      return Rounded("rint", op.type, a);
    default:
      break;
  }
  if (op.type == Type::kF32 && IsFast(op)) {
    v_.helpers.Need("fast_sqrt");
    return Cat("fast_sqrt(", a, ")");
  }
  if (op.type == Type::kF64 || v_.target.exact_divide) {
    return Cat("sqrt(", a, ")");
  }
  if (v_.target.has_fp64) {
    return Narrowed(Cat("sqrt((double)", a, ")"));
  }
  v_.helpers.Need("sqrt_f32");
  return Cat("sqrt_f32(", a, ")");
}

std::string Arithmetic::Approx(const Op& op) {
  const std::string_view name = ir::Info(op.code).text;
  v_.helpers.Need(name);
  return Cat(name, "(", text_.Operand(op, 0), ")");
}

// Rounds a 64-bit result on 32-bit operands to 32 bits: 53 bits are more than twice 24 plus two, so double rounding is
// innocuous. The narrowing must be hidden from compilers: LLVM, and so NVIDIA's compiler, would compute in 32 bits
// with the device's accuracy.
std::string Arithmetic::Narrowed(const std::string& wide) {
  v_.helpers.uses_fp64 = true;
  v_.helpers.Need("once64");
  return Cat("(float)as_double(once64(as_ulong(", wide, ")))");
}

std::string Arithmetic::FloatBinary(const Op& op) {
  const std::string& a = text_.Operand(op, 0);
  const std::string& b = text_.Operand(op, 1);
  switch (op.code) {
    case Opcode::kFAdd:
      return Cat(a, " + ", b);
    case Opcode::kFSub:
      return Cat(a, " - ", b);
    case Opcode::kFMul:
      return Cat(a, " * ", b);
    case Opcode::kFMin:
    case Opcode::kFMax: {
      const std::string name = Cat(op.code == Opcode::kFMin ? "fmin_" : "fmax_", FloatSuffix(op.type));
      v_.helpers.Need(name);
      return Cat(name, "(", a, ", ", b, ")");
    }
    case Opcode::kFCopysign:
      return Cat(FromBits(op.type), "((", BitsOf(op.type), "(", a, ") & ", NoSign(op.type), ") | (", BitsOf(op.type),
                 "(", b, ") & ", SignBit(op.type), "))");
    default:
      break;
  }
  if (op.type == Type::kF32 && IsFast(op)) {
    if (const Op* root = analysis::ReciprocalRootIn(definitions_, v_.f, op); root != nullptr && IsFast(*root)) {
      v_.helpers.Need("fast_rsqrt");
      return Cat("fast_rsqrt(", text_.Operand(*root, 0), ")");
    }
    v_.helpers.Need("fast_divide");
    return Cat("fast_divide(", a, ", ", b, ")");
  }
  if (op.type == Type::kF64 || v_.target.exact_divide) {
    return Cat(a, " / ", b);
  }
  if (v_.target.has_fp64) {
    return Narrowed(Cat("(double)", a, " / (double)", b));
  }
  v_.helpers.Need("div_f32");
  return Cat("div_f32(", a, ", ", b, ")");
}

ir::FastMath Arithmetic::FastMathOf(const Op& op) const {
  const uint32_t written = op.origin != 0 ? op.origin - 1 : v_.module.entry.index;
  return v_.options.fast_math && !v_.target.is_processor ? v_.module.functions[written].fast_math : ir::FastMath::kNone;
}

// Returns a sum of a product as one operation; empty if it is none. The math library depends on which product is
// fused: never one that its caller passes to it (compiler/math/device_f32.h, MinusProduct).
std::string Arithmetic::Contracted(OpId id) {
  const Op& op = v_.f.op(id);
  const ir::FastMath reach = FastMathOf(op);
  if (reach == ir::FastMath::kNone || (op.code != Opcode::kFAdd && op.code != Opcode::kFSub)) {
    return "";
  }
  for (uint32_t i = 0; i < 2; ++i) {
    const Op* product = text_.DefinitionOf(v_.f.operands_of(op)[i]);
    if (product == nullptr || product->code != Opcode::kFMul || FastMathOf(*product) == ir::FastMath::kNone ||
        (reach == ir::FastMath::kContract && product->origin != op.origin)) {
      continue;
    }
    const std::string& other = text_.Operand(op, 1 - i);
    const bool is_sub = op.code == Opcode::kFSub;
    // a * b - c, and c - a * b.
    return Cat("fma(", is_sub && i == 1 ? "-" : "", text_.Operand(*product, 0), ", ", text_.Operand(*product, 1), ", ",
               is_sub && i == 0 ? "-" : "", other, ")");
  }
  return "";
}

void Arithmetic::WriteFloatBinary(OpId id) {
  const Op& op = v_.f.op(id);
  const std::string contracted = Contracted(id);
  text_.Define(op.first_result, contracted.empty() ? FloatBinary(op) : contracted);
}

void Arithmetic::WriteConvert(OpId id) {
  const Op& op = v_.f.op(id);
  const std::string& a = text_.Operand(op, 0);
  const Type to = text_.TypeOf(op.first_result);
  const std::string_view type = TypeName(to);
  if (to == Type::kF64) {
    v_.helpers.uses_fp64 = true;
  }
  switch (op.code) {
    case Opcode::kTruncS:
    case Opcode::kTruncU:
    case Opcode::kTruncSatS:
    case Opcode::kTruncSatU:
      return WriteTrunc(id);
    case Opcode::kExtendS:
      return text_.Define(op.first_result, Cat("(ulong)(long)(int)", a));
    case Opcode::kConvertS:
      return text_.Define(op.first_result, Cat("(", type, ")(", SignedName(op.type), ")", a));
    case Opcode::kReinterpret:
      return text_.Define(op.first_result, Cat("as_", type, "(", a, ")"));
    default:  // wrap, extend_u, convert_u, demote, promote
      return text_.Define(op.first_result, Cat("(", type, ")", a));
  }
}

void Arithmetic::WriteTrunc(OpId id) {
  const Op& op = v_.f.op(id);
  const std::string& a = text_.Operand(op, 0);
  const Type to = text_.TypeOf(op.first_result);
  const bool is_signed = op.code == Opcode::kTruncS || op.code == Opcode::kTruncSatS;
  const Limits limits = LimitsOf(op.type, to, is_signed);
  const std::string above_lower = Cat(a, limits.takes_lower ? " >= " : " > ", limits.lower);
  const std::string_view type = TypeName(to);
  const std::string converted = is_signed ? Cat("(", type, ")(", SignedName(to), ")", a) : Cat("(", type, ")", a);
  if (op.code == Opcode::kTruncS || op.code == Opcode::kTruncU) {
    traps_.Trap(id, Cat(a, " != ", a), ir::TrapCode::kInvalidConversion);
    traps_.Trap(id, Cat("!(", above_lower, " && ", a, " < ", limits.upper, ")"), ir::TrapCode::kIntegerOverflow);
    return text_.Define(op.first_result, converted);
  }
  const uint32_t bits = 8 * ir::Bytes(to);
  const uint64_t all = bits == 32 ? 0xffffffffull : ~uint64_t{0};
  const std::string highest = Literal(to, is_signed ? all >> 1 : all);
  const std::string lowest = Literal(to, is_signed ? uint64_t{1} << (bits - 1) : 0);
  text_.Define(op.first_result, Cat(a, " != ", a, " ? ", Literal(to, 0), " : !(", above_lower, ") ? ", lowest, " : ", a,
                                    " < ", limits.upper, " ? ", converted, " : ", highest));
}

}  // namespace hpvm::opencl
