// SPDX-License-Identifier: Apache-2.0
// Parses numbers in text.
#ifndef HPVMD_BASE_NUMBER_H_
#define HPVMD_BASE_NUMBER_H_

#include <charconv>
#include <optional>
#include <string_view>

namespace hpvm {

// Parses all of `text` as a decimal number that fits in Number; returns nullopt for any other character, including
// blanks and a plus sign.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace hpvm

#endif  // HPVMD_BASE_NUMBER_H_
