// SPDX-License-Identifier: Apache-2.0
// Reads untrusted text: whole characters, and invisible marks that change how a terminal or an editor orders or breaks
// the text around them, so that it could be read as something else (Unicode TR 36, section 2.10.4).
#ifndef HPVMD_BASE_TEXT_MARKS_H_
#define HPVMD_BASE_TEXT_MARKS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hpvm {

// Returns the length in bytes of the UTF-8 character at the start of `text`; 0 when there is none: the text is empty,
// or the character is malformed, overlong, a surrogate, or beyond U+10FFFF.
size_t Utf8Bytes(std::string_view text);

// The mark (code point and length) at the start of UTF-8 text; 0 bytes when there is none. Marks are the direction
// controls (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069) and the separators of lines and paragraphs
// (U+2028, U+2029).
struct TextMark {
  uint32_t code = 0;
  uint32_t bytes = 0;
};
TextMark MarkAt(std::string_view text);

}  // namespace hpvm

#endif  // HPVMD_BASE_TEXT_MARKS_H_
