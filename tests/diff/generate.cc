// SPDX-License-Identifier: Apache-2.0
#include "tests/diff/generate.h"

#include <algorithm>

#include "tests/diff/generator.h"
#include "tests/diff/operators.h"

namespace hpvm::diff {
namespace {

using enum ValueType;

constexpr uint32_t kPageBytes = 64 * 1024;
// An instance's part of a buffer: its first half is used at random; the result buffer's second half exposes values
// that would otherwise be lost.
constexpr uint32_t kAreaBytes = 64;
constexpr uint32_t kSliceBytes = 128;
constexpr uint32_t kGroupSlotBytes = 16;

}  // namespace

Program Generate(uint64_t seed, const Features& features) { return Generator(seed, features).Run(); }

Generator::Generator(uint64_t seed, const Features& features) : random_(seed * 0x2545f4914f6cdd1d + 1) {
  program_.seed = seed;
  ChooseSwarm(features);
}

void Generator::ChooseSwarm(const Features& features) {
  swarm_.simd = features.simd && random_.Percent(20);
  swarm_.floats = swarm_.simd || random_.Percent(75);
  program_.is_memory64 = features.memory64 && random_.Percent(5);
  swarm_.wide = swarm_.simd || program_.is_memory64 || random_.Percent(80);
  swarm_.atomics = random_.Percent(30);
  swarm_.bulk = random_.Percent(40);
  swarm_.grow = random_.Percent(20);
  swarm_.traps = random_.Percent(15);
  swarm_.tiny = random_.Percent(40);
  swarm_.calls = random_.Percent(swarm_.tiny ? 15 : 50);
  swarm_.tables = swarm_.calls && random_.Percent(50);
  swarm_.references = features.references && swarm_.calls && random_.Percent(25);
  swarm_.loops = random_.Percent(70);
  swarm_.block_params = random_.Percent(40);
  swarm_.wild = random_.Percent(4);
  program_.has_barrier = random_.Percent(8);
  types_ = {kI32};
  if (swarm_.wide) {
    types_.push_back(kI64);
  }
  if (swarm_.floats) {
    types_.push_back(kF32);
    types_.push_back(kF64);
  }
  if (swarm_.simd) {
    types_.push_back(kV128);
  }
  if (swarm_.references) {
    types_.push_back(kFuncRef);
  }
  const auto in_use = [&](ValueType type) { return std::find(types_.begin(), types_.end(), type) != types_.end(); };
  rows_.resize(kValueTypes + 1);
  const std::vector<Operator>& rows = Operators();
  for (uint32_t i = 0; i < rows.size(); ++i) {
    bool is_usable = (!rows[i].has_result || in_use(rows[i].result)) && (!rows[i].is_atomic || swarm_.atomics);
    for (uint32_t k = 0; k < rows[i].operand_count; ++k) {
      is_usable &= in_use(rows[i].operands[k]);
    }
    if (is_usable) {
      rows_[rows[i].has_result ? static_cast<size_t>(rows[i].result) : kValueTypes].push_back(i);
    }
  }
}

Program Generator::Run() {
  ChooseLaunch();
  ChooseMemory();
  ChooseParams();
  ChooseGlobals();
  ChooseFunctions();
  FillTable();
  for (uint32_t i = 1; i < program_.functions.size(); ++i) {
    GenerateFunction(i);
  }
  GenerateEntry();
  return std::move(program_);
}

void Generator::ChooseLaunch() {
  const uint32_t largest = program_.has_barrier ? 5 : 3;
  if (program_.has_barrier || random_.Percent(55)) {
    for (uint32_t& extent : program_.extent) {
      extent = random_.Percent(50) ? random_.Between(1, largest) : 1;
    }
    for (uint32_t& group : program_.group) {
      group = random_.Percent(50) ? random_.Between(1, 3) : 1;
    }
  }
  swarm_.wild &= program_.instances() == 1;
  while (group_slots_ < program_.group[0] * program_.group[1] * program_.group[2]) {
    group_slots_ *= 2;
  }
}

void Generator::FillBytes(std::vector<uint8_t>& bytes) {
  const uint32_t style = random_.Below(3);
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const ValueType type = style == 0 ? kI64 : style == 1 ? kF64 : kF32;
    uint64_t word = random_.Percent(30) ? ConstantBits(type) : random_.Next();
    if (type == kF32) {
      word |= ConstantBits(kF32) << 32;
    }
    for (size_t k = i; k < std::min(bytes.size(), i + 8); ++k) {
      bytes[k] = static_cast<uint8_t>(word >> (8 * (k - i)));
    }
  }
}

