// SPDX-License-Identifier: Apache-2.0
// Joins pieces of text.
#ifndef HPVMD_COMPILER_BACK_OPENCL_CAT_H_
#define HPVMD_COMPILER_BACK_OPENCL_CAT_H_

#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace hpvm::opencl {

inline void AppendPiece(std::string& text, std::string_view piece) { text += piece; }
inline void AppendPiece(std::string& text, std::integral auto number) { text += std::to_string(number); }

template <typename... Pieces>
void Append(std::string& text, const Pieces&... pieces) {
  (AppendPiece(text, pieces), ...);
}
template <typename... Pieces>
std::string Cat(const Pieces&... pieces) {
  std::string text;
  Append(text, pieces...);
  return text;
}

// Returns the number as "0x1f".
inline std::string Hex(uint64_t number) {
  char digits[16];
  return "0x" + std::string(digits, std::to_chars(digits, digits + sizeof(digits), number, 16).ptr);
}

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_BACK_OPENCL_CAT_H_
