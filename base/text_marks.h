// SPDX-License-Identifier: Apache-2.0
// Reads text that somebody else wrote: whole characters, and the marks that change how a terminal or an editor orders
// or breaks the text around them and show nothing themselves, so that it could read as what it does not say (Unicode TR
// 36, section 2.10.4).
#ifndef HPVMD_BASE_TEXT_MARKS_H_
#define HPVMD_BASE_TEXT_MARKS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hpvm {

// Bytes of the UTF-8 character that `text` begins with; 0 when it begins with none: malformed, longer than needed, a
// surrogate, past U+10FFFF, or nothing.
size_t Utf8Bytes(std::string_view text);

// The mark that `text` (UTF-8) begins with: its code point and its bytes; 0 bytes when it begins with none. Marks are
// the directions of text (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069) and the separators of lines and
// paragraphs (U+2028, U+2029).
struct TextMark {
  uint32_t code = 0;
  uint32_t bytes = 0;
};
TextMark MarkAt(std::string_view text);

}  // namespace hpvm

#endif  // HPVMD_BASE_TEXT_MARKS_H_
