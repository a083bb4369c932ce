// SPDX-License-Identifier: Apache-2.0
// Numbers in text.
#ifndef HPVMD_BASE_NUMBER_H_
#define HPVMD_BASE_NUMBER_H_

#include <charconv>
#include <optional>
#include <string_view>

namespace hpvm {

// The whole of `text` as a number in decimal digits, that fits; nothing else may stand there, not even blanks or a
// plus.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace hpvm

#endif  // HPVMD_BASE_NUMBER_H_
