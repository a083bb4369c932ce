// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "compiler/ir/verify/verify_op.h"

namespace hpvm::ir {
namespace {

std::string List(std::span<const Type> types) {
  std::string text = "(";
  for (const Type type : types) {
    text += text.size() > 1 ? ", " : "";
    text += Name(type);
  }
  return text + ")";
}

std::string CheckConversion(const OpContext& c) {
  const Type from = c.op.type;
  if (c.op.result_count != 1) {
    return "A conversion has one result; this one has " + std::to_string(c.op.result_count) + ".";
  }
  const Type to = c.result(0);
  bool ok = false;
  switch (c.op.code) {
    case Opcode::kWrap:
      ok = from == Type::kI64 && to == Type::kI32;
      break;
    case Opcode::kExtendS:
    case Opcode::kExtendU:
      ok = from == Type::kI32 && to == Type::kI64;
      break;
    case Opcode::kConvertS:
    case Opcode::kConvertU:
      ok = IsInt(from) && !IsInt(to);
      break;
    case Opcode::kDemote:
      ok = from == Type::kF64 && to == Type::kF32;
      break;
    case Opcode::kPromote:
      ok = from == Type::kF32 && to == Type::kF64;
      break;
    case Opcode::kReinterpret:
      ok = IsInt(from) != IsInt(to) && Bytes(from) == Bytes(to);
      break;
    default:  // Truncations.
      ok = !IsInt(from) && IsInt(to);
  }
  if (!ok) {
    return "A conversion from " + std::string(Name(from)) + " to " + std::string(Name(to)) + " does not exist.";
  }
  return ExpectSignature(c, {from}, {to});
}

std::string WrongClass(const OpContext& c) {
  return "The operation does not exist for " + std::string(Name(c.op.type)) + ".";
}

}  // namespace

std::string ExpectOperands(const OpContext& c, std::span<const Type> types, uint32_t first_operand) {
  std::vector<Type> found;
  for (uint32_t i = first_operand; i < c.op.operand_count; ++i) {
    found.push_back(c.operand(i));
  }
  if (c.op.operand_count >= first_operand && std::equal(found.begin(), found.end(), types.begin(), types.end())) {
    return "";
  }
  return "The operands " + List(found) + " are not of the types " + List(types) + ".";
}

std::string ExpectResults(const OpContext& c, std::span<const Type> types) {
  const std::vector<Type> found = c.function.types_of(ResultsOf(c.op));
  if (std::equal(found.begin(), found.end(), types.begin(), types.end())) {
    return "";
  }
  return "The results " + List(found) + " are not of the types " + List(types) + ".";
}

std::string ExpectSignature(const OpContext& c, std::initializer_list<Type> operands,
                            std::initializer_list<Type> results) {
  std::string fault = ExpectOperands(c, {operands.begin(), operands.size()});
  return fault.empty() ? ExpectResults(c, {results.begin(), results.size()}) : fault;
}

std::string CheckArithmetic(const OpContext& c) {
  const Type type = c.op.type;
  switch (Info(c.op.code).family) {
    case Family::kConst:
      if (Bytes(type) == 4 && c.op.imm > 0xffffffffu) {
        return "The constant does not fit " + std::string(Name(type)) + ".";
      }
      return ExpectSignature(c, {}, {type});
    case Family::kIntUnary:
      if (!IsInt(type) || (c.op.code == Opcode::kExtend32 && type != Type::kI64)) {
        return WrongClass(c);
      }
      return ExpectSignature(c, {type}, {type});
    case Family::kIntBinary:
      return IsInt(type) ? ExpectSignature(c, {type, type}, {type}) : WrongClass(c);
    case Family::kIntCompare:
      if (!IsInt(type)) {
        return WrongClass(c);
      }
      return c.op.code == Opcode::kEqz ? ExpectSignature(c, {type}, {Type::kI32})
                                       : ExpectSignature(c, {type, type}, {Type::kI32});
    case Family::kFloatUnary:
      return IsInt(type) ? WrongClass(c) : ExpectSignature(c, {type}, {type});
    case Family::kApprox:
      return type != Type::kF32 ? WrongClass(c) : ExpectSignature(c, {type}, {type});
    case Family::kFloatBinary:
      return IsInt(type) ? WrongClass(c) : ExpectSignature(c, {type, type}, {type});
    case Family::kFloatCompare:
      return IsInt(type) ? WrongClass(c) : ExpectSignature(c, {type, type}, {Type::kI32});
    case Family::kConvert:
      return CheckConversion(c);
    default:
      return ExpectSignature(c, {Type::kI32, type, type}, {type});  // select
  }
}

}  // namespace hpvm::ir
