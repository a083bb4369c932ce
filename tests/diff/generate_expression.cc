// SPDX-License-Identifier: Apache-2.0
// Generation of values.
#include <algorithm>
#include <bit>

#include "tests/diff/generator.h"
#include "tests/diff/operators.h"

namespace hpvm::diff {
namespace {

using enum ValueType;

constexpr int kDepthMax = 7;
// Beyond module memory, every buffer and all of V8's memory.
constexpr uint64_t kFarAddress = 0xfffff000;

bool IsFloat(ValueType type) { return type == kF32 || type == kF64; }

}  // namespace

Node Generator::ConstOf(ValueType type, uint64_t bits) {
  return Node{.kind = NodeKind::kConst, .type = type, .arity = 1, .bits = {bits, 0}};
}

Node Generator::Get(uint32_t local, ValueType type) {
  return Node{.kind = NodeKind::kLocalGet, .type = type, .arity = 1, .index = local};
}

Node Generator::Set(uint32_t local, Node value) {
  Node node{.kind = NodeKind::kLocalSet, .index = local};
  node.operands.push_back(std::move(value));
  return node;
}

Node Generator::Operation(uint32_t prefix, uint32_t code, std::vector<Node> operands) {
  const std::vector<Operator>& rows = Operators();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const Operator& r) { return r.prefix == prefix && r.code == code; });
  Node node{.kind = NodeKind::kOperator, .type = row->result};
  node.arity = row->has_result ? 1 : 0;
  node.index = static_cast<uint32_t>(row - rows.begin());
  node.operands = std::move(operands);
  return node;
}

Node Generator::Pin(Node node) {
  node.is_pinned = true;
  return node;
}

Node Generator::ToAddress(Node value32) {
  return program_.is_memory64 ? Operation(0, 0xad, {std::move(value32)}) : std::move(value32);
}

uint32_t Generator::NewLocal(ValueType type, bool may_write) {
  const auto local = static_cast<uint32_t>(function_->type.params.size() + function_->locals.size());
  function_->locals.push_back(type);
  readable_[static_cast<size_t>(type)].push_back(local);
  if (may_write) {
    writable_[static_cast<size_t>(type)].push_back(local);
  }
  return local;
}

uint32_t Generator::WritableLocal(ValueType type) {
  const std::vector<uint32_t>& locals = writable_[static_cast<size_t>(type)];
  return locals.empty() ? NewLocal(type, true) : random_.Pick(locals);
}

uint64_t Generator::ConstantBits(ValueType type) {
  static constexpr uint64_t kIntegers[] = {0,
                                           1,
                                           2,
                                           0xff,
                                           0x80,
                                           0x7fff,
                                           0x8000,
                                           0xffff,
                                           0x7fffffff,
                                           0x80000000,
                                           0xffffffff,
                                           0x100000000,
                                           ~uint64_t{0},
                                           uint64_t{1} << 63,
                                           ~uint64_t{0} >> 1,
                                           31,
                                           32,
                                           63,
                                           64};
  static constexpr float kFloats[] = {0.0f,
                                      -0.0f,
                                      1.0f,
                                      -1.0f,
                                      0.5f,
                                      1.5f,
                                      2.5f,
                                      -2.5f,
                                      4503599627370496.0f,
                                      1e-40f,
                                      3.4e38f,
                                      2147483648.0f,
                                      -2147483648.0f,
                                      4294967296.0f,
                                      9223372036854775808.0f,
                                      16777217.0f,
                                      __builtin_inff(),
                                      -__builtin_inff(),
                                      0.1f,
                                      255.0f,
                                      -32768.5f};
  static constexpr uint32_t kOddFloats[] = {0x7fc00000, 0xffc00000, 0x7fa00001, 1, 0x80000001, 0x7f7fffff, 0x00800000};
  if (type == kI32 || type == kI64 || type == kV128) {
    const uint64_t bits = random_.Percent(35)   ? kIntegers[random_.Below(std::size(kIntegers))]
                          : random_.Percent(40) ? random_.Below(256)
                                                : random_.Next();
    return type == kI32 ? bits & 0xffffffff : bits;
  }
  const float value = kFloats[random_.Below(std::size(kFloats))];
  if (type == kF32) {
    return random_.Percent(20)   ? kOddFloats[random_.Below(std::size(kOddFloats))]
           : random_.Percent(30) ? random_.Next() >> 32
                                 : std::bit_cast<uint32_t>(value);
  }
  return random_.Percent(30) ? random_.Next() : std::bit_cast<uint64_t>(static_cast<double>(value));
}

