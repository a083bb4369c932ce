// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/verify/verify_op.h"

namespace hpvm::ir {
namespace {

std::string CheckSpace(const OpContext& c) {
  const Op& op = c.op;
  if (op.space == Space::kPrivate) {
    return "The space private is not in use yet.";
  }
  if (op.space == Space::kParam && op.space_index >= c.module.params.size()) {
    return "The parameter (" + std::to_string(op.space_index) + ") does not exist; the kernel has " +
           std::to_string(c.module.params.size()) + ".";
  }
  if (op.space == Space::kParam && !c.module.params[op.space_index].is_buffer) {
    return "The parameter (" + std::to_string(op.space_index) + ") is not a buffer.";
  }
  if (op.space == Space::kStack) {
    if (&c.function != &c.module.functions[c.module.entry.index] || !c.module.stack_frame.has_value()) {
      return "The space stack does not exist outside of the entry of a module with a stack_frame.";
    }
    if (Info(op.code).family == Family::kAtomic || op.imm > c.module.stack_frame->begin) {
      return "The space stack has no atomics, and no immediates above the beginning of the stack's frame.";
    }
  }
  if (op.is_inside && (op.space != Space::kParam || Info(op.code).family == Family::kAtomic)) {
    return "Only loads and stores of a parameter's buffer can be known to lie inside.";
  }
  if (IsState(op.space) && Info(op.code).family == Family::kAtomic) {
    return "The space state has no atomics.";
  }
  if (op.code == Opcode::kLoad128 || op.code == Opcode::kStore128) {
    return op.width == 16 && !op.sign ? "" : "The width (" + std::to_string(op.width) + ") is not 16.";
  }
  const bool width_exists = op.width == 1 || op.width == 2 || op.width == 4 || op.width == 8;
  if (!width_exists || op.width > Bytes(op.type) || (!IsInt(op.type) && op.width != Bytes(op.type))) {
    return "The width (" + std::to_string(op.width) + ") does not exist for " + std::string(Name(op.type)) + ".";
  }
  if (op.sign && (op.code != Opcode::kLoad || !IsInt(op.type) || op.width == Bytes(op.type))) {
    return "Only loads narrower than their type are signed.";
  }
  return "";
}

std::string CheckAtomic(const OpContext& c, Type address) {
  const Type type = c.op.type;
  if (IsInt(type) == (c.op.code == Opcode::kAtomicFAdd)) {
    return "The operation does not exist for " + std::string(Name(type)) + ".";
  }
  switch (c.op.code) {
    case Opcode::kAtomicLoad:
      return ExpectSignature(c, {address}, {type});
    case Opcode::kAtomicStore:
      return ExpectSignature(c, {address, type}, {});
    case Opcode::kAtomicCmpxchg:
      return ExpectSignature(c, {address, type, type}, {type});
    default:
      return ExpectSignature(c, {address, type}, {type});
  }
}

std::string CheckGlobal(const OpContext& c) {
  if (c.op.imm >= c.module.globals.size()) {
    return "The global (" + std::to_string(c.op.imm) + ") does not exist; the module has " +
           std::to_string(c.module.globals.size()) + ".";
  }
  const Global& global = c.module.globals[c.op.imm];
  if (c.op.type != global.type) {
    return "The global is of type " + std::string(Name(global.type)) + ", the operation of " +
           std::string(Name(c.op.type)) + ".";
  }
  if (c.op.code == Opcode::kGlobalGet) {
    return ExpectSignature(c, {}, {global.type});
  }
  return global.is_mutable ? ExpectSignature(c, {global.type}, {}) : "The global is not mutable.";
}

}  // namespace

std::string CheckMemory(const OpContext& c) {
  const bool is_state = HasSpace(c.op.code) && IsState(c.op.space);
  const Type address = is_state ? Type::kI32 : c.module.address_type();
  constexpr Type kI32 = Type::kI32;
  if (HasSpace(c.op.code)) {
    if (std::string fault = CheckSpace(c); !fault.empty()) {
      return fault;
    }
  }
  switch (c.op.code) {
    case Opcode::kLoad:
      return ExpectSignature(c, {address}, {c.op.type});
    case Opcode::kStore:
      return ExpectSignature(c, {address, c.op.type}, {});
    case Opcode::kMemorySize:
      return ExpectSignature(c, {}, {address});
    case Opcode::kMemoryGrow:
      return ExpectSignature(c, {address}, {address});
    case Opcode::kMemoryCopy:
      return ExpectSignature(c, {address, address, address}, {});
    case Opcode::kMemoryFill:
      return ExpectSignature(c, {address, kI32, address}, {});
    case Opcode::kMemoryInit:
      if (c.op.imm >= c.module.passive_segments.size()) {
        return "The segment (" + std::to_string(c.op.imm) + ") does not exist; the module has " +
               std::to_string(c.module.passive_segments.size()) + ".";
      }
      return ExpectSignature(c, {address, kI32, kI32}, {});
    case Opcode::kLoad128:
      return ExpectSignature(c, {address}, {kI32, kI32, kI32, kI32});
    case Opcode::kStore128:
      return ExpectSignature(c, {address, kI32, kI32, kI32, kI32}, {});
    case Opcode::kGlobalGet:
    case Opcode::kGlobalSet:
      return CheckGlobal(c);
    default:
      return CheckAtomic(c, address);
  }
}

std::string CheckQueryOrSync(const OpContext& c) {
  const Type address = c.module.address_type();
  if (c.op.code == Opcode::kBarrier) {
    return ExpectSignature(c, {}, {});
  }
  if (c.op.code == Opcode::kLocalAlloc) {
    return ExpectSignature(c, {address}, {address});
  }
  return IsInt(c.op.type) ? ExpectSignature(c, {Type::kI32}, {c.op.type})
                          : "The operation does not exist for " + std::string(Name(c.op.type)) + ".";
}

}  // namespace hpvm::ir
