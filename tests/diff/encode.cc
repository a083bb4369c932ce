// SPDX-License-Identifier: Apache-2.0
#include "tests/diff/encode.h"

#include <algorithm>
#include <map>
#include <string>

#include "tests/diff/bytes.h"
#include "tests/diff/imports.h"
#include "tests/diff/operators.h"

namespace hpvm::diff {
namespace {

constexpr uint8_t kTypeCodes[] = {0x7f, 0x7e, 0x7d, 0x7c, 0x7b, 0x70};
uint8_t Code(ValueType type) { return kTypeCodes[static_cast<size_t>(type)]; }

class Encoder {
 public:
  Encoder(const Program& program, Dialect dialect) : program_(program), is_v8_(dialect == Dialect::kV8) {}
  std::optional<std::vector<uint8_t>> Run();

 private:
  void ListImports();
  uint32_t TypeIndex(const Signature& type);
  uint32_t FunctionIndex(uint32_t function) const { return static_cast<uint32_t>(imports_.size()) + function; }
  uint32_t ImportIndex(ImportId id) const { return import_index_[static_cast<size_t>(id)]; }

  void EmitConst(ValueType type, const std::array<uint64_t, 2>& bits, Bytes& out) const;
  Bytes EncodeFunction(const Function& function);
  void EmitAll(const std::vector<Node>& nodes);
  void Emit(const Node& node);
  void EmitControl(const Node& node);
  void EmitBlock(const Node& node);
  void EmitOperator(const Node& node);
  void EmitAddress(const Node& node);
  void EmitCanonical(const Node& node);
  void EmitMemory(const Node& node);
  void EmitTable(const Node& node);
  void Branch(uint32_t label);
  uint32_t Scratch(ValueType type);

  Bytes ImportSection();
  Bytes ElementSection() const;
  uint32_t PassiveElements() const;
  Bytes DataSection() const;

