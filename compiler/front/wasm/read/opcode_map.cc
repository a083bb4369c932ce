// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/read/opcode_map.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "wabt/opcode.h"

#include "compiler/front/wasm/read/simd_instr.h"

namespace hpvm::wasm {
namespace {

using W = wabt::Opcode;
using O = ir::Opcode;

// Runs of consecutive instructions that are one IR operation each, in the same order in both enumerations.
struct PlainRun {
  W::Enum from, last_from;
  O to, last_to;
};
constexpr PlainRun kPlainRuns[] = {
    {W::I32Clz, W::I32Popcnt, O::kClz, O::kPopcnt},
    {W::I64Clz, W::I64Popcnt, O::kClz, O::kPopcnt},
    {W::I32Add, W::I32Rotr, O::kAdd, O::kRotr},
    {W::I64Add, W::I64Rotr, O::kAdd, O::kRotr},
    {W::I32Eqz, W::I32GeU, O::kEqz, O::kGeU},
    {W::I64Eqz, W::I64GeU, O::kEqz, O::kGeU},
    {W::F32Abs, W::F32Sqrt, O::kFAbs, O::kFSqrt},
    {W::F64Abs, W::F64Sqrt, O::kFAbs, O::kFSqrt},
    {W::F32Add, W::F32Copysign, O::kFAdd, O::kFCopysign},
    {W::F64Add, W::F64Copysign, O::kFAdd, O::kFCopysign},
    {W::F32Eq, W::F32Ge, O::kFEq, O::kFGe},
    {W::F64Eq, W::F64Ge, O::kFEq, O::kFGe},
};
static_assert(std::ranges::all_of(kPlainRuns, [](const PlainRun& run) {
  return run.last_from - run.from == static_cast<uint32_t>(run.last_to) - static_cast<uint32_t>(run.to);
}));

// Other instructions that are one operation. Operands, results and widths come from wabt's own table.
struct PlainRow {
  O to;
  std::initializer_list<W::Enum> from;
  bool sign = false;
};
constexpr PlainRow kPlain[] = {
    {O::kExtend8, {W::I32Extend8S, W::I64Extend8S}},
    {O::kExtend16, {W::I32Extend16S, W::I64Extend16S}},
    {O::kExtend32, {W::I64Extend32S}},
    {O::kWrap, {W::I32WrapI64}},
    {O::kExtendS, {W::I64ExtendI32S}},
    {O::kExtendU, {W::I64ExtendI32U}},
    {O::kTruncS, {W::I32TruncF32S, W::I32TruncF64S, W::I64TruncF32S, W::I64TruncF64S}},
    {O::kTruncSatS, {W::I32TruncSatF32S, W::I32TruncSatF64S, W::I64TruncSatF32S, W::I64TruncSatF64S}},
    {O::kConvertS, {W::F32ConvertI32S, W::F64ConvertI32S, W::F32ConvertI64S, W::F64ConvertI64S}},
    {O::kTruncU, {W::I32TruncF32U, W::I32TruncF64U, W::I64TruncF32U, W::I64TruncF64U}},
    {O::kTruncSatU, {W::I32TruncSatF32U, W::I32TruncSatF64U, W::I64TruncSatF32U, W::I64TruncSatF64U}},
    {O::kConvertU, {W::F32ConvertI32U, W::F64ConvertI32U, W::F32ConvertI64U, W::F64ConvertI64U}},
    {O::kDemote, {W::F32DemoteF64}},
    {O::kPromote, {W::F64PromoteF32}},
    {O::kReinterpret, {W::I32ReinterpretF32, W::F32ReinterpretI32, W::I64ReinterpretF64, W::F64ReinterpretI64}},
    {O::kConst, {W::I32Const, W::I64Const, W::F32Const, W::F64Const}},
    {O::kLoad,
     {W::I32Load, W::I64Load, W::F32Load, W::F64Load, W::I32Load8U, W::I32Load16U, W::I64Load8U, W::I64Load16U,
      W::I64Load32U}},
    {O::kStore,
     {W::I32Store, W::I64Store, W::F32Store, W::F64Store, W::I32Store8, W::I32Store16, W::I64Store8, W::I64Store16,
      W::I64Store32}},
    {O::kLoad, {W::I32Load8S, W::I32Load16S, W::I64Load8S, W::I64Load16S, W::I64Load32S}, true},
    {O::kMemorySize, {W::MemorySize}},
    {O::kMemoryGrow, {W::MemoryGrow}},
    {O::kMemoryCopy, {W::MemoryCopy}},
    {O::kMemoryFill, {W::MemoryFill}},
    {O::kAtomicLoad,
     {W::I32AtomicLoad, W::I32AtomicLoad8U, W::I32AtomicLoad16U, W::I64AtomicLoad, W::I64AtomicLoad8U,
      W::I64AtomicLoad16U, W::I64AtomicLoad32U}},
    {O::kAtomicStore,
     {W::I32AtomicStore, W::I32AtomicStore8, W::I32AtomicStore16, W::I64AtomicStore, W::I64AtomicStore8,
      W::I64AtomicStore16, W::I64AtomicStore32}},
    {O::kAtomicAdd,
     {W::I32AtomicRmwAdd, W::I32AtomicRmw8AddU, W::I32AtomicRmw16AddU, W::I64AtomicRmwAdd, W::I64AtomicRmw8AddU,
      W::I64AtomicRmw16AddU, W::I64AtomicRmw32AddU}},
    {O::kAtomicSub,
     {W::I32AtomicRmwSub, W::I32AtomicRmw8SubU, W::I32AtomicRmw16SubU, W::I64AtomicRmwSub, W::I64AtomicRmw8SubU,
      W::I64AtomicRmw16SubU, W::I64AtomicRmw32SubU}},
    {O::kAtomicAnd,
     {W::I32AtomicRmwAnd, W::I32AtomicRmw8AndU, W::I32AtomicRmw16AndU, W::I64AtomicRmwAnd, W::I64AtomicRmw8AndU,
      W::I64AtomicRmw16AndU, W::I64AtomicRmw32AndU}},
    {O::kAtomicOr,
     {W::I32AtomicRmwOr, W::I32AtomicRmw8OrU, W::I32AtomicRmw16OrU, W::I64AtomicRmwOr, W::I64AtomicRmw8OrU,
      W::I64AtomicRmw16OrU, W::I64AtomicRmw32OrU}},
    {O::kAtomicXor,
     {W::I32AtomicRmwXor, W::I32AtomicRmw8XorU, W::I32AtomicRmw16XorU, W::I64AtomicRmwXor, W::I64AtomicRmw8XorU,
      W::I64AtomicRmw16XorU, W::I64AtomicRmw32XorU}},
    {O::kAtomicXchg,
     {W::I32AtomicRmwXchg, W::I32AtomicRmw8XchgU, W::I32AtomicRmw16XchgU, W::I64AtomicRmwXchg, W::I64AtomicRmw8XchgU,
      W::I64AtomicRmw16XchgU, W::I64AtomicRmw32XchgU}},
    {O::kAtomicCmpxchg,
     {W::I32AtomicRmwCmpxchg, W::I32AtomicRmw8CmpxchgU, W::I32AtomicRmw16CmpxchgU, W::I64AtomicRmwCmpxchg,
      W::I64AtomicRmw8CmpxchgU, W::I64AtomicRmw16CmpxchgU, W::I64AtomicRmw32CmpxchgU}},
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

// Plain instructions have only operands of these types.
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

// Uses the IR's families where possible: wabt's table gives the nearest instructions two operands.
uint8_t OperandCount(W::Enum from, O to) {
  switch (ir::Info(to).family) {
    case ir::Family::kIntUnary:
    case ir::Family::kFloatUnary:
    case ir::Family::kConvert:
      return 1;
    case ir::Family::kIntBinary:
    case ir::Family::kFloatBinary:
    case ir::Family::kFloatCompare:
      return 2;
    case ir::Family::kIntCompare:
      return to == O::kEqz ? 1 : 2;
    default:
      break;
  }
  uint8_t operands = 0;
  while (operands < 3 && wabt::Opcode(from).GetParamType(operands + 1) != wabt::Type::Void) {
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

Instr PlainInstr(W::Enum from, O to, bool sign) {
  const wabt::Opcode opcode(from);
  Instr instr;
  instr.kind = InstrKind::kPlain;
  instr.opcode = to;
  instr.sign = sign;
  instr.operands = OperandCount(from, to);
  instr.has_result = opcode.GetResultType() != wabt::Type::Void;
  instr.result = ValueType(opcode.GetResultType());
  const ir::Family family = ir::Info(to).family;
  const bool is_access = to == O::kLoad || to == O::kStore || family == ir::Family::kAtomic;
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
    for (const W::Enum from : row.from) {
      table[from] = {.instr = PlainInstr(from, row.to, row.sign)};
    }
  }
  for (const PlainRun& run : kPlainRuns) {
    for (uint32_t i = 0; i <= run.last_from - run.from; ++i) {
      const auto from = static_cast<W::Enum>(run.from + i);
      table[from] = {.instr = PlainInstr(from, static_cast<O>(static_cast<uint32_t>(run.to) + i), false)};
    }
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