void Generator::ChooseMemory() {
  program_.pages = random_.Percent(15) ? 0 : random_.Between(1, 2);
  program_.pages_max = program_.pages;
  program_.has_pages_max = true;
  if (swarm_.grow) {
    program_.pages_max += random_.Below(3);
  }
  if (program_.pages == 0) {
    return;
  }
  Area area;
  area.is_absolute = true;
  area.bytes = kAreaBytes << random_.Below(3);
  const uint32_t last = program_.pages * kPageBytes - area.bytes;
  area.base = random_.Percent(40) ? 0 : random_.Percent(40) ? last : random_.Below(last);
  areas_.push_back(area);
  if (random_.Percent(70)) {
    Segment segment;
    segment.bytes.resize(random_.Between(1, area.bytes));
    segment.address = area.base + random_.Below(area.bytes - static_cast<uint32_t>(segment.bytes.size()) + 1);
    FillBytes(segment.bytes);
    program_.data.push_back(std::move(segment));
  }
}

void Generator::AddParam(uint32_t bytes, bool is_writable, bool is_sliced) {
  Param param;
  param.is_writable = is_writable;
  param.bytes.resize(bytes);
  FillBytes(param.bytes);
  Area area;
  area.local = static_cast<uint32_t>(program_.params.size());
  area.is_writable = is_writable;
  area.bytes = is_sliced ? kAreaBytes : bytes;
  areas_.push_back(area);
  program_.params.push_back(std::move(param));
}

void Generator::AddShared() {
  const std::vector<Operator>& rows = Operators();
  std::vector<uint32_t> fitting;
  for (uint32_t row : rows_[static_cast<size_t>(random_.Pick(types_) == kI64 ? kI64 : kI32)]) {
    // add, sub, and, or, xor of every width.
    if (rows[row].prefix == 0xfe && rows[row].code >= 0x1e && rows[row].code <= 0x40) {
      fitting.push_back(row);
    }
  }
  shared_row_ = random_.Pick(fitting);
  shared_param_ = static_cast<uint32_t>(program_.params.size());
  Param param;
  param.bytes.resize(kAreaBytes);
  FillBytes(param.bytes);
  program_.params.push_back(std::move(param));
}

// Parameter 0 is the result buffer.
void Generator::ChooseParams() {
  AddParam(program_.instances() * kSliceBytes, true, true);
  const uint32_t more = random_.Below(3);
  for (uint32_t i = 0; i < more; ++i) {
    if (random_.Percent(50)) {
      AddParam(kAreaBytes << random_.Below(4), false, false);
    } else {
      AddParam(program_.instances() * kSliceBytes + (random_.Percent(30) ? random_.Below(8) : 0), true, true);
    }
  }
  if (swarm_.atomics && random_.Percent(60)) {
    AddShared();
  }
  const uint32_t scalars = random_.Below(3);
  for (uint32_t i = 0; i < scalars; ++i) {
    Param param;
    param.is_buffer = false;
    do {
      param.type = random_.Pick(types_);
    } while (param.type == kV128 || param.type == kFuncRef);
    param.bits = ConstantBits(param.type);
    program_.params.push_back(std::move(param));
  }
}

std::vector<ValueType> Generator::Types(uint32_t count_max) {
  std::vector<ValueType> types(random_.Below(count_max + 1));
  for (ValueType& type : types) {
    type = random_.Pick(types_);
  }
  return types;
}

