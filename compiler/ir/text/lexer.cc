// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/text/lexer.h"

namespace hpvm::ir {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameChar(char c) { return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsWordChar(char c) { return IsNameChar(c) || c == '.'; }

}  // namespace

void Lexer::SkipBlanks() {
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
    } else if (c == ';' && at_ + 1 < text_.size() && text_[at_ + 1] == ';') {
      const size_t end = text_.find('\n', at_);
      at_ = (end == std::string_view::npos ? text_.size() : end) - 1;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      return;
    }
  }
}

std::string_view Lexer::TakeWhile(bool (*accept)(char)) {
  const size_t begin = at_;
  while (at_ < text_.size() && accept(text_[at_])) {
    ++at_;
  }
  return text_.substr(begin, at_ - begin);
}

Token Lexer::Number(Token token) {
  token.kind = TokenKind::kNumber;
  const size_t begin = at_;
  at_ += text_[at_] == '-' ? 1 : 0;
  const bool is_hex = text_.substr(at_, 2) == "0x";
  while (at_ < text_.size()) {
    const char last = text_[at_ - (at_ > begin ? 1 : 0)];
    const bool is_exponent_sign = !is_hex && (last == 'e' || last == 'E') && (text_[at_] == '-' || text_[at_] == '+');
    if (!IsWordChar(text_[at_]) && !is_exponent_sign) {
      break;
    }
    ++at_;
  }
  token.text = text_.substr(begin, at_ - begin);
  return token;
}

Token Lexer::String(Token token) {
  const size_t begin = ++at_;
  while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
    ++at_;
  }
  token.text = text_.substr(begin, at_ - begin);
  if (at_ == text_.size() || text_[at_] == '\n') {
    return token;  // Without a closing quote, the token is kBad.
  }
  ++at_;
  token.kind = TokenKind::kString;
  return token;
}

Token Lexer::Next() {
  SkipBlanks();
  Token token{TokenKind::kBad, {}, line_};
  if (at_ == text_.size()) {
    token.kind = TokenKind::kEnd;
    return token;
  }
  const char c = text_[at_];
  const char following = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
  if (c == '"') {
    return String(token);
  }
  if (IsDigit(c) || (c == '-' && IsNameChar(following))) {
    return Number(token);
  }
  if (c == '%' && IsNameChar(following)) {
    ++at_;
    token.kind = TokenKind::kValue;
    token.text = TakeWhile(IsNameChar);
    return token;
  }
  if (IsNameChar(c)) {
    token.kind = TokenKind::kWord;
    token.text = TakeWhile(IsWordChar);
    return token;
  }
  const size_t length = c == '-' && following == '>' ? 2 : 1;
  token.text = text_.substr(at_, length);
  at_ += length;
  if (length == 2 || std::string_view("(){}[],=:+@").find(c) != std::string_view::npos) {
    token.kind = TokenKind::kPunctuation;
  }
  return token;
}

}  // namespace hpvm::ir
