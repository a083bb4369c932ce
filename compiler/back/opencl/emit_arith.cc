// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/opencl/kernel_writer.h"
#include "compiler/back/opencl/literal.h"

namespace hpvm::opencl {
namespace {

using ir::Opcode;
using ir::Type;

std::string_view FloatSuffix(Type type) { return type == Type::kF32 ? "f32" : "f64"; }
std::string_view BitsOf(Type type) { return type == Type::kF32 ? "as_uint" : "as_ulong"; }
std::string_view FromBits(Type type) { return type == Type::kF32 ? "as_float" : "as_double"; }
std::string SignBit(Type type) { return type == Type::kF32 ? "0x80000000u" : "0x8000000000000000ul"; }
std::string NoSign(Type type) { return type == Type::kF32 ? "0x7fffffffu" : "0x7ffffffffffffffful"; }

// Between which floats a conversion fits: lower < a (or <= a) and a < upper.
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

void KernelWriter::WriteOp(OpId id) {
  const Op& op = function_.op(id);
  const auto define = [&](const std::string& expression) { Define(op.first_result, expression); };
  if (op.type == Type::kF64) {
    helpers_.uses_fp64 = true;
  }
  switch (ir::Info(op.code).family) {
    case ir::Family::kConst:
      return;
    case ir::Family::kIntUnary:
      return define(IntUnary(op));
    case ir::Family::kIntBinary:
      return WriteIntBinary(id);
    case ir::Family::kIntCompare:
      return define(IntCompare(op));
    case ir::Family::kFloatUnary:
      return define(FloatUnary(op));
    case ir::Family::kFloatBinary:
      return WriteFloatBinary(id);
    case ir::Family::kFloatCompare: {
      constexpr std::string_view kSigns[] = {"==", "!=", "<", ">", "<=", ">="};
      const size_t which = static_cast<size_t>(op.code) - static_cast<size_t>(Opcode::kFEq);
      return define(Cat("(uint)(", Operand(op, 0), " ", kSigns[which], " ", Operand(op, 1), ")"));
    }
    case ir::Family::kConvert:
      return WriteConvert(id);
    case ir::Family::kSelect:
      return define(Cat(Operand(op, 0), " != 0u ? ", Operand(op, 1), " : ", Operand(op, 2)));
    case ir::Family::kMemory:
      return WriteAccess(id);
    case ir::Family::kAtomic:
      return WriteAtomic(id);
    case ir::Family::kGlobal:
      if (op.code == Opcode::kGlobalSet) {
        globals_.insert(static_cast<uint32_t>(op.imm));
        return Line("g", op.imm, " = ", Operand(op, 0), ";");
      }
      if (!module_.globals[op.imm].is_mutable) {
        return define(Literal(module_.globals[op.imm].type, module_.globals[op.imm].init));
      }
      globals_.insert(static_cast<uint32_t>(op.imm));
      return define(Cat("g", op.imm));
    case ir::Family::kQuery:
      return WriteQuery(op);
    case ir::Family::kSync:
      return op.code == Opcode::kBarrier ? WriteBarrier() : WriteLocalAlloc(id);
    default:
      return;  // The plan has refused calls.
  }
}

std::string KernelWriter::IntUnary(const Op& op) {
  const std::string& a = Operand(op, 0);
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

void KernelWriter::WriteIntBinary(OpId id) {
  const Op& op = function_.op(id);
  const std::string& a = Operand(op, 0);
  const std::string& b = Operand(op, 1);
  const std::string_view type = TypeName(op.type), wide = SignedName(op.type);
  const uint32_t bits = 8 * ir::Bytes(op.type);
  const auto plain = [&](std::string_view sign) { Define(op.first_result, Cat(a, " ", sign, " ", b)); };
  uint64_t count = 0;
  const std::string by = ConstantOf(function_.operands_of(op)[1], &count)
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
      return Define(op.first_result, Cat(a, " << ", by));
    case Opcode::kShrU:
      return Define(op.first_result, Cat(a, " >> ", by));
    case Opcode::kShrS:
      return Define(op.first_result, Cat("(", type, ")((", wide, ")", a, " >> ", by, ")"));
    case Opcode::kRotl:
      return Define(op.first_result, Cat("rotate(", a, ", ", by, ")"));
    case Opcode::kRotr:
      return Define(op.first_result,
                    Cat("rotate(", a, ", (", Literal(op.type, 0), " - ", by, ") & ", Literal(op.type, bits - 1), ")"));
    default:
      return WriteDivision(id);
  }
}

void KernelWriter::WriteDivision(OpId id) {
  const Op& op = function_.op(id);
  const std::string& a = Operand(op, 0);
  const std::string& b = Operand(op, 1);
  const std::string zero = Literal(op.type, 0);
  const std::string minus_one = Literal(op.type, ir::Bytes(op.type) == 4 ? 0xffffffffull : ~uint64_t{0});
  const std::string lowest = Literal(op.type, uint64_t{1} << (8 * ir::Bytes(op.type) - 1));
  uint64_t divisor = 0;
  const bool is_constant = ConstantOf(function_.operands_of(op)[1], &divisor);
  const bool is_minus_one = is_constant && Literal(op.type, divisor) == minus_one;
  if (!is_constant || divisor == 0) {
    Trap(id, Cat(b, " == ", zero), ir::TrapCode::kDivideByZero);
  }
  if (op.code == Opcode::kDivS && (!is_constant || is_minus_one)) {
    Trap(id, Cat(a, " == ", lowest, " && ", b, " == ", minus_one), ir::TrapCode::kIntegerOverflow);
  }
  const std::string_view type = TypeName(op.type), wide = SignedName(op.type);
  if (is_constant && divisor == 0) {
    return Define(op.first_result, zero);  // Never reached; compilers refuse to divide by it.
  }
  switch (op.code) {
    case Opcode::kDivU:
      return Define(op.first_result, Cat(a, " / ", b));
    case Opcode::kRemU:
      return Define(op.first_result, Cat(a, " % ", b));
    case Opcode::kDivS:
      return Define(op.first_result, Cat("(", type, ")((", wide, ")", a, " / (", wide, ")", b, ")"));
    default:
      if (is_minus_one) {
        return Define(op.first_result, zero);
      }
      return Define(op.first_result, Cat(is_constant ? "" : Cat(b, " == ", minus_one, " ? ", zero, " : "), "(", type,
                                         ")((", wide, ")", a, " % (", wide, ")", b, ")"));
  }
}

std::string KernelWriter::IntCompare(const Op& op) {
  if (op.code == Opcode::kEqz) {
    return Cat("(uint)(", Operand(op, 0), " == ", Literal(op.type, 0), ")");
  }
  constexpr std::string_view kSigns[] = {"==", "!=", "<", "<", ">", ">", "<=", "<=", ">=", ">="};
  constexpr bool kSigned[] = {false, false, true, false, true, false, true, false, true, false};
  const size_t which = static_cast<size_t>(op.code) - static_cast<size_t>(Opcode::kEq);
  const std::string cast = kSigned[which] ? Cat("(", SignedName(op.type), ")") : "";
  return Cat("(uint)(", cast, Operand(op, 0), " ", kSigns[which], " ", cast, Operand(op, 1), ")");
}

// PoCL takes it that what is rounded is a number, and makes anything of a NaN that it sees when it compiles.
std::string KernelWriter::Rounded(std::string_view function, const std::string& a) const {
  return target_.is_processor ? Cat(a, " != ", a, " ? ", a, " + ", a, " : ", function, "(", a, ")")
                              : Cat(function, "(", a, ")");
}

std::string KernelWriter::FloatUnary(const Op& op) {
  const std::string& a = Operand(op, 0);
  switch (op.code) {
    case Opcode::kFAbs:
      return Cat(FromBits(op.type), "(", BitsOf(op.type), "(", a, ") & ", NoSign(op.type), ")");
    case Opcode::kFNeg:
      return Cat(FromBits(op.type), "(", BitsOf(op.type), "(", a, ") ^ ", SignBit(op.type), ")");
    case Opcode::kFCeil:
      return Rounded("ceil", a);
    case Opcode::kFFloor:
      return Rounded("floor", a);
    case Opcode::kFTrunc:
      return Rounded("trunc", a);
    case Opcode::kFNearest:
      return Rounded("rint", a);
    default:
      break;
  }
  if (op.type == Type::kF64 || target_.exact_divide) {
    return Cat("sqrt(", a, ")");
  }
  if (target_.has_fp64) {
    return Narrowed(Cat("sqrt((double)", a, ")"));
  }
  helpers_.Need("sqrt_f32");
  return Cat("sqrt_f32(", a, ")");
}

// An operation of 64 bits on operands of 32: 53 bits are more than twice 24 and two, so that rounding twice rounds as
// once. No compiler may see that the result is made smaller: LLVM, and so NVIDIA's compiler, would compute in 32 bits,
// as inexactly as the device likes.
std::string KernelWriter::Narrowed(const std::string& wide) {
  helpers_.uses_fp64 = true;
  helpers_.Need("once64");
  return Cat("(float)as_double(once64(as_ulong(", wide, ")))");
}

std::string KernelWriter::FloatBinary(const Op& op) {
  const std::string& a = Operand(op, 0);
  const std::string& b = Operand(op, 1);
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
      helpers_.Need(name);
      return Cat(name, "(", a, ", ", b, ")");
    }
    case Opcode::kFCopysign:
      return Cat(FromBits(op.type), "((", BitsOf(op.type), "(", a, ") & ", NoSign(op.type), ") | (", BitsOf(op.type),
                 "(", b, ") & ", SignBit(op.type), "))");
    default:
      break;
  }
  if (op.type == Type::kF64 || target_.exact_divide) {
    return Cat(a, " / ", b);
  }
  if (target_.has_fp64) {
    return Narrowed(Cat("(double)", a, " / (double)", b));
  }
  helpers_.Need("div_f32");
  return Cat("div_f32(", a, ", ", b, ")");
}

