// SPDX-License-Identifier: Apache-2.0
// Generation of statements and control flow.
#include <algorithm>
#include <bit>

#include "tests/diff/generator.h"
#include "tests/diff/operators.h"

namespace hpvm::diff {
namespace {

using enum ValueType;

constexpr uint32_t kIterationsMax = 48;  // Limit for nested loops together.
constexpr uint32_t kTripsMax = 6;

}  // namespace

void Generator::Statements(uint32_t count, std::vector<Node>& body) {
  for (uint32_t i = 0; i < count; ++i) {
    if (i > 0 && budget_ <= 0) {
      return;
    }
    body.push_back(Statement());
  }
}

Node Generator::Assign() {
  const ValueType type = random_.Pick(types_);
  std::vector<uint32_t> globals;
  for (uint32_t i = 0; i < program_.globals.size(); ++i) {
    const bool is_base = std::any_of(areas_.begin(), areas_.end(), [&](const Area& area) {
      return swarm_.calls && !area.is_absolute && area.global == i;
    });
    if (program_.globals[i].type == type && program_.globals[i].is_mutable && !is_base) {
      globals.push_back(i);
    }
  }
  if (!globals.empty() && random_.Percent(30)) {
    Node node{.kind = NodeKind::kGlobalSet, .index = random_.Pick(globals)};
    node.operands.push_back(Expression(type));
    return node;
  }
  Node value = Expression(type);
  return Set(WritableLocal(type), std::move(value));
}

Node Generator::Store() {
  if (swarm_.atomics && shared_row_ != 0 && InEntry() && random_.Percent(30)) {
    return UpdateShared();
  }
  uint32_t row = random_.Pick(rows_[kValueTypes]);
  if (Operators()[row].is_atomic) {
    row = random_.Pick(rows_[kValueTypes]);
  }
  if (swarm_.floats && random_.Percent(5)) {
    // A copy, which keeps the payload of NaNs.
    const bool is_wide = random_.Percent(50);
    uint32_t from = 0, to = 0;
    Node source = Address(is_wide ? 8 : 4, false, false, &from);
    Node target = Address(is_wide ? 8 : 4, true, false, &to);
    Node load = Operation(0, is_wide ? 0x2b : 0x2a, {std::move(source)});
    load.bits[0] = from;
    Node store = Operation(0, is_wide ? 0x39 : 0x38, {std::move(target), Pin(std::move(load))});
    store.bits[0] = to;
    return store;
  }
  return Operate(row);
}

// One operation, the same in the whole program, so that the order of instances does not matter; the old value is not
// used.
Node Generator::UpdateShared() {
  const Operator& row = Operators()[shared_row_];
  Node address = Masked((64 - 1) & ~(row.width - 1u));
  address.operands[0] = Pin(Get(shared_param_, program_.address_type()));
  Node node{.kind = NodeKind::kOperator, .type = row.result, .arity = 1};
  node.index = shared_row_;
  node.align = static_cast<uint8_t>(std::countr_zero(uint32_t{row.width}));
  node.operands.push_back(std::move(address));
  node.operands.push_back(Expression(row.operands[1]));
  Node drop{.kind = NodeKind::kDrop};
  drop.operands.push_back(std::move(node));
  return drop;
}

Node Generator::Trap() {
  Node node{.kind = NodeKind::kIf, .label = next_label_++};
  node.operands.push_back(Operation(0, 0x46, {Expression(kI32), Const32(random_.Below(4))}));
  node.body.push_back(Node{.kind = NodeKind::kUnreachable});
  return node;
}

Node Generator::Bulk() {
  const bool is_copy = random_.Percent(60);
  const uint32_t bytes = 8u << random_.Below(3);
  Node node{.kind = is_copy ? NodeKind::kMemoryCopy : NodeKind::kMemoryFill};
  // Room for `bytes`, and no offset, because these instructions have none.
  const auto address = [&](bool for_store) {
    const ValueType type = program_.address_type();
    std::vector<Area> areas;
    std::copy_if(areas_.begin(), areas_.end(), std::back_inserter(areas),
                 [&](const Area& area) { return area.is_writable || !for_store; });
    const Area area = random_.Pick(areas);
    Node at = Masked(area.bytes - bytes < 32 ? 31 : 15);
    at.type = type;
    at.operands[0] = BaseOf(area);
    return at;
  };
  node.operands.push_back(address(true));
  node.operands.push_back(is_copy ? address(false) : Expression(kI32));
  node.operands.push_back(random_.Percent(50) ? ConstOf(program_.address_type(), random_.Below(bytes + 1))
                                              : Masked(bytes - 1));
  node.operands.back().is_pinned = node.operands.back().kind == NodeKind::kConst;
  return node;
}

// Copies 16 bytes of a passive segment; with traps it may have been dropped.
Node Generator::InitMemory() {
  const auto segment = random_.Below(static_cast<uint32_t>(program_.passive_data.size()));
  if (swarm_.traps && random_.Percent(10)) {
    return Node{.kind = NodeKind::kDataDrop, .index = segment};
  }
  uint32_t offset = 0;
  Node node{.kind = NodeKind::kMemoryInit, .index = segment};
  Node address = Address(16, true, true, &offset);  // Offsets are multiples of 16, and are left out here.
  node.operands.push_back(std::move(address));
  node.operands.push_back(Small(7));
  node.operands.push_back(Small(7));
  return node;
}

Node Generator::TableStatement() {
  switch (random_.Below(swarm_.traps ? 5 : 4)) {
    case 0:
      return TableNode(TableOp::kSet, {Small(7), Reference()});
    case 1:
      return TableNode(TableOp::kFill, {Small(3), Reference(), Small(3)});
    case 2:
      return TableNode(TableOp::kCopy, {Small(3), Small(3), Small(3)});
    case 3:
      return TableNode(TableOp::kInit, {Small(3), Small(1), Small(3)});
    default:
      return TableNode(TableOp::kElemDrop, {});
  }
}

std::vector<Node> Generator::Arguments(const Signature& type, bool is_recursive) {
  std::vector<Node> arguments;
  for (size_t i = 0; i < type.params.size(); ++i) {
    arguments.push_back(i == 0 && is_recursive ? Pin(Const32(random_.Below(4))) : Expression(type.params[i]));
  }
  return arguments;
}

Node Generator::Call(uint32_t function, bool is_indirect) {
  const Signature& type = program_.functions[function].type;
  Node node{.kind = is_indirect ? NodeKind::kCallIndirect : NodeKind::kCall, .index = function};
  node.arity = static_cast<uint8_t>(type.results.size());
  node.results = type.results;
  if (type.results.size() == 1) {
    node.type = type.results[0];
  }
  node.operands = Arguments(type, callees_[function].is_recursive);
  if (!is_indirect) {
    return node;
  }
  if (!referable_.empty() && type == program_.functions[referable_[0]].type && random_.Percent(60)) {
    node.label = 1;
    node.operands.push_back(Small(7));
    return node;
  }
  std::vector<uint32_t> entries;
  for (uint32_t i = 0; i < program_.table.size(); ++i) {
    if (program_.table[i] >= 0 && program_.functions[static_cast<size_t>(program_.table[i])].type == type) {
      entries.push_back(i);
    }
  }
  if (program_.table.empty()) {
    node.label = 1;
    node.operands.push_back(Small(7));
  } else if (entries.empty() || (swarm_.traps && random_.Percent(15))) {
    node.operands.push_back(Operation(0, 0x71, {Expression(kI32), Const32(15)}));
  } else if (random_.Percent(40)) {
    node.operands.push_back(Const32(random_.Pick(entries)));
  } else {
    Node select{.kind = NodeKind::kSelect, .type = kI32, .arity = 1};
    select.results = {kI32};
    select.operands = {Pin(Const32(random_.Pick(entries))), Pin(Const32(random_.Pick(entries))), Expression(kI32)};
    node.operands.push_back(std::move(select));
  }
  return node;
}

Node Generator::Consume(Node value, const std::vector<ValueType>& types) {
  if (types.empty()) {
    return value;
  }
  if (types.size() == 1 && random_.Percent(5)) {
    Node drop{.kind = NodeKind::kDrop};
    drop.operands.push_back(std::move(value));
    return drop;
  }
  Node set{.kind = NodeKind::kSetMany};
  for (ValueType type : types) {
    set.labels.push_back(WritableLocal(type));
  }
  set.operands.push_back(std::move(value));
  return set;
}

Node Generator::CallStatement() {
  const bool may_call = InEntry() || !callees_[function_index_].is_leaf;
  const auto first = function_index_ + 1;
  if (!may_call || first >= callees_.size()) {
    return Assign();
  }
  uint32_t function = random_.Between(first, static_cast<uint32_t>(callees_.size()) - 1);
  const bool has_table = !program_.table.empty() ||
                         (!referable_.empty() && program_.functions[function].type == program_.functions.back().type);
  const bool is_indirect = has_table && callees_[function].is_leaf && random_.Percent(60);
  if (callees_[function_index_].is_recursive && iterations_ == 1 && random_.Percent(50)) {
    return Recurse();
  }
  const std::vector<ValueType> results = program_.functions[function].type.results;
  return Consume(Call(function, is_indirect), results);
}

// if (depth) { self(depth - 1, ...) }
Node Generator::Recurse() {
  Node call = Call(function_index_, false);
  call.operands[0] = Pin(Operation(0, 0x6b, {Get(0, kI32), Const32(1)}));
  Node node{.kind = NodeKind::kIf, .label = next_label_++};
  node.operands.push_back(Pin(Get(0, kI32)));
  const std::vector<ValueType> results = function_->type.results;
  node.body.push_back(Consume(std::move(call), results));
  return node;
}

Node Generator::Branch() {
  if (labels_.empty()) {
    return Assign();
  }
  const Label label = random_.Pick(labels_);
  Node node{.kind = NodeKind::kBrIf, .label = label.id};
  for (ValueType type : label.types) {
    node.operands.push_back(Expression(type));
  }
  node.operands.push_back(Expression(kI32));
  node.arity = static_cast<uint8_t>(label.types.size());
  node.results = label.types;
  if (label.types.size() == 1) {
    node.type = label.types[0];
  }
  return Consume(std::move(node), label.types);
}

// In a block of its own, because nothing follows a br_table.
Node Generator::BranchTable() {
  Node block{.kind = NodeKind::kBlock, .label = next_label_++};
  labels_.push_back({block.label, {}});
  const Label picked = random_.Percent(40) ? labels_.back() : random_.Pick(labels_);
  std::vector<uint32_t> same;
  for (const Label& label : labels_) {
    if (label.types == picked.types) {
      same.push_back(label.id);
    }
  }
  Node table{.kind = NodeKind::kBrTable};
  const uint32_t count = random_.Between(1, 5);
  for (uint32_t i = 0; i < count; ++i) {
    table.labels.push_back(random_.Pick(same));
  }
  Statements(random_.Below(2), block.body);
  for (ValueType type : picked.types) {
    table.operands.push_back(Expression(type));
  }
  Node index = Expression(kI32);
  table.operands.push_back(random_.Percent(70) ? Operation(0, 0x71, {std::move(index), Const32(7)}) : std::move(index));
  block.body.push_back(std::move(table));
  labels_.pop_back();
  return block;
}

Node Generator::Terminator() {
  Node node{.kind = NodeKind::kReturn};
  const bool may_return = !(InEntry() && program_.has_barrier);
  if (swarm_.traps && random_.Percent(10)) {
    node.kind = NodeKind::kUnreachable;
    return node;
  }
  std::vector<ValueType> types = function_->type.results;
  if (!labels_.empty() && (random_.Percent(70) || !may_return)) {
    const Label label = random_.Pick(labels_);
    node.kind = NodeKind::kBr;
    node.label = label.id;
    types = label.types;
  } else if (!may_return) {
    return Node{.kind = NodeKind::kNop};
  }
  for (ValueType type : types) {
    node.operands.push_back(Expression(type));
  }
  return node;
}

// Generates the contents and the results of a region.
void Generator::Body(const std::vector<ValueType>& results, std::vector<Node>& body) {
  Statements(random_.Below(4), body);
  if (random_.Percent(8) && (!labels_.empty() || !InEntry())) {
    Node node = Terminator();
    const bool ends = node.kind != NodeKind::kNop;
    body.push_back(std::move(node));
    if (ends) {
      if (random_.Percent(15)) {
        body.push_back(Statement());  // Unreachable.
      }
      return;
    }
  }
  if (results.size() > 1 && random_.Percent(30) && budget_ > 0) {
    body.push_back(Block(random_.Percent(50) ? NodeKind::kBlock : NodeKind::kIf, results));
    return;
  }
  for (ValueType type : results) {
    body.push_back(Expression(type));
  }
}

// The parameters are on the stack; the last one is popped first.
void Generator::PopParams(const std::vector<ValueType>& params, std::vector<Node>& body) {
  for (size_t i = params.size(); i-- > 0;) {
    Node value{.kind = NodeKind::kPop, .type = params[i], .arity = 1};
    value.is_pinned = true;
    if ((params[i] == kI32 || params[i] == kI64) && random_.Percent(50)) {
      const uint32_t add = params[i] == kI32 ? 0x6a : 0x7c;
      value = Operation(0, add + random_.Below(3), {std::move(value), Leaf(params[i])});
    }
    body.push_back(Set(WritableLocal(params[i]), std::move(value)));
  }
}

Node Generator::Block(NodeKind kind, const std::vector<ValueType>& results) {
  Node node{.kind = kind, .label = next_label_++};
  node.arity = static_cast<uint8_t>(results.size());
  node.results = results;
  if (results.size() == 1) {
    node.type = results[0];
  }
  if (swarm_.block_params && random_.Percent(25)) {
    node.params = Types(2);
    for (ValueType type : node.params) {
      node.operands.push_back(Expression(type));
    }
  }
  if (kind == NodeKind::kIf) {
    node.operands.push_back(Expression(kI32));
  }
  labels_.push_back({node.label, results});
  PopParams(node.params, node.body);
  Body(results, node.body);
  if (kind == NodeKind::kIf && (!results.empty() || !node.params.empty() || random_.Percent(50))) {
    PopParams(node.params, node.otherwise);
    Body(results, node.otherwise);
    if (node.otherwise.empty()) {
      node.otherwise.push_back(Node{.kind = NodeKind::kNop});
    }
  }
  labels_.pop_back();
  return node;
}

// counter = trips; loop { ... } with the counter at the head, so that continuing is bounded too, or at the end.
Node Generator::Loop(const std::vector<ValueType>& results) {
  const uint32_t trips = random_.Between(1, kTripsMax);
  if (iterations_ * trips > kIterationsMax) {
    return Block(NodeKind::kBlock, results);
  }
  iterations_ *= trips;
  Node outer{.kind = NodeKind::kBlock, .label = next_label_++};
  outer.arity = static_cast<uint8_t>(results.size());
  outer.results = results;
  outer.type = results.size() == 1 ? results[0] : kI32;
  const uint32_t counter = NewLocal(kI32, false);
  outer.body.push_back(Set(counter, Pin(Const32(trips))));
  labels_.push_back({outer.label, results});
  Node loop{.kind = NodeKind::kLoop, .label = next_label_++};
  if (swarm_.block_params && random_.Percent(40)) {
    loop.params = Types(2);
    for (ValueType type : loop.params) {
      loop.operands.push_back(Expression(type));
    }
  }
  CountedLoop(loop, outer, counter);
  const bool falls_through = loop.results == results;
  outer.body.push_back(std::move(loop));
  if (!falls_through) {
    outer.body.push_back(Node{.kind = NodeKind::kUnreachable});
  }
  labels_.pop_back();
  iterations_ /= trips;
  return outer;
}

void Generator::CountedLoop(Node& loop, const Node& outer, uint32_t counter) {
  PopParams(loop.params, loop.body);
  Node count = Pin(Set(counter, Operation(0, 0x6b, {Get(counter, kI32), Const32(1)})));
  if (random_.Percent(50)) {
    Node leave{.kind = NodeKind::kBr, .label = outer.label};
    for (ValueType type : outer.results) {
      leave.operands.push_back(Leaf(type));
    }
    Node check{.kind = NodeKind::kIf, .label = next_label_++};
    check.operands.push_back(Pin(Operation(0, 0x45, {Get(counter, kI32)})));
    check.body.push_back(std::move(leave));
    loop.body.push_back(std::move(check));
    loop.body.push_back(std::move(count));
    labels_.push_back({loop.label, loop.params});
    Statements(random_.Between(1, 4), loop.body);
    labels_.pop_back();
    Node again{.kind = NodeKind::kBr, .label = loop.label};
    for (ValueType type : loop.params) {
      again.operands.push_back(Expression(type));
    }
    loop.body.push_back(std::move(again));
    return;
  }
  loop.results = outer.results;
  loop.arity = outer.arity;
  loop.type = outer.type;
  Statements(random_.Between(1, 4), loop.body);
  Node again{.kind = NodeKind::kBrIf, .label = loop.label};
  again.arity = static_cast<uint8_t>(loop.params.size());
  for (ValueType type : loop.params) {
    again.operands.push_back(Expression(type));
    again.type = type;
  }
  loop.body.push_back(std::move(count));
  again.operands.push_back(Pin(Get(counter, kI32)));
  const std::vector<ValueType> params = loop.params;
  loop.body.push_back(Consume(std::move(again), params));
  for (ValueType type : loop.results) {
    loop.body.push_back(Expression(type));
  }
}

// Every instance writes its slot, waits, reads any slot of its group, and waits again.
void Generator::ExchangeOnce(std::vector<Node>& body) {
  const bool is_wide = swarm_.wide && random_.Percent(50);
  const ValueType address = program_.address_type();
  const Node barrier{.kind = NodeKind::kImport, .index = static_cast<uint32_t>(ImportId::kBarrier)};
  body.push_back(
      Operation(0, is_wide ? 0x37 : 0x36, {Pin(Get(group_slot_, address)), Expression(is_wide ? kI64 : kI32)}));
  body.push_back(barrier);
  Node from = Masked((group_slots_ - 1) * 16 + 8);
  from.operands[0] = Pin(Get(group_local_, address));
  Node load = Operation(0, is_wide ? 0x29 : 0x28, {std::move(from)});
  body.push_back(Set(WritableLocal(is_wide ? kI64 : kI32), std::move(load)));
  body.push_back(barrier);
}

void Generator::Exchange(std::vector<Node>& body) {
  if (!swarm_.loops || random_.Percent(60)) {
    return ExchangeOnce(body);
  }
  const uint32_t counter = NewLocal(kI32, false);
  body.push_back(Set(counter, Pin(Const32(random_.Between(1, 4)))));
  Node loop{.kind = NodeKind::kLoop, .label = next_label_++};
  Statements(random_.Below(2), loop.body);
  ExchangeOnce(loop.body);
  loop.body.push_back(Pin(Set(counter, Operation(0, 0x6b, {Get(counter, kI32), Const32(1)}))));
  Node again{.kind = NodeKind::kBrIf, .label = loop.label};
  again.operands.push_back(Pin(Get(counter, kI32)));
  loop.body.push_back(std::move(again));
  body.push_back(std::move(loop));
}

Node Generator::Statement() {
  --budget_;
  const uint32_t choice = random_.Below(100);
  if (swarm_.references && random_.Percent(8)) {
    return TableStatement();
  }
  if (choice < 24) {
    return Assign();
  }
  if (choice < 48) {
    return Store();
  }
  if (choice < 59) {
    return Block(NodeKind::kIf, {});
  }
  if (choice < 64) {
    return Block(NodeKind::kBlock, {});
  }
  if (choice < 73) {
    return swarm_.loops ? Loop({}) : Assign();
  }
  if (choice < 79) {
    return Branch();
  }
  if (choice < 83) {
    return BranchTable();
  }
  if (choice < 91) {
    return CallStatement();
  }
  if (choice < 95 && !program_.passive_data.empty() && random_.Percent(40)) {
    return InitMemory();
  }
  if (choice < 95 && swarm_.bulk) {
    return Bulk();
  }
  if (choice < 96 && swarm_.traps) {
    return Trap();
  }
  return Assign();
}

}  // namespace hpvm::diff