Node Generator::Constant(ValueType type) {
  if (type == kFuncRef) {
    return ConstOf(type, referable_.empty() || random_.Percent(25) ? 0 : random_.Pick(referable_));
  }
  Node node = ConstOf(type, ConstantBits(type));
  node.bits[1] = type == kV128 ? ConstantBits(kI64) : 0;
  return node;
}

Node Generator::Query(ValueType type) {
  static constexpr ImportId kNarrow[] = {ImportId::kInstanceId, ImportId::kInstanceCount, ImportId::kGroupId,
                                         ImportId::kGroupSize,  ImportId::kLocalId,       ImportId::kBufferSize};
  ImportId id = kNarrow[random_.Percent(60) ? 0 : random_.Below(std::size(kNarrow))];
  if (type == kI64) {
    id = random_.Percent(70) ? ImportId::kInstanceId64 : ImportId::kInstanceCount64;
  }
  Node node{.kind = NodeKind::kImport, .type = type, .arity = 1, .index = static_cast<uint32_t>(id)};
  node.operands.push_back(random_.Percent(90) || budget_ <= 0 ? Const32(random_.Below(4)) : Expression(kI32));
  return node;
}

Node Generator::Leaf(ValueType type) {
  --budget_;
  const uint32_t choice = random_.Below(100);
  const std::vector<uint32_t>& locals = readable_[static_cast<size_t>(type)];
  if (choice < 45 && !locals.empty()) {
    return Get(random_.Pick(locals), type);
  }
  if (choice < 57) {
    std::vector<uint32_t> globals;
    for (uint32_t i = 0; i < program_.globals.size(); ++i) {
      if (program_.globals[i].type == type) {
        globals.push_back(i);
      }
    }
    if (!globals.empty()) {
      return Node{.kind = NodeKind::kGlobalGet, .type = type, .arity = 1, .index = random_.Pick(globals)};
    }
  }
  if (choice < 67 && (type == kI32 || type == kI64)) {
    return Query(type);
  }
  if (choice < 70 && type == program_.address_type() && swarm_.grow) {
    return Node{.kind = NodeKind::kMemorySize, .type = type, .arity = 1};
  }
  return Constant(type);
}

Node Generator::Canonical(Node value) {
  Node node{.kind = NodeKind::kCanonical, .type = value.type, .arity = 1};
  node.operands.push_back(std::move(value));
  return node;
}

Node Generator::Masked(uint32_t mask) {
  Node node{.kind = NodeKind::kAddress, .type = program_.address_type(), .arity = 1, .bits = {mask, 0}};
  node.operands.push_back(Pin(ConstOf(program_.address_type(), 0)));
  node.operands.push_back(program_.is_memory64 && random_.Percent(40) ? ToAddress(Expression(kI32))
                                                                      : Expression(program_.address_type()));
  return node;
}

Node Generator::BaseOf(const Area& area) {
  const ValueType type = program_.address_type();
  if (area.is_absolute) {
    return Pin(ConstOf(type, area.base));
  }
  return InEntry() ? Pin(Get(area.local, type))
                   : Pin(Node{.kind = NodeKind::kGlobalGet, .type = type, .arity = 1, .index = area.global});
}

