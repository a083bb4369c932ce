// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/text/parse_function.h"

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/ir/op_syntax.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::ir {
namespace {

// Reads one function from its parameters on. Not recursive, because a text may nest regions up to kRegionDepthMax.
class FunctionParser {
 public:
  FunctionParser(TokenReader& reader, Function& function) : r_(reader), f_(function) {}

  Status Parse() {
    HPVMD_RETURN_IF_ERROR(Params());
    HPVMD_RETURN_IF_ERROR(OpenRegion(f_.body));
    while (!open_.empty()) {
      if (r_.TakePunctuation("}")) {
        HPVMD_RETURN_IF_ERROR(CloseRegion());
      } else {
        HPVMD_RETURN_IF_ERROR(Operation());
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Definition {
    std::string_view name;
    Type type;
    uint32_t line;
  };

  Status DefinitionOf(Definition* definition) {
    if (r_.token().kind != TokenKind::kValue) {
      return r_.Expected("a value such as \"%3\"");
    }
    definition->name = r_.token().text;
    definition->line = r_.token().line;
    r_.Advance();
    HPVMD_RETURN_IF_ERROR(r_.Expect(":"));
    return r_.ReadType(&definition->type);
  }
  Status Bind(const Definition& definition) {
    if (!values_.emplace(definition.name, ValueId(f_.values.size())).second) {
      return r_.ErrorAt(definition.line, "The value \"%" + std::string(definition.name) + "\" is defined twice.");
    }
    f_.values.push_back(Value{definition.type});
    return absl::OkStatus();
  }
  Status Use(std::vector<ValueId>* operands) {
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
  Status UsesInParentheses(std::vector<ValueId>* operands) {
    HPVMD_RETURN_IF_ERROR(r_.Expect("("));
    for (bool first = true; !r_.TakePunctuation(")"); first = false) {
      if (!first) {
        HPVMD_RETURN_IF_ERROR(r_.Expect(","));
      }
      HPVMD_RETURN_IF_ERROR(Use(operands));
    }
    return absl::OkStatus();
  }
  Status Params() {
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
  Status Operation() {
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
  Status Mnemonic(Op* op) {
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
  Status Plain(Op op) {
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
  Status SpaceAndWidth(Op* op) {
    op->width = UsualWidth(*op);
    for (const uint8_t width : {1, 2, 4}) {
      if (r_.TakeWord("w" + std::to_string(width))) {
        op->width = width;
        break;
      }
    }
    op->sign = r_.TakeWord("signed");
    op->is_inside = r_.TakeWord("inside");
    for (const Space space : {Space::kFlat, Space::kParam, Space::kModule, Space::kStack, Space::kPrivate,
                              Space::kGroup, Space::kState, Space::kScratch}) {
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
    return r_.Expected("a space (flat, param(k), module, stack, private(k), group, state or scratch)");
  }
  Status BlockOrLoop(Op op) {
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
    return OpenRegion(body);
  }
  Status If(Op op) {
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
    return OpenRegion(body);
  }
  Status Terminator(Op op) {
    op.first_target = static_cast<uint32_t>(f_.targets.size());
    op.first_result = ValueId(f_.values.size());
    std::vector<ValueId> operands;
    if (op.code == Opcode::kTrap) {
      HPVMD_RETURN_IF_ERROR(r_.Number(&op.imm));
    } else if (op.code == Opcode::kBrTable) {
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
  Status ReadTarget() {
    Target target;
    target.is_continue = r_.TakeWord("continue");
    HPVMD_RETURN_IF_ERROR(Label(&target.op));
    f_.targets.push_back(target);
    return absl::OkStatus();
  }
  Status Label(OpId* op) {
    const auto found = r_.token().kind == TokenKind::kWord ? blocks_.find(r_.token().text) : blocks_.end();
    if (found == blocks_.end()) {
      return r_.Expected("the name of an enclosing block, loop or if");
    }
    *op = found->second;
    r_.Advance();
    return absl::OkStatus();
  }
  Status Source(Op* op) {
    if (!r_.TakePunctuation("@")) {
      return absl::OkStatus();
    }
    HPVMD_RETURN_IF_ERROR(r_.Number32(&op->source));
    if (r_.TakeWord("in")) {
      HPVMD_RETURN_IF_ERROR(r_.Indexed('f', &op->origin));
      ++op->origin;
    }
    return absl::OkStatus();
  }
  Status BindLabel(OpId op) {
    if (r_.token().kind != TokenKind::kWord) {
      return r_.Expected("a block's name such as \"b0\"");
    }
    if (!blocks_.emplace(r_.token().text, op).second) {
      return r_.Error("The block \"" + std::string(r_.token().text) + "\" is defined twice.");
    }
    r_.Advance();
    return absl::OkStatus();
  }
  Status CloseRegion() {
    const RegionId closed = open_.back();
    open_.pop_back();
    const OpId owner = f_.region(closed).owner;
    if (!owner.valid() || f_.op(owner).code != Opcode::kIf || f_.op(owner).body != closed) {
      return absl::OkStatus();
    }
    if (!r_.TakeWord("else")) {
      return r_.Expected("\"else\"");
    }
    return OpenRegion(f_.op(owner).otherwise);
  }
  Status OpenRegion(RegionId region) {
    if (open_.size() >= kRegionDepthMax) {
      return r_.Error("Regions nest deeper than the limit (" + std::to_string(kRegionDepthMax) + ").");
    }
    open_.push_back(region);
    return r_.Expect("{");
  }
  OpId Add(Op op, const std::vector<ValueId>& operands) {
    op.first_operand = static_cast<uint32_t>(f_.operands.size());
    op.operand_count = static_cast<uint32_t>(operands.size());
    f_.operands.insert(f_.operands.end(), operands.begin(), operands.end());
    const OpId id(f_.ops.size());
    f_.ops.push_back(op);
    f_.region(open_.back()).ops.push_back(id);
    return id;
  }
  RegionId NewRegion(OpId owner) {
    Region region;
    region.owner = owner;
    region.first_param = ValueId(f_.values.size());
    f_.regions.push_back(std::move(region));
    return RegionId(f_.regions.size() - 1);
  }

  TokenReader& r_;
  Function& f_;
  std::unordered_map<std::string_view, ValueId> values_;
  std::unordered_map<std::string_view, OpId> blocks_;
  std::vector<RegionId> open_;
  std::vector<Definition> results_;  // Results of the operation being read.
};

}  // namespace

Status ParseFunction(TokenReader& reader, Function& function) { return FunctionParser(reader, function).Parse(); }

}  // namespace hpvm::ir
