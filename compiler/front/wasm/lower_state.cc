// SPDX-License-Identifier: Apache-2.0
// Globals, references, tables and segments.
#include <array>

#include "base/status.h"
#include "compiler/front/wasm/lowering.h"

namespace hpvm::wasm {
namespace {

using ir::Opcode;
using ir::OpId;
using ir::TrapCode;
using ir::Type;
using ir::ValueId;

constexpr uint32_t kEntryBytes = 4;

ValueId Add(ir::Builder& builder, ValueId a, ValueId b) {
  return builder.Append1({.code = Opcode::kAdd}, std::array{a, b}, Type::kI32);
}

// A loop that runs `body(i)` for i in [0, count).
template <typename Body>
void Repeat(ir::Builder& builder, ValueId count, Body body) {
  const OpId loop = builder.BeginBlock(Opcode::kLoop, std::array{builder.Const(Type::kI32, 0)}, {});
  const ValueId i = builder.Params(loop)[0];
  const ValueId more = builder.Append1({.code = Opcode::kLtU}, std::array{i, count}, Type::kI32);
  builder.BeginIf(more, {});
  body(i);
  builder.Continue(loop, std::array{Add(builder, i, builder.Const(Type::kI32, 1))});
  builder.Else();
  builder.Leave(loop, {});
  builder.End();
  builder.Trap(TrapCode::kUnreachable);  // The region must end, though nothing gets here.
  builder.End();
}

ValueId EntryOffset(ir::Builder& builder, ValueId begin, ValueId index) {
  const ValueId shift = builder.Const(Type::kI32, 2);
  return Add(builder, begin, builder.Append1({.code = Opcode::kShl}, std::array{index, shift}, Type::kI32));
}

ir::Op StateAccess(Opcode code) {
  ir::Op op{.code = code};
  op.space = ir::Space::kState;
  op.width = kEntryBytes;
  return op;
}

// (first byte, reference, entries)
ir::Function FillFunction() {
  ir::Function function;
  function.name = "(fill a table)";
  function.type = {{Type::kI32, Type::kI32, Type::kI32}, {}};
  ir::Builder builder(function);
  const auto params = builder.BeginBody();
  Repeat(builder, params[2], [&](ValueId i) {
    builder.Append(StateAccess(Opcode::kStore), std::array{EntryOffset(builder, params[0], i), params[1]}, {});
  });
  builder.Return({});
  return function;
}

// (first byte of the target, first byte of the source, entries): upwards, or downwards if the target lies above.
ir::Function CopyFunction() {
  ir::Function function;
  function.name = "(copy entries of a table)";
  function.type = {{Type::kI32, Type::kI32, Type::kI32}, {}};
  ir::Builder builder(function);
  const auto params = builder.BeginBody();
  const ValueId is_above = builder.Append1({.code = Opcode::kGtU}, std::array{params[0], params[1]}, Type::kI32);
  const ValueId minus_one = builder.Const(Type::kI32, 0xffffffff);
  const ValueId last = Add(builder, params[2], minus_one);
  Repeat(builder, params[2], [&](ValueId i) {
    const ValueId mirrored = builder.Append1({.code = Opcode::kSub}, std::array{last, i}, Type::kI32);
    const ValueId at = builder.Append1({.code = Opcode::kSelect}, std::array{is_above, mirrored, i}, Type::kI32);
    const ValueId from = EntryOffset(builder, params[1], at);
    const ValueId value = builder.Append1(StateAccess(Opcode::kLoad), std::array{from}, Type::kI32);
    builder.Append(StateAccess(Opcode::kStore), std::array{EntryOffset(builder, params[0], at), value}, {});
  });
  builder.Return({});
  return function;
}

}  // namespace

void AppendTableFunctions(const LowerContext& context, ir::Module& out) {
  for (size_t id = out.functions.size(); id < context.next_function; ++id) {
    out.functions.push_back(context.fill == ir::FunctionId(id) ? FillFunction() : CopyFunction());
  }
}

void Lowering::LowerState(const Instr& instr) {
  const auto& tables = context_.layout.tables;
  switch (instr.kind) {
    case InstrKind::kGlobalGet:
    case InstrKind::kGlobalSet:
      return GlobalAccess(instr);
    case InstrKind::kCallIndirect:
      return CallIndirect(instr);
    case InstrKind::kRefFunc:
      return Push(Const(context_.layout.references[instr.imm]));
    case InstrKind::kTableGet:
      return TableGet(instr);
    case InstrKind::kTableSet:
      return TableSet(instr);
    case InstrKind::kTableSize:
      return Push(SizeOf(tables[instr.imm]));
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

ValueId Lowering::Binary(Opcode code, ValueId a, ValueId b, Type type) {
  ir::Op op{.code = code};
  op.type = type;
  const bool is_compare = ir::Info(code).family == ir::Family::kIntCompare;
  return builder_.Append1(op, std::array{a, b}, is_compare ? Type::kI32 : type);
}

ValueId Lowering::Convert(Opcode code, ValueId value, Type from, Type to) {
  ir::Op op{.code = code};
  op.type = from;
  return builder_.Append1(op, std::array{value}, to);
}

ValueId Lowering::LoadState(uint64_t offset, ValueId at, Type type) {
  ir::Op op = StateAccess(Opcode::kLoad);
  op.type = type;
  op.width = static_cast<uint8_t>(ir::Bytes(type));
  op.imm = offset;
  return builder_.Append1(op, std::array{at}, type);
}

void Lowering::StoreState(uint64_t offset, ValueId at, ValueId value) {
  ir::Op op = StateAccess(Opcode::kStore);
  op.type = out_.type_of(value);
  op.width = static_cast<uint8_t>(ir::Bytes(op.type));
  op.imm = offset;
  builder_.Append(op, std::array{at, value}, {});
}

void Lowering::TrapUnless(ValueId condition, TrapCode code, uint32_t source) {
  const OpId check = builder_.BeginIf(condition, {}, source);
  builder_.Leave(check, {});
  builder_.Else();
  builder_.Trap(code, source);
  builder_.End();
}

void Lowering::CheckRange(ValueId at, ValueId count, ValueId size, TrapCode code, uint32_t source) {
  const auto wide = [&](ValueId value) { return Convert(Opcode::kExtendU, value, Type::kI32, Type::kI64); };
  const ValueId end = Binary(Opcode::kAdd, wide(at), wide(count), Type::kI64);
  TrapUnless(Binary(Opcode::kLeU, end, wide(size), Type::kI64), code, source);
}

ValueId Lowering::SizeOf(const TablePlace& place) {
  return place.fixed_size != kNowhere ? Const(place.fixed_size) : LoadState(place.offset, Const(0));
}

ValueId Lowering::EntryAt(const TablePlace& place, ValueId index) {
  return EntryOffset(builder_, Const(place.offset + kEntryBytes), index);
}

void Lowering::Drop(uint32_t offset) {
  if (offset != kNowhere) {
    StoreState(offset, Const(0), Const(0));
  }
}

void Lowering::CallTableFunction(ir::FunctionId& function, const std::array<ValueId, 3>& operands) {
  if (!function.valid()) {
    function = ir::FunctionId(context_.next_function++);
  }
  ir::Op op{.code = Opcode::kCall};
  op.imm = function.index;
  builder_.Append(op, operands, {});
}

void Lowering::GlobalAccess(const Instr& instr) {
  const Global& global = module_.globals[instr.imm];
  const Type type = IrType(global.type);
  const uint32_t first = context_.layout.globals[instr.imm];
  const uint32_t slots = Slots(global.type);
  const auto access = [&](uint32_t i, Opcode code) {
    ir::Op op{.code = code};
    op.type = type;
    op.imm = first + i;
    return op;
  };
  if (instr.kind == InstrKind::kGlobalSet) {
    const std::vector<ValueId> values = PopSlots(slots);
    for (uint32_t i = 0; i < slots; ++i) {
      context_.layout.has_globals_in_state
          ? StoreState(first + 4 * i, Const(0), values[i])
          : static_cast<void>(builder_.Append(access(i, Opcode::kGlobalSet), std::array{values[i]}, {}));
    }
    return;
  }
  std::array<ValueId, 4> values;
  for (uint32_t i = 0; i < slots; ++i) {
    values[i] = context_.layout.has_globals_in_state ? LoadState(first + 4 * i, Const(0), type)
                                                     : builder_.Append1(access(i, Opcode::kGlobalGet), {}, type);
  }
  slots == 1 ? Push(values[0]) : stack_.PushV128(values);
}

void Lowering::CallIndirect(const Instr& instr) {
  const uint32_t signature = static_cast<uint32_t>(instr.imm);
  const uint32_t table = static_cast<uint32_t>(instr.imm >> 32);
  const TablePlace& place = context_.layout.tables[table];
  ValueId index = Pop();
  const ValueId size = SizeOf(place);
  if (module_.tables[table].limits.is_64) {
    const ValueId wide = Convert(Opcode::kExtendU, size, Type::kI32, Type::kI64);
    TrapUnless(Binary(Opcode::kLtU, index, wide, Type::kI64), TrapCode::kUndefinedElement, instr.source);
    index = Convert(Opcode::kWrap, index, Type::kI64, Type::kI32);
  } else {
    TrapUnless(Binary(Opcode::kLtU, index, size), TrapCode::kUndefinedElement, instr.source);
  }
  const ir::FunctionType& type = module_.types[signature];
  std::vector<ValueId> operands = PopSlots(type.params.size());
  operands.insert(operands.begin(), LoadState(0, EntryAt(place, index)));
  ir::Op op{.code = Opcode::kCallRef};
  op.imm = context_.types[signature];
  op.source = instr.source;
  const std::vector<ValueId> results = builder_.Results(builder_.Append(op, operands, type.results));
  stack_.PushAll(results, module_.signatures[signature].results);
}

void Lowering::TableGet(const Instr& instr) {
  const TablePlace& place = context_.layout.tables[instr.imm];
  const ValueId index = Pop();
  TrapUnless(Binary(Opcode::kLtU, index, SizeOf(place)), TrapCode::kTableOutOfBounds, instr.source);
  Push(LoadState(0, EntryAt(place, index)));
}

void Lowering::TableSet(const Instr& instr) {
  const TablePlace& place = context_.layout.tables[instr.imm];
  const ValueId value = Pop();
  const ValueId index = Pop();
  TrapUnless(Binary(Opcode::kLtU, index, SizeOf(place)), TrapCode::kTableOutOfBounds, instr.source);
  StoreState(0, EntryAt(place, index), value);
}

void Lowering::TableGrow(const Instr& instr) {
  const TablePlace& place = context_.layout.tables[instr.imm];
  const ValueId count = Pop();
  const ValueId value = Pop();
  const ValueId old = SizeOf(place);
  const ValueId room = Binary(Opcode::kSub, Const(place.capacity), old);
  const std::array results{Type::kI32};
  const OpId grown = builder_.BeginIf(Binary(Opcode::kLeU, count, room), results, instr.source);
  CallTableFunction(context_.fill, {EntryAt(place, old), value, count});
  StoreState(place.offset, Const(0), Binary(Opcode::kAdd, old, count));
  builder_.Leave(grown, std::array{old});
  builder_.Else();
  builder_.Leave(grown, std::array{Const(0xffffffff)});
  builder_.End();
  Push(builder_.Results(grown)[0]);
}

void Lowering::TableFill(const Instr& instr) {
  const TablePlace& place = context_.layout.tables[instr.imm];
  const ValueId count = Pop();
  const ValueId value = Pop();
  const ValueId at = Pop();
  CheckRange(at, count, SizeOf(place), TrapCode::kTableOutOfBounds, instr.source);
  CallTableFunction(context_.fill, {EntryAt(place, at), value, count});
}

void Lowering::TableCopy(const Instr& instr, const TablePlace& target, const TablePlace& source) {
  const ValueId count = Pop();
  const ValueId from = Pop();
  const ValueId to = Pop();
  CheckRange(from, count, SizeOf(source), TrapCode::kTableOutOfBounds, instr.source);
  CheckRange(to, count, SizeOf(target), TrapCode::kTableOutOfBounds, instr.source);
  CallTableFunction(context_.copy, {EntryAt(target, to), EntryAt(source, from), count});
}

void Lowering::MemoryInit(const Instr& instr) {
  const std::vector<ValueId> operands = PopSlots(3);  // To, from, bytes.
  const uint32_t left = context_.layout.data_left[instr.imm];
  if (left != kNowhere) {
    CheckRange(operands[1], operands[2], LoadState(left, Const(0)), TrapCode::kOutOfBounds, instr.source);
  }
  ir::Op op{.code = Opcode::kMemoryInit};
  op.imm = context_.layout.data[instr.imm];
  op.source = instr.source;
  builder_.Append(op, operands, {});
}

ValueId Lowering::AtomicLoad(ValueId address, const Instr& instr) {
  ir::Op op{.code = Opcode::kAtomicLoad};
  op.type = instr.width == 8 ? Type::kI64 : Type::kI32;
  op.width = instr.width;
  op.imm = instr.imm;
  op.source = instr.source;
  return builder_.Append1(op, std::array{address}, op.type);
}

// No instance ever waits, so none is woken; the load checks the address.
void Lowering::Notify(const Instr& instr) {
  const std::vector<ValueId> operands = PopSlots(2);  // Address, count.
  AtomicLoad(operands[0], instr);
  Push(Const(0));
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
      builder_.BeginIf(Binary(Opcode::kEq, value, operands[1], out_.type_of(value)), results, instr.source);
  const ValueId ends = Binary(Opcode::kGeS, operands[2], builder_.Const(Type::kI64, 0), Type::kI64);
  TrapUnless(ends, TrapCode::kWaitsForever, instr.source);
  builder_.Leave(outcome, std::array{Const(kTimedOut)});
  builder_.Else();
  builder_.Leave(outcome, std::array{Const(kNotEqual)});
  builder_.End();
  Push(builder_.Results(outcome)[0]);
}

}  // namespace hpvm::wasm