void Generator::ChooseGlobals() {
  if (swarm_.calls) {
    for (Area& area : areas_) {
      if (!area.is_absolute) {
        area.global = static_cast<uint32_t>(program_.globals.size());
        program_.globals.push_back({program_.address_type(), true, {}});
      }
    }
  }
  const uint32_t count = random_.Below(5);
  for (uint32_t i = 0; i < count; ++i) {
    const ValueType type = random_.Pick(types_);
    const uint64_t bits = type == kFuncRef ? 0 : ConstantBits(type);
    program_.globals.push_back({type, random_.Percent(75), {bits, random_.Next()}});
  }
}

void Generator::ChooseFunctions() {
  Function entry;
  for (const Param& param : program_.params) {
    entry.type.params.push_back(param.is_buffer ? program_.address_type() : param.type);
  }
  program_.functions.push_back(std::move(entry));
  callees_.push_back({});
  const uint32_t count = !swarm_.calls ? 0 : random_.Percent(75) ? random_.Between(1, 2) : random_.Between(3, 4);
  Signature shared{Types(3), Types(2)};
  for (uint32_t i = 1; i <= count; ++i) {
    Callee callee;
    callee.is_leaf = i > count / 2;
    callee.is_recursive = !callee.is_leaf && random_.Percent(40);
    Function function;
    function.type = callee.is_leaf && random_.Percent(60) ? shared : Signature{Types(4), Types(3)};
    if (callee.is_recursive) {
      function.type.params.insert(function.type.params.begin(), kI32);
    }
    program_.functions.push_back(std::move(function));
    callees_.push_back(callee);
  }
}

void Generator::FillTable() {
  if (swarm_.bulk && swarm_.references) {
    program_.passive_data.resize(random_.Between(1, 2));
    for (std::vector<uint8_t>& bytes : program_.passive_data) {
      bytes.resize(16);
      FillBytes(bytes);
    }
  }
  if (swarm_.references) {
    for (uint32_t i = 1; i < callees_.size(); ++i) {
      if (callees_[i].is_leaf && program_.functions[i].type == program_.functions.back().type) {
        referable_.push_back(i);
      }
    }
    program_.references.resize(8);
    program_.passive_references.resize(4);
    for (std::vector<int32_t>* list : {&program_.references, &program_.passive_references}) {
      for (int32_t& entry : *list) {
        entry = static_cast<int32_t>(random_.Pick(referable_));
      }
    }
  }
  if (!swarm_.tables) {
    return;
  }
  std::vector<int32_t> leaves;
  for (uint32_t i = 1; i < callees_.size(); ++i) {
    if (callees_[i].is_leaf) {
      leaves.push_back(static_cast<int32_t>(i));
    }
  }
  program_.table.resize(random_.Between(1, 8));
  for (int32_t& entry : program_.table) {
    entry = random_.Percent(10) ? -1 : random_.Pick(leaves);
  }
}

void Generator::AddLocals() {
  for (ValueType type : types_) {
    const uint32_t count = random_.Between(1, 2);
    for (uint32_t i = 0; i < count; ++i) {
      NewLocal(type, true);
    }
  }
}

// Limits the number of nodes. Most programs are small: many small ones find more than few large ones in the same
// time.
void Generator::ChooseBudget(uint32_t parts) {
  const uint32_t size = swarm_.tiny ? 0 : random_.Below(20);
  const uint32_t nodes = size < 8    ? random_.Between(8, 30)
                         : size < 18 ? random_.Between(30, 80)
                                     : random_.Between(80, 300);
  budget_ = static_cast<int>(nodes / parts);
}

void Generator::GenerateFunction(uint32_t index) {
  function_index_ = index;
  function_ = &program_.functions[index];
  readable_ = {};
  writable_ = {};
  labels_.clear();
  iterations_ = 1;
  const std::vector<ValueType>& params = function_->type.params;
  for (uint32_t i = 0; i < params.size(); ++i) {
    readable_[static_cast<size_t>(params[i])].push_back(i);
    if (i > 0 || !callees_[index].is_recursive) {
      writable_[static_cast<size_t>(params[i])].push_back(i);
    }
  }
  AddLocals();
  ChooseBudget(2);
  const std::vector<ValueType> results = function_->type.results;
  FillLocals(function_->body);
  Body(results, function_->body);
}