bool KernelWriter::MayContract(const Op& op) const {
  const uint32_t written = op.origin != 0 ? op.origin - 1 : module_.entry.index;
  return options_.fast_math && !target_.is_processor && module_.functions[written].fast_math != ir::FastMath::kNone;
}

// A sum of a product that nothing else needs, as one operation; empty if it is none.
std::string KernelWriter::Contracted(OpId id) {
  const Op& op = function_.op(id);
  if (!MayContract(op) || (op.code != Opcode::kFAdd && op.code != Opcode::kFSub)) {
    return "";
  }
  for (uint32_t i = 0; i < 2; ++i) {
    const Op* product = definitions_[function_.operands_of(op)[i].index];
    if (product == nullptr || product->code != Opcode::kFMul || !MayContract(*product)) {
      continue;
    }
    const std::string& other = Operand(op, 1 - i);
    const bool is_sub = op.code == Opcode::kFSub;
    // a * b - c, and c - a * b.
    return Cat("fma(", is_sub && i == 1 ? "-" : "", Operand(*product, 0), ", ", Operand(*product, 1), ", ",
               is_sub && i == 0 ? "-" : "", other, ")");
  }
  return "";
}

void KernelWriter::WriteFloatBinary(OpId id) {
  const Op& op = function_.op(id);
  const std::string contracted = Contracted(id);
  Define(op.first_result, contracted.empty() ? FloatBinary(op) : contracted);
}

