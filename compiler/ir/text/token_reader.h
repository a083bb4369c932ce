// SPDX-License-Identifier: Apache-2.0
// Reads tokens with one token of look-ahead, and the small elements of the text form's grammar: names, numbers,
// types, strings. Errors name the line.
#ifndef HPVMD_COMPILER_IR_TEXT_TOKEN_READER_H_
#define HPVMD_COMPILER_IR_TEXT_TOKEN_READER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/text/lexer.h"

namespace hpvm::ir {

class TokenReader {
 public:
  explicit TokenReader(std::string_view text) : lexer_(text), token_(lexer_.Next()) {}

  const Token& token() const { return token_; }
  void Advance() { token_ = lexer_.Next(); }

  bool IsWord(std::string_view word) const { return token_.kind == TokenKind::kWord && token_.text == word; }
  bool IsPunctuation(std::string_view mark) const {
    return token_.kind == TokenKind::kPunctuation && token_.text == mark;
  }
  // Both skip the token if it is the given one, and return whether it was.
  bool TakeWord(std::string_view word);
  bool TakePunctuation(std::string_view mark);

  Status Expect(std::string_view mark);
  Status Number(uint64_t* value);  // Unsigned, decimal or 0x.
  Status Number32(uint32_t* value);
  Status ConstantBits(Type type, uint64_t* bits);
  Status Indexed(char prefix, uint32_t* index);  // f12, g0, t3.
  Status ReadType(Type* type);
  Status Types(std::vector<Type>* types);        // (i32, f32)
  Status String(std::string* bytes);             // With \hh escapes.
  Status HexBytes(std::vector<uint8_t>* bytes);  // "00ff"

  // Returns an error of the form "Line 12: `message`".
  Status Error(std::string_view message) const { return ErrorAt(token_.line, message); }
  static Status ErrorAt(uint32_t line, std::string_view message);
  // Returns an error of the form "Expected `what`; found "..."."
  Status Expected(std::string_view what) const;

 private:
  Lexer lexer_;
  Token token_;
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_TEXT_TOKEN_READER_H_
