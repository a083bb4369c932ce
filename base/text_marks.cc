// SPDX-License-Identifier: Apache-2.0
#include "base/text_marks.h"

namespace hpvm {

size_t Utf8Bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const auto tail = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const uint8_t a = byte(0);
  if (a < 0x80) {
    return text.empty() ? 0 : 1;
  }
  if (a >= 0xc2 && a <= 0xdf) {
    return tail(1) ? 2 : 0;
  }
  if (a >= 0xe0 && a <= 0xef) {
    const bool second = (a != 0xe0 || byte(1) >= 0xa0) && (a != 0xed || byte(1) < 0xa0);
    return tail(1) && tail(2) && second ? 3 : 0;
  }
  if (a >= 0xf0 && a <= 0xf4) {
    const bool second = (a != 0xf0 || byte(1) >= 0x90) && (a != 0xf4 || byte(1) < 0x90);
    return tail(1) && tail(2) && tail(3) && second ? 4 : 0;
  }
  return 0;
}

TextMark MarkAt(std::string_view text) {
  const auto at = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  if (at(0) == 0xd8 && at(1) == 0x9c) {
    return {0x61c, 2};
  }
  if (at(0) != 0xe2 || (at(1) != 0x80 && at(1) != 0x81) || (at(2) & 0xc0) != 0x80) {
    return {};
  }
  const uint32_t code = 0x2000 + (static_cast<uint32_t>(at(1) & 1) << 6) + (at(2) & 0x3fu);
  const bool is_mark =
      code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return is_mark ? TextMark{code, 3} : TextMark{};
}

}  // namespace hpvm