void KernelWriter::WriteConvert(OpId id) {
  const Op& op = function_.op(id);
  const std::string& a = Operand(op, 0);
  const Type to = TypeOf(op.first_result);
  const std::string_view type = TypeName(to);
  if (to == Type::kF64) {
    helpers_.uses_fp64 = true;
  }
  switch (op.code) {
    case Opcode::kTruncS:
    case Opcode::kTruncU:
    case Opcode::kTruncSatS:
    case Opcode::kTruncSatU:
      return WriteTrunc(id);
    case Opcode::kExtendS:
      return Define(op.first_result, Cat("(ulong)(long)(int)", a));
    case Opcode::kConvertS:
      return Define(op.first_result, Cat("(", type, ")(", SignedName(op.type), ")", a));
    case Opcode::kReinterpret:
      return Define(op.first_result, Cat("as_", type, "(", a, ")"));
    default:  // wrap, extend_u, convert_u, demote, promote
      return Define(op.first_result, Cat("(", type, ")", a));
  }
}

void KernelWriter::WriteTrunc(OpId id) {
  const Op& op = function_.op(id);
  const std::string& a = Operand(op, 0);
  const Type to = TypeOf(op.first_result);
  const bool is_signed = op.code == Opcode::kTruncS || op.code == Opcode::kTruncSatS;
  const Limits limits = LimitsOf(op.type, to, is_signed);
  const std::string above_lower = Cat(a, limits.takes_lower ? " >= " : " > ", limits.lower);
  const std::string_view type = TypeName(to);
  const std::string converted = is_signed ? Cat("(", type, ")(", SignedName(to), ")", a) : Cat("(", type, ")", a);
  if (op.code == Opcode::kTruncS || op.code == Opcode::kTruncU) {
    Trap(id, Cat(a, " != ", a), ir::TrapCode::kInvalidConversion);
    Trap(id, Cat("!(", above_lower, " && ", a, " < ", limits.upper, ")"), ir::TrapCode::kIntegerOverflow);
    return Define(op.first_result, converted);
  }
  const uint32_t bits = 8 * ir::Bytes(to);
  const uint64_t all = bits == 32 ? 0xffffffffull : ~uint64_t{0};
  const std::string highest = Literal(to, is_signed ? all >> 1 : all);
  const std::string lowest = Literal(to, is_signed ? uint64_t{1} << (bits - 1) : 0);
  Define(op.first_result, Cat(a, " != ", a, " ? ", Literal(to, 0), " : !(", above_lower, ") ? ", lowest, " : ", a,
                              " < ", limits.upper, " ? ", converted, " : ", highest));
}