// x + count x * (y + count y * z), 32 bits.
Node Generator::LinearId() {
  const auto query = [&](ImportId id, uint32_t dimension) {
    Node node{.kind = NodeKind::kImport, .type = kI32, .arity = 1, .index = static_cast<uint32_t>(id)};
    node.operands.push_back(Const32(dimension));
    return node;
  };
  Node linear = query(ImportId::kInstanceId, 0);
  if (program_.extent[1] * program_.extent[2] > 1) {
    Node rows = Operation(0, 0x6c, {query(ImportId::kInstanceCount, 1), query(ImportId::kInstanceId, 2)});
    rows = Operation(0, 0x6a, {query(ImportId::kInstanceId, 1), std::move(rows)});
    rows = Operation(0, 0x6c, {query(ImportId::kInstanceCount, 0), std::move(rows)});
    linear = Operation(0, 0x6a, {std::move(linear), std::move(rows)});
  }
  return linear;
}

// Computes the address of the instance's part of each buffer.
std::vector<Node> Generator::Prologue() {
  std::vector<Node> body;
  const ValueType address = program_.address_type();
  for (Area& area : areas_) {
    if (area.is_absolute) {
      continue;
    }
    if (area.is_writable && program_.instances() > 1) {
      const uint32_t own = NewLocal(address, false);
      Node offset = ToAddress(Operation(0, 0x6c, {LinearId(), Const32(kSliceBytes)}));
      body.push_back(
          Set(own, Operation(0, program_.is_memory64 ? 0x7c : 0x6a, {Get(area.local, address), std::move(offset)})));
      area.local = own;
    }
    if (swarm_.calls) {
      Node set{.kind = NodeKind::kGlobalSet, .index = area.global};
      set.operands.push_back(Get(area.local, address));
      body.push_back(std::move(set));
    }
  }
  return body;
}

// Each instance of a group gets a slot, by its position in the group.
void Generator::AllocateGroupMemory(std::vector<Node>& body) {
  const ValueType address = program_.address_type();
  const auto query = [&](ImportId id, uint32_t dimension) {
    Node node{.kind = NodeKind::kImport, .type = kI32, .arity = 1, .index = static_cast<uint32_t>(id)};
    node.operands.push_back(Const32(dimension));
    return node;
  };
  Node rows = Operation(0, 0x6c, {query(ImportId::kGroupSize, 1), query(ImportId::kLocalId, 2)});
  rows = Operation(0, 0x6a, {query(ImportId::kLocalId, 1), std::move(rows)});
  rows = Operation(0, 0x6c, {query(ImportId::kGroupSize, 0), std::move(rows)});
  Node linear = Operation(0, 0x6a, {query(ImportId::kLocalId, 0), std::move(rows)});
  Node allocate{
      .kind = NodeKind::kImport, .type = address, .arity = 1, .index = static_cast<uint32_t>(ImportId::kLocalAlloc)};
  allocate.operands.push_back(ConstOf(address, group_slots_ * kGroupSlotBytes));
  group_local_ = NewLocal(address, false);
  group_slot_ = NewLocal(address, false);
  body.push_back(Set(group_local_, std::move(allocate)));
  Node offset = ToAddress(Operation(0, 0x6c, {std::move(linear), Const32(kGroupSlotBytes)}));
  body.push_back(Set(
      group_slot_, Operation(0, program_.is_memory64 ? 0x7c : 0x6a, {Get(group_local_, address), std::move(offset)})));
}

