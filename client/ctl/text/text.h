// SPDX-License-Identifier: Apache-2.0
// Text for terminals.
#ifndef HPVMD_CLIENT_CTL_TEXT_TEXT_H_
#define HPVMD_CLIENT_CTL_TEXT_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hpvm::ctl {

// Escapes control characters other than newline as "\x1b" and so on: names and messages come from other users and
// must not control the terminal. Returns ASCII when the terminal shows no UTF-8 (Shown).
std::string Printable(std::string_view text);

// Formats as "1.24 ms", "318 us", "2.1 s".
std::string DurationText(uint64_t ns);
// Formats as "512 B", "1.0 MiB".
std::string BytesText(uint64_t bytes);
// Formats local time as ISO 8601 to the second; "-" for 0.
std::string TimeText(int64_t unix_ns);
// Like TimeText, to the millisecond.
std::string PreciseTimeText(int64_t unix_ns);

// Formats left-aligned columns two spaces apart, heading first, without cutting. Makes cells printable and colours a
// column STATE when the terminal shows colours, so the result must not go through Printable again.
std::string Table(const std::vector<std::vector<std::string>>& rows);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_TEXT_H_
