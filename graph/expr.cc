// SPDX-License-Identifier: Apache-2.0
#include "graph/expr.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "graph/diagnostic_sink.h"
#include "graph/flatten.h"

namespace hpvm::graph {
namespace {

using Kind = Expr::Kind;

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool HasNameShape(std::string_view text, bool dashes) {
  if (text.empty() || text.size() > kNameBytesMax || !IsLetter(text[0])) {
    return false;
  }
  for (const char c : text) {
    if (!IsLetter(c) && !IsDigit(c) && !(dashes && c == '-')) {
      return false;
    }
  }
  return true;
}

int Precedence(Kind kind) {
  switch (kind) {
    case Kind::kAdd:
    case Kind::kSub:
      return 1;
    case Kind::kMul:
    case Kind::kDiv:
    case Kind::kMod:
      return 2;
    default:
      return 3;  // kNeg.
  }
}

// Dijkstra's shunting yard: operators wait on a stack until their operands have been emitted.
class ExprReader {
 public:
  ExprReader(std::string_view text, const SymbolFinder& find, ExprNumbers numbers)
      : text_(text), find_(find), numbers_(numbers) {}

  ExprOutcome Read() {
    if (text_.size() > kExprBytesMax) {
      return Failed(Cat("has ", text_.size(), " bytes; the limit is ", kExprBytesMax));
    }
    while (SkipSpaces(), at_ < text_.size()) {
      if (!(want_operand_ ? ReadOperand() : ReadOperator())) {
        return {std::nullopt, std::move(fault_)};
      }
    }
    if (want_operand_) {
      return Failed(text_.empty() ? "is empty" : "ends where a number, a symbol or \"(\" is expected");
    }
    if (!PopWhile([](const Waiting&) { return true; })) {
      return {std::nullopt, std::move(fault_)};
    }
    if (!waiting_.empty()) {
      return Failed("has a \"(\" that is not closed");
    }
    expr_.text = text_;
    return {std::move(expr_), ""};
  }

 private:
  struct Waiting {
    enum class What : uint8_t { kOperator, kParenthesis, kCall } what;
    Kind kind = Kind::kAdd;  // For kOperator, kCall.
    uint32_t arguments = 0;  // For kCall.
  };

  ExprOutcome Failed(std::string fault) { return {std::nullopt, std::move(fault)}; }
  bool Fail(std::string fault) {
    fault_ = std::move(fault);
    return false;
  }
  bool Unexpected(std::string_view expected) {
    return Fail(Cat("has ", Quoted(text_.substr(at_, 1)), " at character ", at_, " where ", expected, " is expected"));
  }

  void SkipSpaces() {
    while (at_ < text_.size() && text_[at_] == ' ') {
      ++at_;
    }
  }

  bool ReadOperand() {
    const char c = text_[at_];
    if (IsDigit(c) || (c == '.' && numbers_ == ExprNumbers::kReals)) {
      return numbers_ == ExprNumbers::kReals ? ReadReal() : ReadNumber();
    }
    if (IsLetter(c)) {
      return ReadWord();
    }
    if (c == '(') {
      waiting_.push_back({Waiting::What::kParenthesis});
    } else if (c == '-') {
      waiting_.push_back({Waiting::What::kOperator, Kind::kNeg});
    } else {
      return Unexpected("a number, a symbol or \"(\"");
    }
    ++at_;
    return true;
  }

  bool ReadNumber() {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) {
      return Fail(Cat("has a number outside 64 bits at character ", at_));
    }
    at_ = static_cast<size_t>(end - text_.data());
    if (at_ < text_.size() && (IsLetter(text_[at_]) || text_[at_] == '.')) {
      return Unexpected("an operator");
    }
    want_operand_ = false;
    return Emit({Kind::kConst, value});
  }

  bool ReadReal() {
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || !std::isfinite(value)) {
      return Fail(Cat("has a number at character ", at_, " that does not fit a 64-bit float"));
    }
    at_ = static_cast<size_t>(end - text_.data());
    if (at_ < text_.size() && (IsLetter(text_[at_]) || text_[at_] == '.')) {
      return Unexpected("an operator");
    }
    want_operand_ = false;
    return Emit({Kind::kReal, std::bit_cast<int64_t>(value)});
  }

  bool ReadWord() {
    const size_t start = at_;
    while (at_ < text_.size() && (IsLetter(text_[at_]) || IsDigit(text_[at_]))) {
      ++at_;
    }
    const std::string_view word = text_.substr(start, at_ - start);
    if (word == "min" || word == "max") {
      SkipSpaces();
      if (at_ >= text_.size() || text_[at_] != '(') {
        return Fail(Cat("has ", Quoted(word), " at character ", start, " without \"(\" after it"));
      }
      ++at_;
      waiting_.push_back({Waiting::What::kCall, word == "min" ? Kind::kMin : Kind::kMax, 1});
      return true;
    }
    if (!IsSymbolName(word)) {
      return Fail(Cat("has a symbol of ", word.size(), " characters; the limit is ", kNameBytesMax));
    }
    const SymbolId symbol = find_(word);
    want_operand_ = false;
    return symbol.valid() ? Emit({Kind::kSymbol, symbol.index}) : Fail("");
  }

