// SPDX-License-Identifier: Apache-2.0
// Lists every numeric operation in every form, and the values with which they are tested.
#ifndef HPVMD_COMPILER_BACK_LLVM_TESTING_FORMS_H_
#define HPVMD_COMPILER_BACK_LLVM_TESTING_FORMS_H_

#include <cstdint>
#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm::cpu::testing {

using ir::Family;
using ir::Opcode;
using ir::Type;

inline constexpr Opcode kAllOpcodes[] = {
#define HPVM_OP(name, text, effects, family) Opcode::name,
#include "compiler/ir/opcodes.def"
#undef HPVM_OP
};

inline std::vector<uint64_t> EdgesOf(Type type) {
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

inline std::vector<Form> FormsOf(Opcode code) {
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

inline std::vector<Form> ConversionsOf(Opcode code) {
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

inline std::vector<Form> AllFormsOf(Opcode code) {
  return ir::Info(code).family == Family::kConvert ? ConversionsOf(code) : FormsOf(code);
}

inline std::vector<Opcode> ArithmeticOpcodes() {
  std::vector<Opcode> codes;
  for (Opcode code : kAllOpcodes) {
    Family family = ir::Info(code).family;
    // kApprox operations are for GPUs only.
    if (family >= Family::kIntUnary && family <= Family::kConvert && family != Family::kApprox) {
      codes.push_back(code);
    }
  }
  return codes;
}

}  // namespace hpvm::cpu::testing

#endif  // HPVMD_COMPILER_BACK_LLVM_TESTING_FORMS_H_
