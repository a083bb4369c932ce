// SPDX-License-Identifier: Apache-2.0
#include "base/clean_text.h"

#include <stdint.h>

#include <algorithm>

#include "base/text_marks.h"

namespace hpvm {
namespace {

// Returns true when `text` begins with a control character, one that terminals take as the start of an escape sequence
// (C1), or a mark that changes the direction of text.
bool IsControl(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  return first < 0x20 || first == 0x7f || (first == 0xc2 && text.size() > 1 && static_cast<uint8_t>(text[1]) < 0xa0) ||
         MarkAt(text).bytes != 0;
}

// Returns true when the character of `bytes` bytes at the start of `text` is allowed in clean text.
bool IsClean(std::string_view text, size_t bytes, bool lines) {
  return bytes != 0 && (!IsControl(text) || (lines && (text[0] == '\n' || text[0] == '\t')));
}

}  // namespace

bool IsCleanText(std::string_view text, bool lines) {
  while (!text.empty()) {
    const size_t bytes = Utf8Bytes(text);
    if (!IsClean(text, bytes, lines)) {
      return false;
    }
    text.remove_prefix(bytes);
  }
  return true;
}

std::string CleanText(std::string_view text, size_t bytes_max, bool lines) {
  const bool cut = text.size() > bytes_max;
  const size_t room = cut ? bytes_max - 3 : bytes_max;
  std::string clean;
  clean.reserve(std::min(text.size(), bytes_max));
  while (!text.empty()) {
    const size_t sequence = Utf8Bytes(text);
    const size_t bytes = std::max<size_t>(sequence, 1);
    if (clean.size() + bytes > room) {
      break;
    }
    if (!IsClean(text, sequence, lines)) {
      clean += '?';
    } else {
      clean += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return cut ? clean + "..." : clean;
}

}  // namespace hpvm
