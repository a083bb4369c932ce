// SPDX-License-Identifier: Apache-2.0
// Text from untrusted processes: the characters allowed in messages, logs and terminals.
#ifndef HPVMD_BASE_CLEAN_TEXT_H_
#define HPVMD_BASE_CLEAN_TEXT_H_

#include <stddef.h>

#include <string>
#include <string_view>

namespace hpvm {

// Returns true for well-formed UTF-8 without control characters; `lines` allows \n and \t.
bool IsCleanText(std::string_view text, bool lines);
// Returns `text` made clean (IsCleanText) and at most `bytes_max` long: other bytes become '?', truncation adds "...".
std::string CleanText(std::string_view text, size_t bytes_max, bool lines = true);

}  // namespace hpvm

#endif  // HPVMD_BASE_CLEAN_TEXT_H_
