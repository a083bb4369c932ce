// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/opencl/lexer.h"

namespace hpvm::opencl {
namespace {

bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || (c & 0x80);
}
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\v' || c == '\f'; }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { SkipSplices(); }

  Lexed Run() {
    while (!AtEnd()) {
      Next();
    }
    return std::move(result_);
  }

 private:
  bool AtEnd() const { return place_.offset >= text_.size(); }
  // Returns the character at the cursor, which never stands on a splice; 0 at the end.
  char Peek() const { return AtEnd() ? '\0' : text_[place_.offset]; }
  // Returns the character after the cursor.
  char PeekNext() {
    const SourcePosition here = place_;
    Advance();
    const char next = Peek();
    place_ = here;
    return next;
  }
  void Fault(const SourcePosition& at, std::string message) { result_.faults.push_back({at, std::move(message)}); }

  void Step() {
    const char c = text_[place_.offset++];
    if (c == '\n') {
      ++place_.line;
      place_.column = 1;
    } else {
      ++place_.column;
    }
  }
  void SkipSplices() {
    while (!AtEnd() && text_[place_.offset] == '\\') {
      size_t end = place_.offset + 1;
      if (end < text_.size() && text_[end] == '\r') {
        ++end;
      }
      if (end >= text_.size() || text_[end] != '\n') {
        return;
      }
      while (place_.offset <= end) {
        Step();
      }
    }
  }
  void Advance() {
    if (!AtEnd()) {
      Step();
      SkipSplices();
    }
  }

  void Next() {
    const char c = Peek();
    if (c == '\n') {
      begins_line_ = true;
      in_directive_ = false;
      return Advance();
    }
    if (IsBlank(c) || c == '\r') {
      return Advance();
    }
    if (c == '/' && PeekNext() == '/') {
      return SkipLineComment();
    }
    if (c == '/' && PeekNext() == '*') {
      return SkipBlockComment();
    }
    Read(c);
  }

  void SkipLineComment() {
    while (!AtEnd() && Peek() != '\n') {
      Advance();
    }
  }

  void SkipBlockComment() {
    const SourcePosition begin = place_;
    Advance();
    Advance();
    while (!AtEnd()) {
      const bool closes = Peek() == '*' && PeekNext() == '/';
      Advance();
      if (closes) {
        return Advance();
      }
    }
    Fault(begin, "A comment does not end.");
  }

  void Read(char c) {
    Token token;
    token.place = place_;
    token.begins_line = begins_line_;
    if (begins_line_ && (c == '#' || (c == '%' && PeekNext() == ':'))) {
      in_directive_ = true;
    }
    token.in_directive = in_directive_;
    begins_line_ = false;
    if (IsNameStart(c)) {
      token.kind = Token::Kind::kName;
      while (IsNameStart(Peek()) || IsDigit(Peek())) {
        token.text += Peek();
        Advance();
      }
    } else if (IsDigit(c) || (c == '.' && IsDigit(PeekNext()))) {
      token.kind = Token::Kind::kNumber;
      ReadNumber(token);
    } else if (c == '"' || c == '\'') {
      token.kind = Token::Kind::kString;
      token.text = c;
      SkipString(c);
    } else {
      token.text = c;
      Advance();
      // "%:" is another spelling of '#'.
      if (c == '%' && Peek() == ':') {
        token.text = "#";
        Advance();
      }
    }
    result_.tokens.push_back(std::move(token));
  }

  void ReadNumber(Token& token) {
    while (IsNameStart(Peek()) || IsDigit(Peek()) || Peek() == '.') {
      const char c = Peek();
      token.text += c;
      Advance();
      const bool is_exponent = c == 'e' || c == 'E' || c == 'p' || c == 'P';
      if (is_exponent && (Peek() == '+' || Peek() == '-')) {
        token.text += Peek();
        Advance();
      }
    }
  }

  void SkipString(char quote) {
    Advance();
    while (!AtEnd() && Peek() != '\n') {
      const char c = Peek();
      Advance();
      if (c == quote) {
        return;
      }
      if (c == '\\' && Peek() != '\n') {
        Advance();
      }
    }
    // The end of the line ends the string for every compiler; in a branch that is not compiled an apostrophe may
    // stand alone.
  }

  std::string_view text_;
  SourcePosition place_;
  bool begins_line_ = true, in_directive_ = false;
  Lexed result_;
};

// Finds bytes that compilers read differently: what one reads as a comment, another reads as a directive.
void FindAmbiguous(std::string_view text, std::vector<LexFault>& faults) {
  constexpr size_t kFaultsMax = 16;
  SourcePosition place;
  for (size_t i = 0; i < text.size() && faults.size() < kFaultsMax; ++i) {
    place.offset = i;
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c == '\0') {
      faults.push_back({place, "A zero byte ends the text for some compilers and not for others."});
    } else if (c == '\r' && next != '\n') {
      faults.push_back(
          {place, "A carriage return without a line feed ends a line for some compilers and not for others."});
    } else if (c == '?' && next == '?' && i + 2 < text.size() && (text[i + 2] == '=' || text[i + 2] == '/')) {
      faults.push_back({place, "A trigraph (?" + std::string("?") + text[i + 2] +
                                   ") means '#' or '\\' to some compilers and nothing to others."});
    } else if (c == '\\' && IsBlank(next)) {
      const size_t end = text.find_first_not_of(" \t\v\f\r", i + 1);
      if (end != std::string_view::npos && text[end] == '\n') {
        faults.push_back(
            {place, "A backslash with white space behind it joins lines for some compilers and not for others."});
      }
    }
    if (c == '\n') {
      ++place.line;
      place.column = 1;
    } else {
      ++place.column;
    }
  }
}

}  // namespace

Lexed Lex(std::string_view text) {
  std::vector<LexFault> ambiguous;
  FindAmbiguous(text, ambiguous);
  Lexed lexed = Lexer(text).Run();
  lexed.faults.insert(lexed.faults.begin(), ambiguous.begin(), ambiguous.end());
  return lexed;
}

}  // namespace hpvm::opencl