  const Program& program_;
  const bool is_v8_;
  std::vector<ImportId> imports_;
  std::array<uint32_t, kImports> import_index_{};
  std::map<Signature, uint32_t> types_;
  std::vector<Signature> type_list_;
  // The current function.
  const Function* function_ = nullptr;
  Bytes code_;
  std::vector<uint32_t> labels_;
  std::vector<ValueType> scratch_;  // Locals after the function's own.
  bool failed_ = false;
};

void Encoder::ListImports() {
  std::array<bool, kImports> used{};
  const auto note = [&](const Node& node) {
    if (node.kind == NodeKind::kImport) {
      used[node.index] = true;
    } else if (is_v8_ && node.kind == NodeKind::kMemorySize) {
      used[static_cast<size_t>(ImportId::kMemorySize)] = true;
    } else if (is_v8_ && node.kind == NodeKind::kMemoryGrow) {
      used[static_cast<size_t>(ImportId::kMemoryGrow)] = true;
    }
  };
  for (const Function& function : program_.functions) {
    ForEachNode(function.body, note);
  }
  for (uint32_t i = 0; i < kImports; ++i) {
    if (used[i]) {
      import_index_[i] = static_cast<uint32_t>(imports_.size());
      imports_.push_back(static_cast<ImportId>(i));
    }
  }
}

uint32_t Encoder::TypeIndex(const Signature& type) {
  const auto [at, is_new] = types_.emplace(type, static_cast<uint32_t>(type_list_.size()));
  if (is_new) {
    type_list_.push_back(type);
  }
  return at->second;
}

void Encoder::EmitConst(ValueType type, const std::array<uint64_t, 2>& bits, Bytes& out) const {
  switch (type) {
    case ValueType::kI32:
      out.Byte(0x41);
      out.Signed(static_cast<int32_t>(bits[0]));
      break;
    case ValueType::kI64:
      out.Byte(0x42);
      out.Signed(static_cast<int64_t>(bits[0]));
      break;
    case ValueType::kF32:
      out.Byte(0x43);
      out.Fixed(bits[0], 4);
      break;
    case ValueType::kF64:
      out.Byte(0x44);
      out.Fixed(bits[0], 8);
      break;
    case ValueType::kV128:
      out.Byte(0xfd);
      out.Unsigned(12);
      out.Fixed(bits[0], 8);
      out.Fixed(bits[1], 8);
      break;
    case ValueType::kFuncRef:
      out.Byte(bits[0] == 0 ? 0xd0 : 0xd2);
      out.Unsigned(bits[0] == 0 ? 0x70 : FunctionIndex(static_cast<uint32_t>(bits[0])));
      break;
  }
}

uint32_t Encoder::Scratch(ValueType type) {
  const size_t before = function_->type.params.size() + function_->locals.size();
  const auto at = std::find(scratch_.begin(), scratch_.end(), type);
  const size_t index = static_cast<size_t>(at - scratch_.begin());
  if (at == scratch_.end()) {
    scratch_.push_back(type);
  }
  return static_cast<uint32_t>(before + index);
}

void Encoder::Branch(uint32_t label) {
  const auto at = std::find(labels_.rbegin(), labels_.rend(), label);
  failed_ |= at == labels_.rend();
  code_.Unsigned(static_cast<uint64_t>(at - labels_.rbegin()));
}

void Encoder::EmitAll(const std::vector<Node>& nodes) {
  for (const Node& node : nodes) {
    Emit(node);
  }
}

void Encoder::EmitBlock(const Node& node) {
  code_.Byte(node.kind == NodeKind::kBlock ? 0x02 : node.kind == NodeKind::kLoop ? 0x03 : 0x04);
  if (node.params.empty() && node.results.size() <= 1) {
    code_.Byte(node.results.empty() ? 0x40 : Code(node.results[0]));
  } else {
    code_.Signed(TypeIndex({node.params, node.results}));
  }
  labels_.push_back(node.label);
  EmitAll(node.body);
  if (node.kind == NodeKind::kIf && !node.otherwise.empty()) {
    code_.Byte(0x05);
    EmitAll(node.otherwise);
  }
  labels_.pop_back();
  code_.Byte(0x0b);
}

void Encoder::EmitOperator(const Node& node) {
  const Operator& row = Operators()[node.index];
  if (row.prefix == 0) {
    code_.Byte(row.code);
  } else {
    code_.Byte(row.prefix);
    code_.Unsigned(row.code);
  }
  if (row.immediate == Immediate::kMemory || row.immediate == Immediate::kMemoryLane) {
    code_.Unsigned(node.align);
    code_.Unsigned(node.bits[0]);
  }
  if (row.immediate == Immediate::kLane) {
    code_.Byte(static_cast<uint32_t>(node.bits[0]) % row.lanes);
  } else if (row.immediate == Immediate::kMemoryLane) {
    code_.Byte(static_cast<uint32_t>(node.bits[1]) % row.lanes);
  } else if (row.immediate == Immediate::kShuffle) {
    for (uint32_t i = 0; i < 16; ++i) {
      code_.Byte((node.bits[i / 8] >> (8 * (i % 8))) & 31);
    }
  }
}

void Encoder::EmitAddress(const Node& node) {
  const bool is_64 = program_.is_memory64;
  const Node& base = node.operands[0];
  const bool is_absolute = base.kind == NodeKind::kConst && base.bits[0] == 0;
  if (!is_absolute) {
    Emit(base);
  }
  Emit(node.operands[1]);
  EmitConst(program_.address_type(), node.bits, code_);
  code_.Byte(is_64 ? 0x83 : 0x71);  // and
  if (!is_absolute) {
    code_.Byte(is_64 ? 0x7c : 0x6a);  // add
  }
}

// nan, x, x != x, select: changes only NaNs. For vectors the same per lane.
void Encoder::EmitCanonical(const Node& node) {
  const bool is_f32 = (node.type == ValueType::kV128 ? node.lane : node.type) == ValueType::kF32;
  std::array<uint64_t, 2> nan{is_f32 ? 0x7fc00000u : 0x7ff8000000000000u, 0};
  if (node.type == ValueType::kV128) {
    nan[0] = nan[1] = is_f32 ? 0x7fc000007fc00000 : nan[0];
  }
  const uint32_t local = Scratch(node.type);
  EmitConst(node.type, nan, code_);
  Emit(node.operands[0]);
  code_.Byte(0x22);  // local.tee
  code_.Unsigned(local);
  for (int i = 0; i < 2; ++i) {
    code_.Byte(0x20);
    code_.Unsigned(local);
  }
  if (node.type == ValueType::kV128) {
    code_.Byte(0xfd);
    code_.Unsigned(is_f32 ? 66 : 72);  // ne
    code_.Byte(0xfd);
    code_.Unsigned(82);  // bitselect
  } else {
    code_.Byte(is_f32 ? 0x5c : 0x62);
    code_.Byte(0x1b);
  }
}

void Encoder::EmitMemory(const Node& node) {
  switch (node.kind) {
    case NodeKind::kMemorySize:
    case NodeKind::kMemoryGrow:
      if (is_v8_) {
        code_.Byte(0x10);
        code_.Unsigned(ImportIndex(node.kind == NodeKind::kMemorySize ? ImportId::kMemorySize : ImportId::kMemoryGrow));
      } else {
        code_.Byte(node.kind == NodeKind::kMemorySize ? 0x3f : 0x40);
        code_.Byte(0);
      }
      break;
    case NodeKind::kMemoryCopy:
      code_.Byte(0xfc);
      code_.Unsigned(10);
      code_.Fixed(0, 2);
      break;
    case NodeKind::kMemoryInit:
    case NodeKind::kDataDrop:
      code_.Byte(0xfc);
      code_.Unsigned(node.kind == NodeKind::kMemoryInit ? 8 : 9);
      // Passive segments follow the active ones.
      code_.Unsigned(program_.data.size() + node.index);
      if (node.kind == NodeKind::kMemoryInit) {
        code_.Byte(0);
      }
      break;
    default:
      code_.Byte(0xfc);
      code_.Unsigned(11);
      code_.Byte(0);
      break;
  }
}

void Encoder::EmitTable(const Node& node) {
  const uint32_t table = program_.table.empty() ? 0 : 1;
  const auto op = static_cast<TableOp>(node.index);
  if (op == TableOp::kGet || op == TableOp::kSet) {
    code_.Byte(op == TableOp::kGet ? 0x25 : 0x26);
    return code_.Unsigned(table);
  }
  constexpr uint8_t kCodes[] = {0, 0, 16, 15, 17, 14, 12, 13};
  code_.Byte(0xfc);
  code_.Unsigned(kCodes[node.index]);
  if (op == TableOp::kInit || op == TableOp::kElemDrop) {
    code_.Unsigned(PassiveElements());
  }
  if (op != TableOp::kElemDrop) {
    code_.Unsigned(table);
  }
  if (op == TableOp::kCopy) {
    code_.Unsigned(table);
  }
}

void Encoder::EmitControl(const Node& node) {
  if ((node.kind == NodeKind::kCall || node.kind == NodeKind::kCallIndirect) &&
      node.index >= program_.functions.size()) {
    failed_ = true;
    return;
  }
  switch (node.kind) {
    case NodeKind::kBr:
    case NodeKind::kBrIf:
      code_.Byte(node.kind == NodeKind::kBr ? 0x0c : 0x0d);
      Branch(node.label);
      break;
    case NodeKind::kBrTable:
      code_.Byte(0x0e);
      code_.Unsigned(node.labels.size() - 1);
      for (uint32_t label : node.labels) {
        Branch(label);
      }
      break;
    case NodeKind::kReturn:
      code_.Byte(0x0f);
      break;
    case NodeKind::kUnreachable:
      code_.Byte(0x00);
      break;
    case NodeKind::kCall:
      code_.Byte(0x10);
      code_.Unsigned(FunctionIndex(node.index));
      break;
    case NodeKind::kCallIndirect:
      code_.Byte(0x11);
      code_.Unsigned(TypeIndex(program_.functions[node.index].type));
      code_.Unsigned(node.label != 0 && !program_.table.empty() ? 1 : 0);
      break;
    case NodeKind::kImport:
      code_.Byte(0x10);
      code_.Unsigned(ImportIndex(static_cast<ImportId>(node.index)));
      break;
    default:
      EmitBlock(node);
      break;
  }
}

void Encoder::Emit(const Node& node) {
  if (node.kind == NodeKind::kAddress) {
    return EmitAddress(node);
  }
  if (node.kind == NodeKind::kCanonical) {
    return EmitCanonical(node);
  }
  EmitAll(node.operands);
  switch (node.kind) {
    case NodeKind::kConst:
      return EmitConst(node.type, node.bits, code_);
    case NodeKind::kOperator:
      return EmitOperator(node);
    case NodeKind::kLocalGet:
    case NodeKind::kLocalSet:
    case NodeKind::kLocalTee:
    case NodeKind::kGlobalGet:
    case NodeKind::kGlobalSet:
      code_.Byte(0x20 + static_cast<uint32_t>(node.kind) - static_cast<uint32_t>(NodeKind::kLocalGet));
      return code_.Unsigned(node.index);
    case NodeKind::kSetMany:
      for (auto local = node.labels.rbegin(); local != node.labels.rend(); ++local) {
        code_.Byte(0x21);
        code_.Unsigned(*local);
      }
      return;
    case NodeKind::kDrop:
      return code_.Byte(0x1a);
    case NodeKind::kSelect:
      if (node.type == ValueType::kFuncRef) {
        return code_.Fixed(0x70011c, 3);
      }
      return code_.Byte(0x1b);
    case NodeKind::kRefIsNull:
      return code_.Byte(0xd1);
    case NodeKind::kTable:
      return EmitTable(node);
    case NodeKind::kNop:
      return code_.Byte(0x01);
    case NodeKind::kPop:
      return;
    case NodeKind::kMemorySize:
    case NodeKind::kMemoryGrow:
    case NodeKind::kMemoryCopy:
    case NodeKind::kMemoryFill:
    case NodeKind::kMemoryInit:
    case NodeKind::kDataDrop:
      return EmitMemory(node);
    default:
      return EmitControl(node);
  }
}

Bytes Encoder::EncodeFunction(const Function& function) {
  function_ = &function;
  code_ = Bytes();
  scratch_.clear();
  EmitAll(function.body);
  code_.Byte(0x0b);
  std::vector<ValueType> locals = function.locals;
  locals.insert(locals.end(), scratch_.begin(), scratch_.end());
  Bytes body;
  body.Unsigned(locals.size());
  for (ValueType type : locals) {
    body.Unsigned(1);
    body.Byte(Code(type));
  }
  body.Append(code_);
  return body;
}

Bytes Encoder::ImportSection() {
  Bytes out;
  out.Unsigned(imports_.size() + (is_v8_ ? 1 : 0));
  for (ImportId id : imports_) {
    ImportFacts facts = FactsOf(id);
    if (facts.address_param) {
      facts.type.params[0] = program_.address_type();
    }
    if (facts.address_result) {
      facts.type.results[0] = program_.address_type();
    }
    out.Text("hpvm");
    // V8 imports by name alone, so the two types of one function need two names.
    const bool is_wide = id == ImportId::kInstanceId64 || id == ImportId::kInstanceCount64;
    out.Text(is_v8_ && is_wide ? std::string(facts.name) + "64" : std::string(facts.name));
    out.Byte(0);
    out.Unsigned(TypeIndex(facts.type));
  }
  if (is_v8_) {
    out.Text("hpvm");
    out.Text("memory");
    out.Byte(2);
    out.Byte(program_.is_memory64 ? 5 : 1);
    out.Unsigned(0);
    out.Unsigned(kV8Pages);
  }
  return out;
}

// One active segment per entry, because entries may be null; then the second table's, and the passive one.
Bytes Encoder::ElementSection() const {
  Bytes out;
  const bool has_references = !program_.references.empty();
  out.Unsigned(PassiveElements() + (has_references ? 1 : 0));
  for (uint32_t entry = 0; entry < program_.table.size(); ++entry) {
    if (program_.table[entry] >= 0) {
      out.Byte(0);
      EmitConst(ValueType::kI32, {entry, 0}, out);
      out.Byte(0x0b);
      out.Unsigned(1);
      out.Unsigned(FunctionIndex(static_cast<uint32_t>(program_.table[entry])));
    }
  }
  const auto list = [&](const std::vector<int32_t>& functions) {
    out.Byte(0);
    out.Unsigned(functions.size());
    for (int32_t function : functions) {
      out.Unsigned(FunctionIndex(static_cast<uint32_t>(function)));
    }
  };
  if (has_references) {
    out.Byte(2);
    out.Unsigned(program_.table.empty() ? 0 : 1);
    EmitConst(ValueType::kI32, {}, out);
    out.Byte(0x0b);
    list(program_.references);
    out.Byte(1);
    list(program_.passive_references);
  }
  return out;
}

// Returns the index of the passive element segment.
uint32_t Encoder::PassiveElements() const {
  const auto filled = std::count_if(program_.table.begin(), program_.table.end(), [](int32_t f) { return f >= 0; });
  return static_cast<uint32_t>(filled) + (program_.references.empty() ? 0 : 1);
}

Bytes Encoder::DataSection() const {
  Bytes out;
  out.Unsigned(program_.data.size() + program_.passive_data.size());
  for (const Segment& segment : program_.data) {
    out.Byte(0);
    EmitConst(program_.address_type(), {segment.address, 0}, out);
    out.Byte(0x0b);
    out.Text({reinterpret_cast<const char*>(segment.bytes.data()), segment.bytes.size()});
  }
  for (const std::vector<uint8_t>& bytes : program_.passive_data) {
    out.Byte(1);
    out.Text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return out;
}

std::optional<std::vector<uint8_t>> Encoder::Run() {
  ListImports();
  const Bytes imports = ImportSection();
  for (const std::vector<int32_t>* list : {&program_.table, &program_.references, &program_.passive_references}) {
    for (int32_t entry : *list) {
      failed_ |= entry >= static_cast<int32_t>(program_.functions.size());
    }
  }
  Bytes functions, table, memory, globals, exports, code;
  functions.Unsigned(program_.functions.size());
  code.Unsigned(program_.functions.size());
  for (const Function& function : program_.functions) {
    functions.Unsigned(TypeIndex(function.type));
    code.Sized(EncodeFunction(function));
  }
  table.Unsigned((program_.table.empty() ? 0u : 1u) + (program_.references.empty() ? 0u : 1u));
  for (const std::vector<int32_t>* list : {&program_.table, &program_.references}) {
    if (!list->empty()) {
      table.Byte(0x70);
      table.Byte(list == &program_.references ? 1 : 0);
      table.Unsigned(list->size());
      if (list == &program_.references) {
        table.Unsigned(list->size() + 2);  // Limit of table.grow.
      }
    }
  }
  memory.Unsigned(1);
  memory.Byte((program_.has_pages_max ? 1 : 0) | (program_.is_memory64 ? 4 : 0));
  memory.Unsigned(program_.pages);
  if (program_.has_pages_max) {
    memory.Unsigned(program_.pages_max);
  }
  globals.Unsigned(program_.globals.size());
  for (const Global& global : program_.globals) {
    globals.Byte(Code(global.type));
    globals.Byte(global.is_mutable ? 1 : 0);
    EmitConst(global.type, global.bits, globals);
    globals.Byte(0x0b);
  }
  exports.Unsigned(1);
  exports.Text("f");
  exports.Byte(0);
  exports.Unsigned(FunctionIndex(0));
  Bytes types;
  types.Unsigned(type_list_.size());
  for (const Signature& type : type_list_) {
    types.Byte(0x60);
    for (const std::vector<ValueType>* list : {&type.params, &type.results}) {
      types.Unsigned(list->size());
      for (ValueType item : *list) {
        types.Byte(Code(item));
      }
    }
  }
  Bytes module;
  module.Fixed(0x6d736100, 4);
  module.Fixed(1, 4);
  module.Section(1, types);
  module.Section(2, imports);
  module.Section(3, functions);
  const bool has_tables = !program_.table.empty() || !program_.references.empty();
  if (has_tables) {
    module.Section(4, table);
  }
  if (!is_v8_) {
    module.Section(5, memory);
  }
  module.Section(6, globals);
  module.Section(7, exports);
  if (has_tables) {
    module.Section(9, ElementSection());
  }
  Bytes data_count;
  data_count.Unsigned(program_.data.size() + program_.passive_data.size());
  module.Section(12, data_count);
  module.Section(10, code);
  module.Section(11, DataSection());
  return failed_ ? std::nullopt : std::optional(module.Take());
}

}  // namespace

std::optional<std::vector<uint8_t>> Encode(const Program& program, Dialect dialect) {
  return Encoder(program, dialect).Run();
}

}  // namespace hpvm::diff
