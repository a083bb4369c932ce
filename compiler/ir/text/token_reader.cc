// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/text/token_reader.h"

#include <bit>
#include <charconv>
#include <limits>

namespace hpvm::ir {
namespace {

// Parses a token that is an unsigned number as a whole, decimal or 0x.
bool ParseUnsigned(std::string_view text, uint64_t* value) {
  const bool is_hex = text.substr(0, 2) == "0x";
  text.remove_prefix(is_hex ? 2 : 0);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, is_hex ? 16 : 10);
  return error == std::errc() && end == text.data() + text.size();
}

// Parses an integer that fits `width` bits, signed or unsigned.
bool ParseInteger(std::string_view text, uint32_t width, uint64_t* bits) {
  const bool is_negative = text.substr(0, 1) == "-";
  text.remove_prefix(is_negative ? 1 : 0);
  uint64_t magnitude = 0;
  if (!ParseUnsigned(text, &magnitude)) {
    return false;
  }
  const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  if (is_negative ? magnitude > (uint64_t{1} << (width - 1)) : magnitude > mask) {
    return false;
  }
  *bits = (is_negative ? 0 - magnitude : magnitude) & mask;
  return true;
}

template <typename Float>
bool ParseFloat(std::string_view text, Float* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

Status TokenReader::ErrorAt(uint32_t line, std::string_view message) {
  return InvalidArgument("Line " + std::to_string(line) + ": " + std::string(message));
}

Status TokenReader::Expected(std::string_view what) const {
  std::string found =
      token_.kind == TokenKind::kEnd ? "the end of the text" : '"' + std::string(token_.text.substr(0, 40)) + '"';
  // Unprintable characters of a hostile text are replaced.
  for (char& c : found) {
    c = c >= 0x20 && c < 0x7f ? c : '?';
  }
  return Error("Expected " + std::string(what) + "; found " + found + ".");
}

bool TokenReader::TakeWord(std::string_view word) {
  if (!IsWord(word)) {
    return false;
  }
  Advance();
  return true;
}

bool TokenReader::TakePunctuation(std::string_view mark) {
  if (!IsPunctuation(mark)) {
    return false;
  }
  Advance();
  return true;
}

Status TokenReader::Expect(std::string_view mark) {
  return TakePunctuation(mark) ? absl::OkStatus() : Expected('"' + std::string(mark) + '"');
}

Status TokenReader::Number(uint64_t* value) {
  if (token_.kind != TokenKind::kNumber || !ParseUnsigned(token_.text, value)) {
    return Expected("an unsigned number");
  }
  Advance();
  return absl::OkStatus();
}

Status TokenReader::Number32(uint32_t* value) {
  uint64_t wide = 0;
  const uint32_t line = token_.line;
  HPVMD_RETURN_IF_ERROR(Number(&wide));
  if (wide > std::numeric_limits<uint32_t>::max()) {
    return ErrorAt(line, "The number (" + std::to_string(wide) + ") is larger than the limit (4294967295).");
  }
  *value = static_cast<uint32_t>(wide);
  return absl::OkStatus();
}

Status TokenReader::ConstantBits(Type type, uint64_t* bits) {
  const bool is_literal = token_.kind == TokenKind::kNumber || token_.kind == TokenKind::kWord;
  const uint32_t width = Bytes(type) * 8;
  bool ok = false;
  if (IsInt(type) || token_.text.substr(0, 2) == "0x") {
    ok = is_literal && ParseInteger(token_.text, width, bits);
  } else if (float single = 0; type == Type::kF32) {
    ok = is_literal && ParseFloat(token_.text, &single);
    *bits = std::bit_cast<uint32_t>(single);
  } else {
    double value = 0;
    ok = is_literal && ParseFloat(token_.text, &value);
    *bits = std::bit_cast<uint64_t>(value);
  }
  if (!ok) {
    return Expected("a constant that fits " + std::string(Name(type)));
  }
  Advance();
  return absl::OkStatus();
}

Status TokenReader::Indexed(char prefix, uint32_t* index) {
  const std::string_view text = token_.text;
  uint64_t value = 0;
  if (token_.kind != TokenKind::kWord || text.size() < 2 || text[0] != prefix || text.substr(1, 2) == "0x" ||
      !ParseUnsigned(text.substr(1), &value) || value >= std::numeric_limits<uint32_t>::max()) {
    return Expected("an index such as \"" + std::string(1, prefix) + "3\"");
  }
  *index = static_cast<uint32_t>(value);
  Advance();
  return absl::OkStatus();
}

Status TokenReader::ReadType(Type* type) {
  for (const Type candidate : {Type::kI32, Type::kI64, Type::kF32, Type::kF64}) {
    if (TakeWord(Name(candidate))) {
      *type = candidate;
      return absl::OkStatus();
    }
  }
  return Expected("a type (i32, i64, f32 or f64)");
}

Status TokenReader::Types(std::vector<Type>* types) {
  HPVMD_RETURN_IF_ERROR(Expect("("));
  while (!TakePunctuation(")")) {
    if (!types->empty()) {
      HPVMD_RETURN_IF_ERROR(Expect(","));
    }
    Type type;
    HPVMD_RETURN_IF_ERROR(ReadType(&type));
    types->push_back(type);
  }
  return absl::OkStatus();
}

Status TokenReader::String(std::string* bytes) {
  if (token_.kind != TokenKind::kString) {
    return Expected("a string in quotes");
  }
  const std::string_view text = token_.text;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes->push_back(text[i]);
      continue;
    }
    const int high = i + 1 < text.size() ? HexDigit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
    if (high < 0 || low < 0) {
      return Error("An escape in the string is not \\ and two digits of lower-case hexadecimal.");
    }
    bytes->push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  Advance();
  return absl::OkStatus();
}

Status TokenReader::HexBytes(std::vector<uint8_t>* bytes) {
  const std::string_view text = token_.text;
  if (token_.kind != TokenKind::kString || text.size() % 2 != 0) {
    return Expected("bytes in hexadecimal, two digits each, in quotes");
  }
  bytes->reserve(text.size() / 2);
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = HexDigit(text[i]), low = HexDigit(text[i + 1]);
    if (high < 0 || low < 0) {
      return Expected("bytes in hexadecimal, two digits each, in quotes");
    }
    bytes->push_back(static_cast<uint8_t>(high * 16 + low));
  }
  Advance();
  return absl::OkStatus();
}

}  // namespace hpvm::ir