void KernelWriter::WriteQuery(const Op& op) {
  const Type to = TypeOf(op.first_result);
  const std::string& dimension = Operand(op, 0);
  uint64_t constant = 0;
  const bool is_constant = ConstantOf(function_.operands_of(op)[0], &constant);
  std::string value;
  if (op.code == Opcode::kBufferSize) {
    value = "0ul";
    for (uint32_t k = 0; k < module_.params.size(); ++k) {
      if (!module_.params[k].is_buffer || (is_constant && constant != k)) {
        continue;
      }
      value = is_constant ? BufferBytes(k) : Cat("(", dimension, " == ", k, "u ? ", BufferBytes(k), " : ", value, ")");
    }
    return Define(op.first_result, to == Type::kI64 ? value : Cat("(uint)", value));
  }
  const auto read = [&](uint32_t d) -> std::string {
    switch (op.code) {
      case Opcode::kInstanceId:
        return InstanceId(d);
      case Opcode::kInstanceCount:
        return Fact(GpuArgument::Kind::kExtent, d);
      case Opcode::kGroupSize:
        return Fact(GpuArgument::Kind::kGroup, d);
      case Opcode::kGroupId:
        return Cat(InstanceId(d), " / ", Fact(GpuArgument::Kind::kGroup, d));
      default:
        return RunsByGroups() ? Cat("(uint)get_local_id(", d, ")")
                              : Cat(InstanceId(d), " % ", Fact(GpuArgument::Kind::kGroup, d));
    }
  };
  const std::string elsewhere = op.code == Opcode::kInstanceCount || op.code == Opcode::kGroupSize ? "1u" : "0u";
  if (is_constant) {
    value = constant < 3 ? read(static_cast<uint32_t>(constant)) : elsewhere;
  } else {
    value = Cat(dimension, " == 0u ? ", read(0), " : ", dimension, " == 1u ? ", read(1), " : ", dimension, " == 2u ? ",
                read(2), " : ", elsewhere);
  }
  Define(op.first_result, to == Type::kI64 ? Cat("(ulong)(", value, ")") : value);
}

}  // namespace hpvm::opencl