// Returns the value's bits, with NaNs made canonical, as i64; a vector's halves are added.
Node Generator::Bits(Node value) {
  switch (value.type) {
    case kI64:
      return value;
    case kF32:
      return Operation(0, 0xad, {Operation(0, 0xbc, {Canonical(std::move(value))})});
    case kF64:
      return Operation(0, 0xbd, {Canonical(std::move(value))});
    case kV128: {
      Node low = Operation(0xfd, 29, {value});
      Node high = Operation(0xfd, 29, {std::move(value)});
      high.bits[0] = 1;
      return Operation(0, 0x7c, {std::move(low), Operation(0, 0x89, {std::move(high), ConstOf(kI64, 32)})});
    }
    case kFuncRef: {
      Node is_null{.kind = NodeKind::kRefIsNull, .type = kI32, .arity = 1};
      is_null.operands.push_back(std::move(value));
      return Operation(0, 0xad, {std::move(is_null)});
    }
    default:
      return Operation(0, 0xad, {std::move(value)});
  }
}

// Stores one sum of locals and globals, so that few computed values are lost.
void Generator::Observe(std::vector<Node>& body) {
  Node sum = ConstOf(kI64, 0);
  const auto add = [&](Node value) {
    sum = Operation(0, 0x7c, {Operation(0, 0x89, {std::move(sum), Pin(ConstOf(kI64, 7))}), Bits(std::move(value))});
  };
  for (ValueType type : types_) {
    for (uint32_t local : writable_[static_cast<size_t>(type)]) {
      if (!swarm_.tiny || random_.Percent(50)) {
        add(Get(local, type));
      }
    }
  }
  for (uint32_t i = 0; i < program_.globals.size(); ++i) {
    if (program_.globals[i].is_mutable) {
      add(Node{.kind = NodeKind::kGlobalGet, .type = program_.globals[i].type, .arity = 1, .index = i});
    }
  }
  const Area& result = *std::find_if(areas_.begin(), areas_.end(), [](const Area& a) { return !a.is_absolute; });
  Node store = Operation(0, 0x37, {BaseOf(result), std::move(sum)});
  store.bits[0] = kAreaBytes;
  body.push_back(std::move(store));
}

// Initialises locals from the result buffer's second half, or with constants: zeros hide too much.
void Generator::FillLocals(std::vector<Node>& body) {
  struct Load {
    uint32_t prefix, code;
  };
  constexpr Load kLoads[] = {{0, 0x28}, {0, 0x29}, {0, 0x2a}, {0, 0x2b}, {0xfd, 0}};
  uint32_t offset = kAreaBytes;
  for (ValueType type : types_) {
    for (uint32_t local : writable_[static_cast<size_t>(type)]) {
      if (local < function_->type.params.size() || random_.Percent(20)) {
        continue;
      }
      if (!InEntry() || type == kFuncRef || offset + 16 > kSliceBytes || random_.Percent(40)) {
        body.push_back(Set(local, Constant(type)));
        continue;
      }
      const Area& result = *std::find_if(areas_.begin(), areas_.end(), [](const Area& a) { return !a.is_absolute; });
      const Load& load = kLoads[static_cast<size_t>(type)];
      Node value = Operation(load.prefix, load.code, {BaseOf(result)});
      value.bits[0] = offset;
      offset += 8;
      body.push_back(Set(local, std::move(value)));
    }
  }
}

void Generator::GenerateEntry() {
  function_index_ = 0;
  function_ = &program_.functions[0];
  readable_ = {};
  writable_ = {};
  labels_.clear();
  iterations_ = 1;
  for (uint32_t i = 0; i < program_.params.size(); ++i) {
    const auto type = static_cast<size_t>(function_->type.params[i]);
    readable_[type].push_back(i);
    if (!program_.params[i].is_buffer) {
      writable_[type].push_back(i);
    }
  }
  AddLocals();
  std::vector<Node> body = Prologue();
  if (program_.has_barrier) {
    AllocateGroupMemory(body);
  }
  for (Node& node : body) {
    node = Pin(std::move(node));
  }
  FillLocals(body);
  const uint32_t parts = program_.has_barrier ? random_.Between(1, 3) : 1;
  for (uint32_t i = 0; i < parts; ++i) {
    ChooseBudget(parts);
    Statements(random_.Between(1, swarm_.tiny ? 2 : 4), body);
    if (program_.has_barrier) {
      Exchange(body);
    }
  }
  Observe(body);
  function_->body = std::move(body);
}

}  // namespace hpvm::diff
