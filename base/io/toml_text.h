// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_BASE_IO_TOML_TEXT_H_
#define HPVMD_BASE_IO_TOML_TEXT_H_

#include <cstddef>
#include <string_view>

namespace hpvm {

// The first character that TOML has not where it stands, or the text's size. toml++ is undefined at some of them, so
// every text is looked through before it is parsed. One beyond ASCII is fine in comments and in strings of one line
// that are a key's value.
size_t FindBadTomlCharacter(std::string_view text);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_TOML_TEXT_H_