// Returns an address such that `width` bytes from it plus *offset lie in an area, unless a trap is wanted.
Node Generator::Address(uint32_t width, bool for_store, bool is_aligned, uint32_t* offset) {
  std::vector<Area> areas;
  for (const Area& area : areas_) {
    if ((area.is_writable || !for_store) && (!InEntry() || !area.is_absolute || program_.pages > 0)) {
      areas.push_back(area);
    }
  }
  const Area area = random_.Pick(areas);
  if (swarm_.traps && random_.Percent(3)) {
    *offset = is_aligned ? 0 : random_.Below(16);
    return Pin(ConstOf(program_.address_type(), kFarAddress));
  }
  uint32_t mask = (area.bytes >> random_.Between(1, 2)) - 1;
  const uint32_t room = area.bytes - mask - width;
  *offset = random_.Percent(50) ? 0 : random_.Below(room + 1);
  if (is_aligned || random_.Percent(50)) {
    mask &= ~(width - 1);
  }
  if (is_aligned) {
    *offset -= *offset % width;
  }
  if (swarm_.wild && random_.Percent(10)) {
    program_.is_wild = true;
    mask = 0x1ffff & ~(is_aligned ? width - 1 : 0);
  }
  Node node = Masked(mask);
  node.operands[0] = BaseOf(area);
  return node;
}

Node Generator::Operate(uint32_t index) {
  const Operator& row = Operators()[index];
  Node node{.kind = NodeKind::kOperator, .type = row.result};
  node.arity = row.has_result ? 1 : 0;
  node.index = index;
  node.bits = {random_.Next(), random_.Next()};
  const bool accesses = row.immediate == Immediate::kMemory || row.immediate == Immediate::kMemoryLane;
  for (uint32_t i = 0; i < row.operand_count; ++i) {
    if (i == 0 && accesses) {
      uint32_t offset = 0;
      const bool writes = !row.has_result || (row.is_atomic && row.operand_count > 1);
      node.operands.push_back(Address(row.width, writes, row.is_atomic, &offset));
      node.bits[0] = offset;
      const auto natural = static_cast<uint32_t>(std::countr_zero(uint32_t{row.width}));
      node.align = static_cast<uint8_t>(row.is_atomic ? natural : random_.Below(natural + 1));
      continue;
    }
    Node operand;
    if (row.converts && !swarm_.traps) {
      // An integer that fits, as a float.
      operand = Operation(0, row.operands[i] == kF32 ? 0xb2 : 0xb7,
                          {Operation(0, 0x71, {Expression(kI32), Const32(0xffff)})});
    } else {
      operand = Expression(row.operands[i]);
    }
    if (i == 1 && row.divides && !(swarm_.traps && random_.Percent(20))) {
      const bool is_64 = row.operands[i] == kI64;
      operand = Operation(0, is_64 ? 0x84 : 0x72, {std::move(operand), ConstOf(row.operands[i], 1)});
    }
    if ((row.canonical_operands >> i & 1) != 0) {
      operand = Canonical(std::move(operand));
    }
    node.operands.push_back(std::move(operand));
  }
  if (row.has_float_lanes) {
    node = Canonical(std::move(node));
    node.lane = row.lane;
  }
  return node;
}

Node Generator::Small(uint32_t mask) { return Operation(0, 0x71, {Expression(kI32), Pin(Const32(mask))}); }

Node Generator::TableNode(TableOp op, std::vector<Node> operands) {
  Node node{.kind = NodeKind::kTable, .index = static_cast<uint32_t>(op)};
  node.arity = op <= TableOp::kGrow && op != TableOp::kSet ? 1 : 0;
  node.type = op == TableOp::kGet ? kFuncRef : kI32;
  node.operands = std::move(operands);
  return node;
}

// Returns a reference for the table: never null, so that calls through it do not trap.
Node Generator::Reference() {
  return random_.Percent(50) ? Pin(ConstOf(kFuncRef, random_.Pick(referable_)))
                             : Pin(TableNode(TableOp::kGet, {Const32(random_.Below(8))}));
}

Node Generator::TableQuery() {
  switch (random_.Below(4)) {
    case 0:
      return TableNode(TableOp::kSize, {});
    case 1:
      return TableNode(TableOp::kGrow, {Reference(), Small(1)});
    default: {
      Node node{.kind = NodeKind::kRefIsNull, .type = kI32, .arity = 1};
      node.operands.push_back(Expression(kFuncRef));
      return node;
    }
  }
}

