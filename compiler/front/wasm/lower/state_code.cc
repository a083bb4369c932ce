// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/lower/state_code.h"

namespace hpvm::wasm {
namespace {

constexpr uint32_t kEntryBytes = 4;

ValueId Add(ir::Builder& builder, ValueId a, ValueId b) {
  return builder.Append1({.code = Opcode::kAdd}, std::array{a, b}, Type::kI32);
}

// Appends a loop that runs `body(i)` for i in [0, count).
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
  builder.Trap(TrapCode::kUnreachable);  // The region must end, although it is unreachable.
  builder.End();
}

ValueId EntryOffset(ir::Builder& builder, ValueId begin, ValueId index) {
  const ValueId shift = builder.Const(Type::kI32, 2);
  return Add(builder, begin, builder.Append1({.code = Opcode::kShl}, std::array{index, shift}, Type::kI32));
}

ir::Op StateAccess(Opcode code) {
  ir::Op op{.code = code, .space = ir::Space::kState, .width = kEntryBytes};
  return op;
}

// Parameters: first byte, reference, number of entries.
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

// Parameters: first byte of the target, first byte of the source, number of entries. Copies upwards, or downwards
// when the target lies above the source.
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

void TableFunctions::AppendTo(ir::Module& out) const {
  for (size_t id = out.functions.size(); id < next; ++id) {
    out.functions.push_back(fill == ir::FunctionId(id) ? FillFunction() : CopyFunction());
  }
}

ValueId StateCode::Binary(Opcode code, ValueId a, ValueId b, Type type) {
  ir::Op op{.code = code, .type = type};
  const bool is_compare = ir::Info(code).family == ir::Family::kIntCompare;
  return builder_.Append1(op, std::array{a, b}, is_compare ? Type::kI32 : type);
}

ValueId StateCode::Convert(Opcode code, ValueId value, Type from, Type to) {
  ir::Op op{.code = code, .type = from};
  return builder_.Append1(op, std::array{value}, to);
}

ValueId StateCode::LoadAt(ValueId at, uint64_t offset, Type type) {
  ir::Op op = StateAccess(Opcode::kLoad);
  op.type = type;
  op.width = static_cast<uint8_t>(ir::Bytes(type));
  op.imm = offset;
  return builder_.Append1(op, std::array{at}, type);
}

void StateCode::StoreAt(ValueId at, uint64_t offset, ValueId value) {
  ir::Op op = StateAccess(Opcode::kStore);
  op.type = out_.type_of(value);
  op.width = static_cast<uint8_t>(ir::Bytes(op.type));
  op.imm = offset;
  builder_.Append(op, std::array{at, value}, {});
}

void StateCode::TrapUnless(ValueId condition, TrapCode code, uint32_t source) {
  const OpId check = builder_.BeginIf(condition, {}, source);
  builder_.Leave(check, {});
  builder_.Else();
  builder_.Trap(code, source);
  builder_.End();
}

void StateCode::CheckRange(ValueId at, ValueId count, ValueId size, TrapCode code, uint32_t source) {
  const auto wide = [&](ValueId value) { return Convert(Opcode::kExtendU, value, Type::kI32, Type::kI64); };
  const ValueId end = Binary(Opcode::kAdd, wide(at), wide(count), Type::kI64);
  TrapUnless(Binary(Opcode::kLeU, end, wide(size), Type::kI64), code, source);
}

ValueId StateCode::SizeOf(const TableLayout& place) {
  return place.fixed_size != kNowhere ? Const(place.fixed_size) : Load(place.offset);
}

ValueId StateCode::EntryAt(const TableLayout& place, ValueId index) {
  return EntryOffset(builder_, Const(place.offset + kEntryBytes), index);
}

void StateCode::Call(ir::FunctionId& function, const std::array<ValueId, 3>& operands) {
  if (!function.valid()) {
    function = ir::FunctionId(functions_.next++);
  }
  ir::Op op{.code = Opcode::kCall, .imm = function.index};
  builder_.Append(op, operands, {});
}

void StateCode::Fill(const TableLayout& place, ValueId at, ValueId value, ValueId count) {
  Call(functions_.fill, {EntryAt(place, at), value, count});
}

void StateCode::Copy(const TableLayout& to_place, ValueId to, const TableLayout& from_place, ValueId from,
                     ValueId count) {
  Call(functions_.copy, {EntryAt(to_place, to), EntryAt(from_place, from), count});
}

}  // namespace hpvm::wasm
