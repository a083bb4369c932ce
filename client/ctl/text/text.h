// SPDX-License-Identifier: Apache-2.0
// Text for people's terminals.
#ifndef HPVMD_CLIENT_CTL_TEXT_TEXT_H_
#define HPVMD_CLIENT_CTL_TEXT_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hpvm::ctl {

// Control characters other than newline become "\x1b" and so on: names and messages come from others and must not steer
// the terminal. In ASCII where the terminal shows no UTF-8 (Shown).
std::string Printable(std::string_view text);

// "1.24 ms", "318 us", "2.1 s".
std::string DurationText(uint64_t ns);
// "512 B", "1.0 MiB".
std::string BytesText(uint64_t bytes);
// Local time, ISO 8601 to the second; "-" for 0.
std::string TimeText(int64_t unix_ns);
// The same to the millisecond.
std::string PreciseTimeText(int64_t unix_ns);

// Left-aligned columns two spaces apart, heading first; nothing is cut. Printable, and with colours in a column STATE
// where the terminal shows them: what it answers does not go through Printable again.
std::string Table(const std::vector<std::vector<std::string>>& rows);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_TEXT_H_
