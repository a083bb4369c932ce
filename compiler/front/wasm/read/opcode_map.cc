// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/read/opcode_map.h"

#include <array>
#include <string_view>

#include "wabt/opcode.h"

#include "compiler/front/wasm/read/simd_instr.h"

namespace hpvm::wasm {
namespace {

using W = wabt::Opcode;
using O = ir::Opcode;

// Instructions that are one operation. Operands, results and widths come from wabt's own table.
struct PlainRow {
  W::Enum from;
  O to;
  bool sign = false;
};
constexpr PlainRow kPlain[] = {
    {W::I32Clz, O::kClz},
    {W::I32Ctz, O::kCtz},
    {W::I32Popcnt, O::kPopcnt},
    {W::I32Extend8S, O::kExtend8},
    {W::I32Extend16S, O::kExtend16},
    {W::I32Add, O::kAdd},
    {W::I32Sub, O::kSub},
    {W::I32Mul, O::kMul},
    {W::I32DivS, O::kDivS},
    {W::I32DivU, O::kDivU},
    {W::I32RemS, O::kRemS},
    {W::I32RemU, O::kRemU},
    {W::I32And, O::kAnd},
    {W::I32Or, O::kOr},
    {W::I32Xor, O::kXor},
    {W::I32Shl, O::kShl},
    {W::I32ShrS, O::kShrS},
    {W::I32ShrU, O::kShrU},
    {W::I32Rotl, O::kRotl},
    {W::I32Rotr, O::kRotr},
    {W::I32Eqz, O::kEqz},
    {W::I32Eq, O::kEq},
    {W::I32Ne, O::kNe},
    {W::I32LtS, O::kLtS},
    {W::I32LtU, O::kLtU},
    {W::I32GtS, O::kGtS},
    {W::I32GtU, O::kGtU},
    {W::I32LeS, O::kLeS},
    {W::I32LeU, O::kLeU},
    {W::I32GeS, O::kGeS},
    {W::I32GeU, O::kGeU},
    {W::I64Clz, O::kClz},
    {W::I64Ctz, O::kCtz},
    {W::I64Popcnt, O::kPopcnt},
    {W::I64Extend8S, O::kExtend8},
    {W::I64Extend16S, O::kExtend16},
    {W::I64Add, O::kAdd},
    {W::I64Sub, O::kSub},
    {W::I64Mul, O::kMul},
    {W::I64DivS, O::kDivS},
    {W::I64DivU, O::kDivU},
    {W::I64RemS, O::kRemS},
    {W::I64RemU, O::kRemU},
    {W::I64And, O::kAnd},
    {W::I64Or, O::kOr},
    {W::I64Xor, O::kXor},
    {W::I64Shl, O::kShl},
    {W::I64ShrS, O::kShrS},
    {W::I64ShrU, O::kShrU},
    {W::I64Rotl, O::kRotl},
    {W::I64Rotr, O::kRotr},
    {W::I64Eqz, O::kEqz},
    {W::I64Eq, O::kEq},
    {W::I64Ne, O::kNe},
    {W::I64LtS, O::kLtS},
    {W::I64LtU, O::kLtU},
    {W::I64GtS, O::kGtS},
    {W::I64GtU, O::kGtU},
    {W::I64LeS, O::kLeS},
    {W::I64LeU, O::kLeU},
    {W::I64GeS, O::kGeS},
    {W::I64GeU, O::kGeU},
    {W::I64Extend32S, O::kExtend32},
    {W::F32Abs, O::kFAbs},
    {W::F32Neg, O::kFNeg},
    {W::F32Ceil, O::kFCeil},
    {W::F32Floor, O::kFFloor},
    {W::F32Trunc, O::kFTrunc},
    {W::F32Nearest, O::kFNearest},
    {W::F32Sqrt, O::kFSqrt},
    {W::F32Add, O::kFAdd},
    {W::F32Sub, O::kFSub},
    {W::F32Mul, O::kFMul},
    {W::F32Div, O::kFDiv},
    {W::F32Min, O::kFMin},
    {W::F32Max, O::kFMax},
    {W::F32Copysign, O::kFCopysign},
    {W::F32Eq, O::kFEq},
    {W::F32Ne, O::kFNe},
    {W::F32Lt, O::kFLt},
    {W::F32Gt, O::kFGt},
    {W::F32Le, O::kFLe},
    {W::F32Ge, O::kFGe},
    {W::F64Abs, O::kFAbs},
    {W::F64Neg, O::kFNeg},
    {W::F64Ceil, O::kFCeil},
    {W::F64Floor, O::kFFloor},
    {W::F64Trunc, O::kFTrunc},
    {W::F64Nearest, O::kFNearest},
    {W::F64Sqrt, O::kFSqrt},
    {W::F64Add, O::kFAdd},
    {W::F64Sub, O::kFSub},
    {W::F64Mul, O::kFMul},
    {W::F64Div, O::kFDiv},
    {W::F64Min, O::kFMin},
    {W::F64Max, O::kFMax},
    {W::F64Copysign, O::kFCopysign},
    {W::F64Eq, O::kFEq},
    {W::F64Ne, O::kFNe},
    {W::F64Lt, O::kFLt},
    {W::F64Gt, O::kFGt},
    {W::F64Le, O::kFLe},
    {W::F64Ge, O::kFGe},
    {W::I32WrapI64, O::kWrap},
    {W::I64ExtendI32S, O::kExtendS},
    {W::I64ExtendI32U, O::kExtendU},
    {W::I32TruncF32S, O::kTruncS},
    {W::I32TruncSatF32S, O::kTruncSatS},
    {W::F32ConvertI32S, O::kConvertS},
    {W::I32TruncF32U, O::kTruncU},
    {W::I32TruncSatF32U, O::kTruncSatU},
    {W::F32ConvertI32U, O::kConvertU},
    {W::I32TruncF64S, O::kTruncS},
    {W::I32TruncSatF64S, O::kTruncSatS},
    {W::F64ConvertI32S, O::kConvertS},
    {W::I32TruncF64U, O::kTruncU},
    {W::I32TruncSatF64U, O::kTruncSatU},
    {W::F64ConvertI32U, O::kConvertU},
    {W::I64TruncF32S, O::kTruncS},
    {W::I64TruncSatF32S, O::kTruncSatS},
    {W::F32ConvertI64S, O::kConvertS},
    {W::I64TruncF32U, O::kTruncU},
    {W::I64TruncSatF32U, O::kTruncSatU},
    {W::F32ConvertI64U, O::kConvertU},
    {W::I64TruncF64S, O::kTruncS},
    {W::I64TruncSatF64S, O::kTruncSatS},
    {W::F64ConvertI64S, O::kConvertS},
    {W::I64TruncF64U, O::kTruncU},
    {W::I64TruncSatF64U, O::kTruncSatU},
    {W::F64ConvertI64U, O::kConvertU},
    {W::F32DemoteF64, O::kDemote},
    {W::F64PromoteF32, O::kPromote},
    {W::I32ReinterpretF32, O::kReinterpret},
    {W::F32ReinterpretI32, O::kReinterpret},
    {W::I64ReinterpretF64, O::kReinterpret},
    {W::F64ReinterpretI64, O::kReinterpret},
    {W::I32Const, O::kConst},
    {W::I32Load, O::kLoad},
    {W::I32Store, O::kStore},
    {W::I64Const, O::kConst},
    {W::I64Load, O::kLoad},
    {W::I64Store, O::kStore},
    {W::F32Const, O::kConst},
    {W::F32Load, O::kLoad},
    {W::F32Store, O::kStore},
    {W::F64Const, O::kConst},
    {W::F64Load, O::kLoad},
    {W::F64Store, O::kStore},
    {W::I32Load8S, O::kLoad, true},
    {W::I32Load8U, O::kLoad},
    {W::I32Store8, O::kStore},
    {W::I32Load16S, O::kLoad, true},
    {W::I32Load16U, O::kLoad},
    {W::I32Store16, O::kStore},
    {W::I64Load8S, O::kLoad, true},
    {W::I64Load8U, O::kLoad},
    {W::I64Store8, O::kStore},
    {W::I64Load16S, O::kLoad, true},
    {W::I64Load16U, O::kLoad},
    {W::I64Store16, O::kStore},
    {W::I64Load32S, O::kLoad, true},
    {W::I64Load32U, O::kLoad},
    {W::I64Store32, O::kStore},
    {W::MemorySize, O::kMemorySize},
    {W::MemoryGrow, O::kMemoryGrow},
    {W::MemoryCopy, O::kMemoryCopy},
    {W::MemoryFill, O::kMemoryFill},
    {W::I32AtomicLoad, O::kAtomicLoad},
    {W::I32AtomicStore, O::kAtomicStore},
    {W::I32AtomicRmwAdd, O::kAtomicAdd},
    {W::I32AtomicRmwSub, O::kAtomicSub},
    {W::I32AtomicRmwAnd, O::kAtomicAnd},
    {W::I32AtomicRmwOr, O::kAtomicOr},
    {W::I32AtomicRmwXor, O::kAtomicXor},
    {W::I32AtomicRmwXchg, O::kAtomicXchg},
    {W::I32AtomicRmwCmpxchg, O::kAtomicCmpxchg},
    {W::I32AtomicLoad8U, O::kAtomicLoad},
    {W::I32AtomicStore8, O::kAtomicStore},
    {W::I32AtomicRmw8AddU, O::kAtomicAdd},
    {W::I32AtomicRmw8SubU, O::kAtomicSub},
    {W::I32AtomicRmw8AndU, O::kAtomicAnd},
    {W::I32AtomicRmw8OrU, O::kAtomicOr},
    {W::I32AtomicRmw8XorU, O::kAtomicXor},
    {W::I32AtomicRmw8XchgU, O::kAtomicXchg},
    {W::I32AtomicRmw8CmpxchgU, O::kAtomicCmpxchg},
    {W::I32AtomicLoad16U, O::kAtomicLoad},
    {W::I32AtomicStore16, O::kAtomicStore},
    {W::I32AtomicRmw16AddU, O::kAtomicAdd},
    {W::I32AtomicRmw16SubU, O::kAtomicSub},
    {W::I32AtomicRmw16AndU, O::kAtomicAnd},
    {W::I32AtomicRmw16OrU, O::kAtomicOr},
    {W::I32AtomicRmw16XorU, O::kAtomicXor},
    {W::I32AtomicRmw16XchgU, O::kAtomicXchg},
    {W::I32AtomicRmw16CmpxchgU, O::kAtomicCmpxchg},
    {W::I64AtomicLoad, O::kAtomicLoad},
    {W::I64AtomicStore, O::kAtomicStore},
    {W::I64AtomicRmwAdd, O::kAtomicAdd},
    {W::I64AtomicRmwSub, O::kAtomicSub},
    {W::I64AtomicRmwAnd, O::kAtomicAnd},
    {W::I64AtomicRmwOr, O::kAtomicOr},
    {W::I64AtomicRmwXor, O::kAtomicXor},
    {W::I64AtomicRmwXchg, O::kAtomicXchg},
    {W::I64AtomicRmwCmpxchg, O::kAtomicCmpxchg},
    {W::I64AtomicLoad8U, O::kAtomicLoad},
    {W::I64AtomicStore8, O::kAtomicStore},
    {W::I64AtomicRmw8AddU, O::kAtomicAdd},
    {W::I64AtomicRmw8SubU, O::kAtomicSub},
    {W::I64AtomicRmw8AndU, O::kAtomicAnd},
    {W::I64AtomicRmw8OrU, O::kAtomicOr},
    {W::I64AtomicRmw8XorU, O::kAtomicXor},
    {W::I64AtomicRmw8XchgU, O::kAtomicXchg},
    {W::I64AtomicRmw8CmpxchgU, O::kAtomicCmpxchg},
    {W::I64AtomicLoad16U, O::kAtomicLoad},
    {W::I64AtomicStore16, O::kAtomicStore},
    {W::I64AtomicRmw16AddU, O::kAtomicAdd},
    {W::I64AtomicRmw16SubU, O::kAtomicSub},
    {W::I64AtomicRmw16AndU, O::kAtomicAnd},
    {W::I64AtomicRmw16OrU, O::kAtomicOr},
    {W::I64AtomicRmw16XorU, O::kAtomicXor},
    {W::I64AtomicRmw16XchgU, O::kAtomicXchg},
    {W::I64AtomicRmw16CmpxchgU, O::kAtomicCmpxchg},
    {W::I64AtomicLoad32U, O::kAtomicLoad},
    {W::I64AtomicStore32, O::kAtomicStore},
    {W::I64AtomicRmw32AddU, O::kAtomicAdd},
    {W::I64AtomicRmw32SubU, O::kAtomicSub},
    {W::I64AtomicRmw32AndU, O::kAtomicAnd},
    {W::I64AtomicRmw32OrU, O::kAtomicOr},
    {W::I64AtomicRmw32XorU, O::kAtomicXor},
    {W::I64AtomicRmw32XchgU, O::kAtomicXchg},
    {W::I64AtomicRmw32CmpxchgU, O::kAtomicCmpxchg},
};

struct ControlRow {
  W::Enum from;
  InstrKind to;
};
constexpr ControlRow kControl[] = {
    {W::LocalGet, InstrKind::kLocalGet},
    {W::LocalSet, InstrKind::kLocalSet},
    {W::LocalTee, InstrKind::kLocalTee},
    {W::GlobalGet, InstrKind::kGlobalGet},
    {W::GlobalSet, InstrKind::kGlobalSet},
    {W::Block, InstrKind::kBlock},
    {W::Loop, InstrKind::kLoop},
    {W::If, InstrKind::kIf},
    {W::Else, InstrKind::kElse},
    {W::End, InstrKind::kEnd},
    {W::Br, InstrKind::kBr},
    {W::BrIf, InstrKind::kBrIf},
    {W::BrTable, InstrKind::kBrTable},
    {W::Return, InstrKind::kReturn},
    {W::Call, InstrKind::kCall},
    {W::CallIndirect, InstrKind::kCallIndirect},
    {W::Drop, InstrKind::kDrop},
    {W::Select, InstrKind::kSelect},
    {W::SelectT, InstrKind::kSelect},
    {W::Unreachable, InstrKind::kUnreachable},
    {W::Nop, InstrKind::kNop},
    {W::RefFunc, InstrKind::kRefFunc},
    {W::TableGet, InstrKind::kTableGet},
    {W::TableSet, InstrKind::kTableSet},
    {W::TableSize, InstrKind::kTableSize},
    {W::TableGrow, InstrKind::kTableGrow},
    {W::TableFill, InstrKind::kTableFill},
    {W::TableCopy, InstrKind::kTableCopy},
    {W::TableInit, InstrKind::kTableInit},
    {W::ElemDrop, InstrKind::kElemDrop},
    {W::MemoryInit, InstrKind::kMemoryInit},
    {W::DataDrop, InstrKind::kDataDrop},
    // Every atomic operation of the IR is sequentially consistent, so a fence between them adds nothing.
    {W::AtomicFence, InstrKind::kNop},
};

struct RefusedRow {
  W::Enum from;
  const char* reason;
};
constexpr char kExceptions[] = "exceptions are not supported";
constexpr char kTailCalls[] = "tail calls are not supported; build without -mtail-call";
constexpr char kTypedReferences[] = "typed function references are not supported";
constexpr RefusedRow kRefused[] = {
    {W::Try, kExceptions},          {W::Catch, kExceptions},
    {W::CatchAll, kExceptions},     {W::Throw, kExceptions},
    {W::Rethrow, kExceptions},      {W::Delegate, kExceptions},
    {W::ReturnCall, kTailCalls},    {W::ReturnCallIndirect, kTailCalls},
    {W::CallRef, kTypedReferences},
};

// Plain instructions have operands of these types only.
ir::Type ValueType(wabt::Type type) {
  switch (type) {
    case wabt::Type::I64:
      return ir::Type::kI64;
    case wabt::Type::F32:
      return ir::Type::kF32;
    case wabt::Type::F64:
      return ir::Type::kF64;
    default:
      return ir::Type::kI32;
  }
}

// By the IR's families where they say it: wabt's table gives the nearest instructions two operands.
uint8_t OperandCount(const PlainRow& row) {
  switch (ir::Info(row.to).family) {
    case ir::Family::kIntUnary:
    case ir::Family::kFloatUnary:
    case ir::Family::kConvert:
      return 1;
    case ir::Family::kIntBinary:
    case ir::Family::kFloatBinary:
    case ir::Family::kFloatCompare:
      return 2;
    case ir::Family::kIntCompare:
      return row.to == O::kEqz ? 1 : 2;
    default:
      break;
  }
  uint8_t operands = 0;
  while (operands < 3 && wabt::Opcode(row.from).GetParamType(operands + 1) != wabt::Type::Void) {
    ++operands;
  }
  return operands;
}

// References are i32.
Instr RefNull() {
  Instr instr;
  instr.kind = InstrKind::kPlain;
  instr.has_result = true;
  return instr;
}
Instr RefIsNull() {
  Instr instr = RefNull();
  instr.opcode = O::kEqz;
  instr.operands = 1;
  return instr;
}

Instr Waiting(InstrKind kind, uint8_t width) {
  Instr instr;
  instr.kind = kind;
  instr.width = width;
  return instr;
}

Instr PlainInstr(const PlainRow& row) {
  const wabt::Opcode opcode(row.from);
  Instr instr;
  instr.kind = InstrKind::kPlain;
  instr.opcode = row.to;
  instr.sign = row.sign;
  const uint8_t operands = OperandCount(row);
  instr.operands = operands;
  instr.has_result = opcode.GetResultType() != wabt::Type::Void;
  instr.result = ValueType(opcode.GetResultType());
  const ir::Family family = ir::Info(row.to).family;
  const bool is_access = row.to == O::kLoad || row.to == O::kStore || family == ir::Family::kAtomic;
  if (is_access) {
    instr.type = instr.has_result ? instr.result : ValueType(opcode.GetParamType2());
    instr.width = static_cast<uint8_t>(opcode.GetMemorySize());
  } else if (family == ir::Family::kConst) {
    instr.type = instr.result;
  } else if (family != ir::Family::kMemory) {
    instr.type = ValueType(opcode.GetParamType1());
  }
  return instr;
}

using Rows = std::array<OpcodeRow, W::Invalid>;

Rows MakeRows() {
  Rows table;
  for (OpcodeRow& row : table) {
    row.refusal = "no supported feature has it";
  }
  for (const PlainRow& row : kPlain) {
    table[row.from].instr = PlainInstr(row);
    table[row.from].refusal = nullptr;
  }
  for (const ControlRow& row : kControl) {
    table[row.from].instr.kind = row.to;
    table[row.from].refusal = nullptr;
  }
  const auto take = [&table](W::Enum from, const Instr& instr) { table[from] = {.instr = instr}; };
  take(W::RefNull, RefNull());
  take(W::RefIsNull, RefIsNull());
  take(W::MemoryAtomicNotify, Waiting(InstrKind::kNotify, 4));
  take(W::MemoryAtomicWait32, Waiting(InstrKind::kWait, 4));
  take(W::MemoryAtomicWait64, Waiting(InstrKind::kWait, 8));
  for (const RefusedRow& row : kRefused) {
    table[row.from].refusal = row.reason;
  }
  for (uint32_t i = 0; i < W::Invalid; ++i) {
    const wabt::Opcode opcode(static_cast<W::Enum>(i));
    table[i].bytes = static_cast<uint8_t>(opcode.GetLength());
    if (opcode.GetPrefix() == 0xfd) {
      table[i].instr.kind = InstrKind::kSimd;
      table[i].refusal = SimdRefusal(i);
    }
  }
  return table;
}

}  // namespace

const OpcodeRow& MapOpcode(uint32_t opcode) {
  static const Rows* const kRows = new Rows(MakeRows());
  return (*kRows)[opcode];
}

}  // namespace hpvm::wasm
