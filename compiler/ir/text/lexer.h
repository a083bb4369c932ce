// SPDX-License-Identifier: Apache-2.0
// Cuts the text form into tokens. Accepts any bytes; bytes that fit no token become kBad.
#ifndef HPVMD_COMPILER_IR_TEXT_LEXER_H_
#define HPVMD_COMPILER_IR_TEXT_LEXER_H_

#include <cstdint>
#include <string_view>

namespace hpvm::ir {

enum class TokenKind : uint8_t { kEnd, kWord, kValue, kNumber, kString, kPunctuation, kBad };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;  // Points into the lexer's text. Excludes the quotes of strings and the `%` of values.
  uint32_t line = 1;
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token Next();

 private:
  void SkipBlanks();
  std::string_view TakeWhile(bool (*accept)(char));
  Token Number(Token token);
  Token String(Token token);

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_TEXT_LEXER_H_
