// SPDX-License-Identifier: Apache-2.0
// Lowers instructions on globals, references, tables and segments.
#include <array>

#include "base/status.h"
#include "compiler/front/wasm/lower/lowering.h"

namespace hpvm::wasm {

void Lowering::LowerState(const Instr& instr) {
  const auto& tables = context_.layout.tables;
  switch (instr.kind) {
    case InstrKind::kGlobalGet:
    case InstrKind::kGlobalSet:
      return GlobalAccess(instr);
    case InstrKind::kCallIndirect:
      return CallIndirect(instr);
    case InstrKind::kRefFunc:
      return Push(code_.Const(context_.layout.references[instr.imm]));
    case InstrKind::kTableGet:
      return TableGet(instr);
    case InstrKind::kTableSet:
      return TableSet(instr);
    case InstrKind::kTableSize:
      return Push(code_.SizeOf(tables[instr.imm]));
    case InstrKind::kTableGrow:
      return TableGrow(instr);
    case InstrKind::kTableFill:
      return TableFill(instr);
    case InstrKind::kTableCopy:
      return TableCopy(instr, tables[static_cast<uint32_t>(instr.imm)], tables[instr.imm >> 32]);
    case InstrKind::kTableInit:
      return TableCopy(instr, tables[instr.imm >> 32], context_.layout.elems[static_cast<uint32_t>(instr.imm)]);
    case InstrKind::kElemDrop:
      return Drop(context_.layout.elems[instr.imm].offset);
    case InstrKind::kMemoryInit:
      return MemoryInit(instr);
    case InstrKind::kDataDrop:
      return Drop(context_.layout.data_left[instr.imm]);
    case InstrKind::kNotify:
      return Notify(instr);
    case InstrKind::kWait:
      return Wait(instr);
    default:
      HPVMD_CHECK(false);
  }
}

void Lowering::Drop(uint32_t offset) {
  if (offset != kNowhere) {
    code_.Store(offset, code_.Const(0));
  }
}

void Lowering::GlobalAccess(const Instr& instr) {
  const Global& global = module_.globals[instr.imm];
  const Type type = IrType(global.type);
  const uint32_t first = context_.layout.globals[instr.imm];
  const uint32_t slots = Slots(global.type);
  const auto access = [&](uint32_t i, Opcode code) {
    ir::Op op{.code = code, .type = type, .imm = first + i};
    return op;
  };
  if (instr.kind == InstrKind::kGlobalSet) {
    const std::vector<ValueId> values = PopSlots(slots);
    for (uint32_t i = 0; i < slots; ++i) {
      context_.layout.has_globals_in_state
          ? code_.Store(first + 4 * i, values[i])
          : static_cast<void>(builder_.Append(access(i, Opcode::kGlobalSet), std::array{values[i]}, {}));
    }
    return;
  }
  std::array<ValueId, 4> values;
  for (uint32_t i = 0; i < slots; ++i) {
    values[i] = context_.layout.has_globals_in_state ? code_.Load(first + 4 * i, type)
                                                     : builder_.Append1(access(i, Opcode::kGlobalGet), {}, type);
  }
  slots == 1 ? Push(values[0]) : stack_.PushV128(values);
}

void Lowering::CallIndirect(const Instr& instr) {
  const uint32_t signature = static_cast<uint32_t>(instr.imm);
  const uint32_t table = static_cast<uint32_t>(instr.imm >> 32);
  const TableLayout& place = context_.layout.tables[table];
  ValueId index = Pop();
  const ValueId size = code_.SizeOf(place);
  if (module_.tables[table].limits.is_64) {
    const ValueId wide = code_.Convert(Opcode::kExtendU, size, Type::kI32, Type::kI64);
    code_.TrapUnless(code_.Binary(Opcode::kLtU, index, wide, Type::kI64), TrapCode::kUndefinedElement, instr.source);
    index = code_.Convert(Opcode::kWrap, index, Type::kI64, Type::kI32);
  } else {
    code_.TrapUnless(code_.Binary(Opcode::kLtU, index, size), TrapCode::kUndefinedElement, instr.source);
  }
  const ir::FunctionType& type = module_.types[signature];
  std::vector<ValueId> operands = PopSlots(type.params.size());
  operands.insert(operands.begin(), code_.LoadAt(code_.EntryAt(place, index), 0));
  ir::Op op{.code = Opcode::kCallRef, .imm = context_.types[signature], .source = instr.source};
  const std::vector<ValueId> results = builder_.Results(builder_.Append(op, operands, type.results));
  stack_.PushAll(results, module_.signatures[signature].results);
}

void Lowering::TableGet(const Instr& instr) {
  const TableLayout& place = context_.layout.tables[instr.imm];
  const ValueId index = Pop();
  code_.TrapUnless(code_.Binary(Opcode::kLtU, index, code_.SizeOf(place)), TrapCode::kTableOutOfBounds, instr.source);
  Push(code_.LoadAt(code_.EntryAt(place, index), 0));
}

void Lowering::TableSet(const Instr& instr) {
  const TableLayout& place = context_.layout.tables[instr.imm];
  const ValueId value = Pop();
  const ValueId index = Pop();
  code_.TrapUnless(code_.Binary(Opcode::kLtU, index, code_.SizeOf(place)), TrapCode::kTableOutOfBounds, instr.source);
  code_.StoreAt(code_.EntryAt(place, index), 0, value);
}

void Lowering::TableGrow(const Instr& instr) {
  const TableLayout& place = context_.layout.tables[instr.imm];
  const ValueId count = Pop();
  const ValueId value = Pop();
  const ValueId old = code_.SizeOf(place);
  const ValueId room = code_.Binary(Opcode::kSub, code_.Const(place.capacity), old);
  const std::array results{Type::kI32};
  const OpId grown = builder_.BeginIf(code_.Binary(Opcode::kLeU, count, room), results, instr.source);
  code_.Fill(place, old, value, count);
  code_.Store(place.offset, code_.Binary(Opcode::kAdd, old, count));
  builder_.Leave(grown, std::array{old});
  builder_.Else();
  builder_.Leave(grown, std::array{code_.Const(0xffffffff)});
  builder_.End();
  Push(builder_.Results(grown)[0]);
}

void Lowering::TableFill(const Instr& instr) {
  const TableLayout& place = context_.layout.tables[instr.imm];
  const ValueId count = Pop();
  const ValueId value = Pop();
  const ValueId at = Pop();
  code_.CheckRange(at, count, code_.SizeOf(place), TrapCode::kTableOutOfBounds, instr.source);
  code_.Fill(place, at, value, count);
}

void Lowering::TableCopy(const Instr& instr, const TableLayout& target, const TableLayout& source) {
  const ValueId count = Pop();
  const ValueId from = Pop();
  const ValueId to = Pop();
  code_.CheckRange(from, count, code_.SizeOf(source), TrapCode::kTableOutOfBounds, instr.source);
  code_.CheckRange(to, count, code_.SizeOf(target), TrapCode::kTableOutOfBounds, instr.source);
  code_.Copy(target, to, source, from, count);
}

void Lowering::MemoryInit(const Instr& instr) {
  const std::vector<ValueId> operands = PopSlots(3);  // Target address, source offset, number of bytes.
  const uint32_t left = context_.layout.data_left[instr.imm];
  if (left != kNowhere) {
    code_.CheckRange(operands[1], operands[2], code_.Load(left), TrapCode::kOutOfBounds, instr.source);
  }
  ir::Op op{.code = Opcode::kMemoryInit, .imm = context_.layout.data[instr.imm], .source = instr.source};
  builder_.Append(op, operands, {});
}

ValueId Lowering::AtomicLoad(ValueId address, const Instr& instr) {
  ir::Op op{.code = Opcode::kAtomicLoad,
            .type = instr.width == 8 ? Type::kI64 : Type::kI32,
            .width = instr.width,
            .imm = instr.imm,
            .source = instr.source};
  return builder_.Append1(op, std::array{address}, op.type);
}

// No instance ever waits, so none is woken; the load checks the address.
void Lowering::Notify(const Instr& instr) {
  const std::vector<ValueId> operands = PopSlots(2);  // Address, count.
  AtomicLoad(operands[0], instr);
  Push(code_.Const(0));
}

// Nothing can end a wait: an instance runs alone, or beside others only until a barrier.
void Lowering::Wait(const Instr& instr) {
  const std::vector<ValueId> operands = PopSlots(3);  // Address, expected, timeout.
  if (!module_.memory->limits.is_shared) {
    builder_.Trap(TrapCode::kExpectedShared, instr.source);
    is_reachable_ = false;
    return;
  }
  constexpr uint64_t kNotEqual = 1, kTimedOut = 2;
  const ValueId value = AtomicLoad(operands[0], instr);
  const std::array results{Type::kI32};
  const OpId outcome =
      builder_.BeginIf(code_.Binary(Opcode::kEq, value, operands[1], out_.type_of(value)), results, instr.source);
  const ValueId ends = code_.Binary(Opcode::kGeS, operands[2], builder_.Const(Type::kI64, 0), Type::kI64);
  code_.TrapUnless(ends, TrapCode::kWaitsForever, instr.source);
  builder_.Leave(outcome, std::array{code_.Const(kTimedOut)});
  builder_.Else();
  builder_.Leave(outcome, std::array{code_.Const(kNotEqual)});
  builder_.End();
  Push(builder_.Results(outcome)[0]);
}

}  // namespace hpvm::wasm