  bool ReadOperator() {
    const char c = text_[at_];
    constexpr std::pair<char, Kind> kOperators[] = {
        {'+', Kind::kAdd}, {'-', Kind::kSub}, {'*', Kind::kMul}, {'/', Kind::kDiv}, {'%', Kind::kMod}};
    for (const auto& [sign, kind] : kOperators) {
      if (c == sign) {
        ++at_;
        want_operand_ = true;
        const int precedence = Precedence(kind);
        const bool ok = PopWhile([&](const Waiting& top) { return Precedence(top.kind) >= precedence; });
        waiting_.push_back({Waiting::What::kOperator, kind});
        return ok;
      }
    }
    if (c == ',' || c == ')') {
      return CloseArgument(c);
    }
    return Unexpected("an operator");
  }

  bool CloseArgument(char c) {
    if (!PopWhile([](const Waiting&) { return true; })) {
      return false;
    }
    if (waiting_.empty() || (c == ',' && waiting_.back().what != Waiting::What::kCall)) {
      return Fail(Cat("has a ", Quoted(text_.substr(at_, 1)), " at character ", at_, " that is out of place"));
    }
    Waiting& open = waiting_.back();
    const bool is_call = open.what == Waiting::What::kCall;
    if (is_call && open.arguments > 1 && !Emit({open.kind})) {
      return false;
    }
    ++at_;
    if (c == ',') {
      ++open.arguments;
      want_operand_ = true;
      return true;
    }
    if (is_call && open.arguments < 2) {
      return Fail(
          Cat("calls ", Quoted(open.kind == Kind::kMin ? "min" : "max"), " with one argument; two or more are needed"));
    }
    waiting_.pop_back();
    return true;
  }

  template <typename Condition>
  bool PopWhile(Condition condition) {
    while (!waiting_.empty() && waiting_.back().what == Waiting::What::kOperator && condition(waiting_.back())) {
      if (!Emit({waiting_.back().kind})) {
        return false;
      }
      waiting_.pop_back();
    }
    return true;
  }

  bool Emit(Expr::Term term) {
    if (term.kind == Kind::kConst || term.kind == Kind::kReal || term.kind == Kind::kSymbol) {
      ++depth_;
    } else if (term.kind != Kind::kNeg) {
      --depth_;
    }
    if (depth_ > kExprStackMax) {
      return Fail(Cat("needs more than ", kExprStackMax, " intermediate values"));
    }
    const bool divides = term.kind == Kind::kDiv || term.kind == Kind::kMod;
    const bool is_number = expr_.terms.size() > 0 && expr_.terms.back().kind <= Kind::kReal;
    if (divides && is_number && expr_.terms.back().value == 0) {  // 0 is also the bits of 0.0.
      return Fail("divides by zero");
    }
    expr_.terms.push_back(term);
    return true;
  }

  const std::string_view text_;
  const SymbolFinder& find_;
  const ExprNumbers numbers_;
  size_t at_ = 0;
  bool want_operand_ = true;
  uint32_t depth_ = 0;
  std::vector<Waiting> waiting_;
  Expr expr_;
  std::string fault_;
};

}  // namespace

bool IsName(std::string_view text) { return HasNameShape(text, true); }
bool IsSymbolName(std::string_view text) { return HasNameShape(text, false) && text != "min" && text != "max"; }

ExprOutcome ParseExpr(std::string_view text, const SymbolFinder& find, ExprNumbers numbers) {
  if (IsSymbolName(text)) {  // The usual case.
    const SymbolId symbol = find(text);
    if (!symbol.valid()) {
      return {};
    }
    return {Expr{{{Kind::kSymbol, symbol.index}}, std::string(text)}, ""};
  }
  ExprOutcome outcome = ExprReader(text, find, numbers).Read();
  if (!outcome.expr.has_value()) {
    return outcome;
  }
  for (const Expr::Term& term : outcome.expr->terms) {
    if (term.kind == Kind::kSymbol) {
      return outcome;
    }
  }
  const bool is_real = numbers == ExprNumbers::kReals;
  const Status valued = is_real ? EvaluateReal(*outcome.expr, {}).status() : Evaluate(*outcome.expr, {}).status();
  if (!valued.ok()) {
    return {std::nullopt, is_real ? "has no value: it is not finite or divides by zero"
                                  : "has no value: it overflows 64 bits or divides by zero"};
  }
  return outcome;
}

Expr ConstantExpr(int64_t value) { return Expr{{{Kind::kConst, value}}, std::to_string(value)}; }

std::optional<int64_t> ConstantOf(const Expr& expr) {
  if (expr.terms.size() == 1) {
    return expr.terms[0].kind == Kind::kConst ? std::optional(expr.terms[0].value) : std::nullopt;
  }
  for (const Expr::Term& term : expr.terms) {
    if (term.kind == Kind::kSymbol) {
      return std::nullopt;
    }
  }
  const StatusOr<int64_t> value = Evaluate(expr, {});
  return value.ok() ? std::optional(*value) : std::nullopt;
}

std::optional<SymbolId> LoneSymbol(const Expr& expr) {
  if (expr.terms.size() == 1 && expr.terms[0].kind == Kind::kSymbol) {
    return SymbolId(static_cast<uint32_t>(expr.terms[0].value));
  }
  return std::nullopt;
}

}  // namespace hpvm::graph
