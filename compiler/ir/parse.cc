// SPDX-License-Identifier: Apache-2.0
#include <unordered_map>

#include "base/limits.h"
#include "compiler/ir/spelling.h"
#include "compiler/ir/text.h"
#include "compiler/ir/token_reader.h"
#include "compiler/ir/verify.h"

namespace hpvm::ir {
namespace {

// Reads one function from its parameters on. Not recursive: a text may nest regions as deeply as kRegionDepthMax.
class FunctionParser {
 public:
  FunctionParser(TokenReader& reader, Function& function) : r_(reader), f_(function) {}

  Status Parse();

 private:
  struct Definition {
    std::string_view name;
    Type type;
    uint32_t line;
  };

  Status DefinitionOf(Definition* definition);
  Status Bind(const Definition& definition);
  Status Use(std::vector<ValueId>* operands);
  Status UsesInParentheses(std::vector<ValueId>* operands);
  Status Params();
  Status Operation();
  Status Mnemonic(Op* op);
  Status Plain(Op op);
  Status SpaceAndWidth(Op* op);
  Status BlockOrLoop(Op op);
  Status If(Op op);
  Status Terminator(Op op);
  Status ReadTarget();
  Status Label(OpId* op);
  Status Source(Op* op);
  Status BindLabel(OpId op);
  Status CloseRegion();
  Status OpenRegion(OpId owner, RegionId region);
  OpId Add(Op op, const std::vector<ValueId>& operands);
  RegionId NewRegion(OpId owner);

