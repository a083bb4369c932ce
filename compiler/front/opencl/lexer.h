// SPDX-License-Identifier: Apache-2.0
// A lexer for OpenCL C before macro expansion. Its tokens suffice to find directives, names and parameter lists that
// comments, strings or spliced lines would hide. A construct that compilers are known to read differently is a fault.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_LEXER_H_
#define HPVMD_COMPILER_FRONT_OPENCL_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hpvm::opencl {

struct SourcePosition {
  uint32_t line = 1, column = 1;
  uint64_t offset = 0;  // Byte offset.
};

struct Token {
  enum class Kind : uint8_t { kName, kNumber, kString, kPunctuation };
  Kind kind = Kind::kPunctuation;
  std::string text;  // Without line splices; only the first character of a string.
  SourcePosition place;
  bool begins_line = false;   // Only white space and comments precede the token on its line.
  bool in_directive = false;  // The token lies between a '#' that begins a line and the end of that line.
};

struct LexFault {
  SourcePosition place;
  std::string message;
};

struct Lexed {
  std::vector<Token> tokens;
  std::vector<LexFault> faults;  // The lexer continues after a fault.
};

Lexed Lex(std::string_view text);

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_FRONT_OPENCL_LEXER_H_
