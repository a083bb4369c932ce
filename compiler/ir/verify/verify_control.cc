// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "compiler/ir/verify/verify_op.h"

namespace hpvm::ir {
namespace {

std::string CheckCall(const OpContext& c) {
  if (c.op.imm >= c.module.functions.size()) {
    return "The function (" + std::to_string(c.op.imm) + ") does not exist; the module has " +
           std::to_string(c.module.functions.size()) + ".";
  }
  const FunctionType& type = c.module.functions[c.op.imm].type;
  std::string fault = ExpectOperands(c, type.params);
  return fault.empty() ? ExpectResults(c, type.results) : fault;
}

std::string CheckCallRef(const OpContext& c) {
  const std::vector<FunctionType>& types = c.module.reference_types;
  if (c.op.imm >= types.size()) {
    return "The reference type (" + std::to_string(c.op.imm) + ") does not exist; the module has " +
           std::to_string(types.size()) + ".";
  }
  if (c.op.operand_count == 0 || c.operand(0) != Type::kI32) {
    return "The first operand of a call_ref is the i32 reference.";
  }
  std::string fault = ExpectOperands(c, types[c.op.imm].params, 1);
  return fault.empty() ? ExpectResults(c, types[c.op.imm].results) : fault;
}

// Checks O6 except for the types, which VerifyUses compares across the module.
std::string CheckPrint(const OpContext& c) {
  if (c.op.imm >= c.module.formats.size()) {
    return "The format (" + std::to_string(c.op.imm) + ") does not exist; the module has " +
           std::to_string(c.module.formats.size()) + ".";
  }
  if (c.op.operand_count > limits::kPrintOperandsMax) {
    return "A print passes more values (" + std::to_string(c.op.operand_count) + ") than the limit (" +
           std::to_string(limits::kPrintOperandsMax) + ").";
  }
  return ExpectResults(c, {});
}

std::string CheckBlock(const OpContext& c) {
  return ExpectOperands(c, c.function.types_of(ParamsOf(c.function.region(c.op.body))));
}

std::string CheckIf(const OpContext& c) {
  if (c.function.region(c.op.body).param_count != 0 || c.function.region(c.op.otherwise).param_count != 0) {
    return "The regions of an if take no parameters.";
  }
  return ExpectOperands(c, std::vector{Type::kI32});
}

std::string CheckTargets(const OpContext& c, uint32_t first_value) {
  const Function& f = c.function;
  // A table may name one target thousands of times; the target is checked once.
  std::vector<std::pair<OpId, bool>> targets;
  for (const Target& target : f.targets_of(c.op)) {
    targets.emplace_back(target.op, target.is_continue);
  }
  std::ranges::sort(targets);
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  for (const auto& [id, is_continue] : targets) {
    const Op& op = f.op(id);
    if (is_continue && op.code != Opcode::kLoop) {
      return "Only a loop can be continued.";
    }
    const std::vector<Type> types = f.types_of(SlotsOf(f, {id, is_continue}));
    if (std::string fault = ExpectOperands(c, types, first_value); !fault.empty()) {
      return fault;
    }
  }
  return "";
}

std::string CheckBrTable(const OpContext& c) {
  if (c.op.target_count == 0) {
    return "A br_table has no default target.";
  }
  if (c.op.operand_count == 0 || c.operand(0) != Type::kI32) {
    return "The first operand of a br_table is the i32 index.";
  }
  return CheckTargets(c, 1);
}

std::string CheckJump(const OpContext& c) {
  if (c.op.target_count != 1) {
    return "A leave or continue has one target.";
  }
  if (c.function.targets_of(c.op)[0].is_continue != (c.op.code == Opcode::kContinue)) {
    return "The target's kind does not match the terminator's.";
  }
  return CheckTargets(c, 0);
}

}  // namespace

std::string CheckControl(const OpContext& c) {
  if (IsTerminator(c.op.code) && c.op.result_count != 0) {
    return "A terminator has no results.";
  }
  switch (c.op.code) {
    case Opcode::kCall:
      return CheckCall(c);
    case Opcode::kCallRef:
      return CheckCallRef(c);
    case Opcode::kPrint:
      return CheckPrint(c);
    case Opcode::kBlock:
    case Opcode::kLoop:
      return CheckBlock(c);
    case Opcode::kIf:
      return CheckIf(c);
    case Opcode::kBr:
    case Opcode::kContinue:
      return CheckJump(c);
    case Opcode::kBrTable:
      return CheckBrTable(c);
    case Opcode::kReturn:
      return ExpectOperands(c, c.function.type.results);
    default:  // trap
      if (c.op.imm < 1 || c.op.imm > static_cast<uint64_t>(TrapCode::kHost)) {
        return "The trap code (" + std::to_string(c.op.imm) + ") does not exist.";
      }
      return ExpectOperands(c, {});
  }
}

}  // namespace hpvm::ir