  TokenReader& r_;
  Function& f_;
  std::unordered_map<std::string_view, ValueId> values_;
  std::unordered_map<std::string_view, OpId> blocks_;
  std::vector<RegionId> open_;
  std::vector<Definition> results_;  // Of the operation being read.
};

Status FunctionParser::DefinitionOf(Definition* definition) {
  if (r_.token().kind != TokenKind::kValue) {
    return r_.Expected("a value such as \"%3\"");
  }
  definition->name = r_.token().text;
  definition->line = r_.token().line;
  r_.Advance();
  HPVMD_RETURN_IF_ERROR(r_.Expect(":"));
  return r_.ReadType(&definition->type);
}

Status FunctionParser::Bind(const Definition& definition) {
  if (!values_.emplace(definition.name, ValueId(f_.values.size())).second) {
    return r_.ErrorAt(definition.line, "The value \"%" + std::string(definition.name) + "\" is defined twice.");
  }
  f_.values.push_back(Value{definition.type});
  return absl::OkStatus();
}

Status FunctionParser::Use(std::vector<ValueId>* operands) {
  if (r_.token().kind != TokenKind::kValue) {
    return r_.Expected("a value such as \"%3\"");
  }
  const auto found = values_.find(r_.token().text);
  if (found == values_.end()) {
    return r_.Error("The value \"%" + std::string(r_.token().text) + "\" is used before it is defined.");
  }
  operands->push_back(found->second);
  r_.Advance();
  return absl::OkStatus();
}

Status FunctionParser::UsesInParentheses(std::vector<ValueId>* operands) {
  HPVMD_RETURN_IF_ERROR(r_.Expect("("));
  for (bool first = true; !r_.TakePunctuation(")"); first = false) {
    if (!first) {
      HPVMD_RETURN_IF_ERROR(r_.Expect(","));
    }
    HPVMD_RETURN_IF_ERROR(Use(operands));
  }
  return absl::OkStatus();
}

Status FunctionParser::Params() {
  HPVMD_RETURN_IF_ERROR(r_.Expect("("));
  f_.body = NewRegion(OpId());
  while (!r_.TakePunctuation(")")) {
    if (!f_.type.params.empty()) {
      HPVMD_RETURN_IF_ERROR(r_.Expect(","));
    }
    Definition param;
    HPVMD_RETURN_IF_ERROR(DefinitionOf(&param));
    HPVMD_RETURN_IF_ERROR(Bind(param));
    f_.type.params.push_back(param.type);
  }
  f_.region(f_.body).param_count = static_cast<uint32_t>(f_.type.params.size());
  HPVMD_RETURN_IF_ERROR(r_.Expect("->"));
  return r_.Types(&f_.type.results);
}

Status FunctionParser::Parse() {
  HPVMD_RETURN_IF_ERROR(Params());
  HPVMD_RETURN_IF_ERROR(OpenRegion(OpId(), f_.body));
  while (!open_.empty()) {
    if (r_.TakePunctuation("}")) {
      HPVMD_RETURN_IF_ERROR(CloseRegion());
    } else {
      HPVMD_RETURN_IF_ERROR(Operation());
    }
  }
  return absl::OkStatus();
}

Status FunctionParser::OpenRegion(OpId owner, RegionId region) {
  if (open_.size() >= kRegionDepthMax) {
    return r_.Error("Regions nest deeper than the limit (" + std::to_string(kRegionDepthMax) + ").");
  }
  open_.push_back(region);
  return r_.Expect("{");
}

Status FunctionParser::CloseRegion() {
  const RegionId closed = open_.back();
  open_.pop_back();
  const OpId owner = f_.region(closed).owner;
  if (!owner.valid() || f_.op(owner).code != Opcode::kIf || f_.op(owner).body != closed) {
    return absl::OkStatus();
  }
  if (!r_.TakeWord("else")) {
    return r_.Expected("\"else\"");
  }
  return OpenRegion(owner, f_.op(owner).otherwise);
}

RegionId FunctionParser::NewRegion(OpId owner) {
  Region region;
  region.owner = owner;
  region.first_param = ValueId(f_.values.size());
  f_.regions.push_back(std::move(region));
  return RegionId(f_.regions.size() - 1);
}

OpId FunctionParser::Add(Op op, const std::vector<ValueId>& operands) {
  op.first_operand = static_cast<uint32_t>(f_.operands.size());
  op.operand_count = static_cast<uint32_t>(operands.size());
  f_.operands.insert(f_.operands.end(), operands.begin(), operands.end());
  const OpId id(f_.ops.size());
  f_.ops.push_back(op);
  f_.region(open_.back()).ops.push_back(id);
  return id;
}

Status FunctionParser::Operation() {
  results_.clear();
  while (r_.token().kind == TokenKind::kValue) {
    Definition result;
    HPVMD_RETURN_IF_ERROR(DefinitionOf(&result));
    results_.push_back(result);
    if (!r_.TakePunctuation(",")) {
      HPVMD_RETURN_IF_ERROR(r_.Expect("="));
      break;
    }
    if (r_.token().kind != TokenKind::kValue) {
      return r_.Expected("a value such as \"%3\"");
    }
  }
  Op op{};
  const uint32_t line = r_.token().line;
  HPVMD_RETURN_IF_ERROR(Mnemonic(&op));
  if (IsTerminator(op.code)) {
    return results_.empty() ? Terminator(op) : r_.ErrorAt(line, "A terminator has no results.");
  }
  // The results are bound after the operands are read, so that an operation cannot use its own results.
  op.result_count = static_cast<uint32_t>(results_.size());
  if (op.code == Opcode::kIf) {
    return If(op);
  }
  return OwnsRegions(op.code) ? BlockOrLoop(op) : Plain(op);
}

Status FunctionParser::Mnemonic(Op* op) {
  const Token token = r_.token();
  const size_t dot = token.text.find('.');
  if (token.kind != TokenKind::kWord || !OpcodeFromText(token.text.substr(0, dot), &op->code)) {
    return r_.Expected("the name of an operation");
  }
  const std::string_view suffix = dot == std::string_view::npos ? "" : token.text.substr(dot + 1);
  bool found = !HasType(op->code) && dot == std::string_view::npos;
  for (const Type type : {Type::kI32, Type::kI64, Type::kF32, Type::kF64}) {
    if (HasType(op->code) && suffix == Name(type)) {
      op->type = type;
      found = true;
    }
  }
  if (!found) {
    return r_.Expected(HasType(op->code) ? "an operation with a type, such as \"add.i32\""
                                         : "an operation without a type");
  }
  r_.Advance();
  return absl::OkStatus();
}

Status FunctionParser::SpaceAndWidth(Op* op) {
  op->width = static_cast<uint8_t>(Bytes(op->type));
  for (const uint8_t width : {1, 2, 4}) {
    if (r_.TakeWord("w" + std::to_string(width))) {
      op->width = width;
      break;
    }
  }
  op->sign = r_.TakeWord("signed");
  for (const Space space : {Space::kFlat, Space::kParam, Space::kModule, Space::kPrivate, Space::kGroup,
                            Space::kState}) {
    if (!r_.TakeWord(Name(space))) {
      continue;
    }
    op->space = space;
    if (space == Space::kParam || space == Space::kPrivate) {
      HPVMD_RETURN_IF_ERROR(r_.Expect("("));
      HPVMD_RETURN_IF_ERROR(r_.Number32(&op->space_index));
      return r_.Expect(")");
    }
    return absl::OkStatus();
  }
  return r_.Expected("a space (flat, param(k), module, private(k) or group)");
}

Status FunctionParser::Source(Op* op) {
  return r_.TakePunctuation("@") ? r_.Number32(&op->source) : absl::OkStatus();
}

Status FunctionParser::Plain(Op op) {
  if (op.code == Opcode::kConst) {
    HPVMD_RETURN_IF_ERROR(r_.ConstantBits(op.type, &op.imm));
  }
  if (const char prefix = IndexPrefix(op.code); prefix != 0) {
    uint32_t index = 0;
    HPVMD_RETURN_IF_ERROR(r_.Indexed(prefix, &index));
    op.imm = index;
  }
  if (HasSpace(op.code)) {
    HPVMD_RETURN_IF_ERROR(SpaceAndWidth(&op));
  }
  std::vector<ValueId> operands;
  if (Info(op.code).family == Family::kCall) {
    HPVMD_RETURN_IF_ERROR(UsesInParentheses(&operands));
  } else if (!TakesNoOperands(op.code)) {
    do {
      HPVMD_RETURN_IF_ERROR(Use(&operands));
      if (HasSpace(op.code) && operands.size() == 1 && r_.TakePunctuation("+")) {
        HPVMD_RETURN_IF_ERROR(r_.Number(&op.imm));
      }
    } while (r_.TakePunctuation(","));
  }
  HPVMD_RETURN_IF_ERROR(Source(&op));
  op.first_result = ValueId(f_.values.size());
  for (const Definition& result : results_) {
    HPVMD_RETURN_IF_ERROR(Bind(result));
  }
  Add(op, operands);
  return absl::OkStatus();
}

Status FunctionParser::BindLabel(OpId op) {
  if (r_.token().kind != TokenKind::kWord) {
    return r_.Expected("a block's name such as \"b0\"");
  }
  if (!blocks_.emplace(r_.token().text, op).second) {
    return r_.Error("The block \"" + std::string(r_.token().text) + "\" is defined twice.");
  }
  r_.Advance();
  return absl::OkStatus();
}

Status FunctionParser::BlockOrLoop(Op op) {
  HPVMD_RETURN_IF_ERROR(BindLabel(OpId(f_.ops.size())));
  HPVMD_RETURN_IF_ERROR(r_.Expect("("));
  std::vector<ValueId> operands;
  std::vector<Definition> params;
  while (!r_.TakePunctuation(")")) {
    if (!params.empty()) {
      HPVMD_RETURN_IF_ERROR(r_.Expect(","));
    }
    HPVMD_RETURN_IF_ERROR(DefinitionOf(&params.emplace_back()));
    HPVMD_RETURN_IF_ERROR(r_.Expect("="));
    HPVMD_RETURN_IF_ERROR(Use(&operands));
  }
  HPVMD_RETURN_IF_ERROR(Source(&op));
  op.first_result = ValueId(f_.values.size());
  for (const Definition& result : results_) {
    HPVMD_RETURN_IF_ERROR(Bind(result));
  }
  const OpId id = Add(op, operands);
  const RegionId body = NewRegion(id);
  f_.op(id).body = body;
  for (const Definition& param : params) {
    HPVMD_RETURN_IF_ERROR(Bind(param));
  }
  f_.region(body).param_count = static_cast<uint32_t>(params.size());
  return OpenRegion(id, body);
}

Status FunctionParser::If(Op op) {
  HPVMD_RETURN_IF_ERROR(BindLabel(OpId(f_.ops.size())));
  std::vector<ValueId> operands;
  HPVMD_RETURN_IF_ERROR(Use(&operands));
  HPVMD_RETURN_IF_ERROR(Source(&op));
  op.first_result = ValueId(f_.values.size());
  for (const Definition& result : results_) {
    HPVMD_RETURN_IF_ERROR(Bind(result));
  }
  const OpId id = Add(op, operands);
  const RegionId body = NewRegion(id);
  const RegionId otherwise = NewRegion(id);
  f_.op(id).body = body;
  f_.op(id).otherwise = otherwise;
  return OpenRegion(id, body);
}

Status FunctionParser::Label(OpId* op) {
  const auto found = r_.token().kind == TokenKind::kWord ? blocks_.find(r_.token().text) : blocks_.end();
  if (found == blocks_.end()) {
    return r_.Expected("the name of an enclosing block, loop or if");
  }
  *op = found->second;
  r_.Advance();
  return absl::OkStatus();
}

Status FunctionParser::ReadTarget() {
  Target target;
  target.is_continue = r_.TakeWord("continue");
  HPVMD_RETURN_IF_ERROR(Label(&target.op));
  f_.targets.push_back(target);
  return absl::OkStatus();
}

Status FunctionParser::Terminator(Op op) {
  op.first_target = static_cast<uint32_t>(f_.targets.size());
  op.first_result = ValueId(f_.values.size());
  std::vector<ValueId> operands;
  if (op.code == Opcode::kTrap) {
    HPVMD_RETURN_IF_ERROR(r_.Number(&op.imm));
  } else if (op.code == Opcode::kLeaveTable) {
    HPVMD_RETURN_IF_ERROR(Use(&operands));
    HPVMD_RETURN_IF_ERROR(r_.Expect("["));
    do {
      HPVMD_RETURN_IF_ERROR(ReadTarget());
    } while (r_.TakePunctuation(","));
    HPVMD_RETURN_IF_ERROR(r_.Expect("]"));
  } else if (op.code != Opcode::kReturn) {
    Target target;
    target.is_continue = op.code == Opcode::kContinue;
    HPVMD_RETURN_IF_ERROR(Label(&target.op));
    f_.targets.push_back(target);
  }
  op.target_count = static_cast<uint32_t>(f_.targets.size()) - op.first_target;
  if (op.code != Opcode::kTrap) {
    HPVMD_RETURN_IF_ERROR(UsesInParentheses(&operands));
  }
  HPVMD_RETURN_IF_ERROR(Source(&op));
  Add(op, operands);
  return absl::OkStatus();
}

class ModuleParser {
 public:
  explicit ModuleParser(std::string_view text) : r_(text) {}