Node Generator::OperateFor(ValueType type) {
  if (type == kFuncRef) {
    return random_.Percent(50) ? TableNode(TableOp::kGet, {Small(7)}) : Constant(type);
  }
  const std::vector<uint32_t>& rows = rows_[static_cast<size_t>(type)];
  uint32_t row = random_.Pick(rows);
  if (Operators()[row].is_atomic && random_.Percent(80)) {
    row = random_.Pick(rows);  // There are many of them.
  }
  return Operate(row);
}

Node Generator::Select(ValueType type) {
  Node node{.kind = NodeKind::kSelect, .type = type, .arity = 1};
  node.results = {type};
  for (ValueType operand : {type, type, kI32}) {
    node.operands.push_back(Expression(operand));
  }
  return node;
}

// If not taken, br_if leaves the values that it would have passed along.
Node Generator::ValueOfBranch(ValueType type) {
  for (const Label& label : labels_) {
    if (label.types == std::vector<ValueType>{type} && random_.Percent(60)) {
      Node node{.kind = NodeKind::kBrIf, .type = type, .arity = 1, .label = label.id};
      node.operands.push_back(Expression(type));
      node.operands.push_back(Expression(kI32));
      return node;
    }
  }
  return OperateFor(type);
}

Node Generator::ValueOfCall(ValueType type) {
  if (!callees_[function_index_].is_leaf || InEntry()) {
    for (uint32_t i = function_index_ + 1; i < callees_.size(); ++i) {
      if (program_.functions[i].type.results == std::vector<ValueType>{type} && random_.Percent(60)) {
        return Call(i, false);
      }
    }
  }
  return OperateFor(type);
}

Node Generator::MinMaxAtomic(ValueType type) {
  const bool is_64 = type == kI64;
  const auto first = static_cast<uint32_t>(is_64 ? ImportId::kAtomicMinS64 : ImportId::kAtomicMinS32);
  Node node{.kind = NodeKind::kImport, .type = type, .arity = 1, .index = first + random_.Below(is_64 ? 2 : 4)};
  uint32_t offset = 0;
  node.operands.push_back(Address(is_64 ? 8 : 4, true, true, &offset));
  node.operands.push_back(Expression(type));
  return node;
}

// memory.grow: by 0 to 2 pages, or by too many.
Node Generator::Grow() {
  const ValueType type = program_.address_type();
  Node node{.kind = NodeKind::kMemoryGrow, .type = type, .arity = 1};
  node.operands.push_back(random_.Percent(80) ? Masked(3) : Constant(type));
  return node;
}

Node Generator::Expression(ValueType type) {
  if (budget_ <= 0 || depth_ >= kDepthMax) {
    return Leaf(type);
  }
  --budget_;
  ++depth_;
  const uint32_t choice = random_.Below(100);
  Node node;
  if (choice < 10) {
    node = Leaf(type);
  } else if (choice < 14) {
    node = Select(type);
  } else if (choice < 17) {
    node = Block(NodeKind::kBlock, {type});
  } else if (choice < 20) {
    node = Block(NodeKind::kIf, {type});
  } else if (choice < 22 && swarm_.loops) {
    node = Loop({type});
  } else if (choice < 25) {
    node = ValueOfCall(type);
  } else if (choice < 28) {
    Node tee{.kind = NodeKind::kLocalTee, .type = type, .arity = 1};
    tee.operands.push_back(Expression(type));
    tee.index = WritableLocal(type);
    node = std::move(tee);
  } else if (choice < 30) {
    node = ValueOfBranch(type);
  } else if (choice < 32 && swarm_.atomics && (type == kI32 || type == kI64)) {
    node = MinMaxAtomic(type);
  } else if (choice < 33 && swarm_.grow && type == program_.address_type()) {
    node = Grow();
  } else if (choice < 37 && swarm_.references && type == kI32) {
    node = TableQuery();
  } else if (choice < 35 && IsFloat(type)) {
    node = Canonical(Expression(type));
  } else {
    node = OperateFor(type);
  }
  --depth_;
  return node;
}

}  // namespace hpvm::diff
