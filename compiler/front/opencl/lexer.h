// SPDX-License-Identifier: Apache-2.0
// The tokens of OpenCL C before any macro is expanded: enough to find directives, names and parameter lists whatever
// comments, strings and spliced lines hide. What compilers are known to read differently is a fault.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_LEXER_H_
#define HPVMD_COMPILER_FRONT_OPENCL_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hpvm::opencl {

struct Place {
  uint32_t line = 1, column = 1;
  uint64_t offset = 0;  // Bytes.
};

struct Token {
  enum class Kind : uint8_t { kName, kNumber, kString, kPunctuation };
  Kind kind = Kind::kPunctuation;
  std::string text;  // Without splices; strings only their first character.
  Place place;
  bool begins_line = false;   // Nothing but white space and comments stands before it.
  bool in_directive = false;  // Between a '#' that begins a line and that line's end.
};

struct LexFault {
  Place place;
  std::string message;
};

struct Lexed {
  std::vector<Token> tokens;
  std::vector<LexFault> faults;  // Reading goes on behind them.
};

Lexed Lex(std::string_view text);

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_FRONT_OPENCL_LEXER_H_