  StatusOr<Module> Parse();

 private:
  Status Header();
  Status Uses();
  Status ReadGlobal();
  Status ReadIndirectType();
  Status ReadTable();
  Status ReadParam();
  Status ReadFunction();

  TokenReader r_;
  Module m_;
};

Status ModuleParser::Header() {
  if (!r_.TakeWord("module")) {
    return r_.Expected("\"module\"");
  }
  HPVMD_RETURN_IF_ERROR(r_.String(&m_.name));
  m_.is_memory64 = r_.TakeWord("memory64");
  if (r_.TakeWord("memory")) {
    HPVMD_RETURN_IF_ERROR(r_.Number(&m_.memory_bytes));
    HPVMD_RETURN_IF_ERROR(r_.Number(&m_.memory_bytes_max));
  }
  return absl::OkStatus();
}

Status ModuleParser::Uses() {
  while (r_.TakeWord("uses")) {
    if (r_.TakeWord("barrier")) {
      m_.uses_barrier = true;
    } else if (r_.TakeWord("group_memory")) {
      m_.uses_group_memory = true;
    } else {
      return r_.Expected("\"barrier\" or \"group_memory\"");
    }
  }
  return absl::OkStatus();
}

Status ModuleParser::ReadGlobal() {
  Global global{};
  global.is_mutable = r_.TakeWord("mut");
  HPVMD_RETURN_IF_ERROR(r_.ReadType(&global.type));
  HPVMD_RETURN_IF_ERROR(r_.ConstantBits(global.type, &global.init));
  m_.globals.push_back(global);
  return absl::OkStatus();
}

Status ModuleParser::ReadIndirectType() {
  FunctionType type;
  HPVMD_RETURN_IF_ERROR(r_.Types(&type.params));
  HPVMD_RETURN_IF_ERROR(r_.Expect("->"));
  HPVMD_RETURN_IF_ERROR(r_.Types(&type.results));
  m_.indirect_types.push_back(std::move(type));
  return absl::OkStatus();
}

Status ModuleParser::ReadTable() {
  while (!r_.IsWord("param") && !r_.IsWord("entry")) {
    TableEntry entry;
    if (!r_.TakeWord("null")) {
      HPVMD_RETURN_IF_ERROR(r_.Indexed('f', &entry.function.index));
    }
    m_.table.push_back(entry);
  }
  return absl::OkStatus();
}

Status ModuleParser::ReadParam() {
  if (m_.params.size() >= limits::kKernelParamsMax) {
    return r_.Error("The kernel has more parameters than the limit (" + std::to_string(limits::kKernelParamsMax) +
                    ").");
  }
  KernelParam param;
  param.is_buffer = r_.TakeWord("buffer");
  if (!param.is_buffer) {
    HPVMD_RETURN_IF_ERROR(r_.ReadType(&param.type));
  } else {
    param.type = m_.address_type();
    param.is_writable = r_.TakeWord("inout");
    if (!param.is_writable && !r_.TakeWord("in")) {
      return r_.Expected("\"in\" or \"inout\"");
    }
  }
  HPVMD_RETURN_IF_ERROR(r_.String(&param.name));
  m_.params.push_back(std::move(param));
  return absl::OkStatus();
}

Status ModuleParser::ReadFunction() {
  uint32_t index = 0;
  const uint32_t line = r_.token().line;
  HPVMD_RETURN_IF_ERROR(r_.Indexed('f', &index));
  if (index != m_.functions.size()) {
    return r_.ErrorAt(line, "Function f" + std::to_string(index) + " stands where f" +
                                std::to_string(m_.functions.size()) + " is due.");
  }
  Function& function = m_.functions.emplace_back();
  HPVMD_RETURN_IF_ERROR(r_.String(&function.name));
  return FunctionParser(r_, function).Parse();
}

StatusOr<Module> ModuleParser::Parse() {
  HPVMD_RETURN_IF_ERROR(Header());
  HPVMD_RETURN_IF_ERROR(Uses());
  while (r_.TakeWord("data")) {
    DataSegment& segment = m_.data.emplace_back();
    HPVMD_RETURN_IF_ERROR(r_.Number(&segment.address));
    HPVMD_RETURN_IF_ERROR(r_.HexBytes(&segment.bytes));
  }
  while (r_.TakeWord("global")) {
    HPVMD_RETURN_IF_ERROR(ReadGlobal());
  }
  while (r_.TakeWord("type")) {
    HPVMD_RETURN_IF_ERROR(ReadIndirectType());
  }
  if (r_.TakeWord("table")) {
    HPVMD_RETURN_IF_ERROR(ReadTable());
  }
  while (r_.TakeWord("param")) {
    HPVMD_RETURN_IF_ERROR(ReadParam());
  }
  if (!r_.TakeWord("entry")) {
    return r_.Expected("\"entry\"");
  }
  HPVMD_RETURN_IF_ERROR(r_.Indexed('f', &m_.entry.index));
  while (r_.TakeWord("func")) {
    HPVMD_RETURN_IF_ERROR(ReadFunction());
  }
  if (r_.token().kind != TokenKind::kEnd) {
    return r_.Expected("\"func\" or the end of the text");
  }
  return std::move(m_);
}

}  // namespace

StatusOr<Module> ParseModule(std::string_view text) {
  if (text.size() > limits::kArtifactBytesMax) {
    return InvalidArgument("The text has more bytes (" + std::to_string(text.size()) + ") than the limit (" +
                           std::to_string(limits::kArtifactBytesMax) + ").");
  }
  return ModuleParser(text).Parse();
}

}  // namespace hpvm::ir
