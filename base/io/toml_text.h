// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_BASE_IO_TOML_TEXT_H_
#define HPVMD_BASE_IO_TOML_TEXT_H_

#include <cstddef>
#include <string_view>

namespace hpvm {

// Returns the position of the first character that TOML does not allow at its place, or the text's size. toml++ has
// undefined behaviour for some of them, so every text is scanned before it is parsed. Non-ASCII characters are allowed
// in comments and in single-line strings that are a key's value.
size_t FindBadTomlCharacter(std::string_view text);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_TOML_TEXT_H_
