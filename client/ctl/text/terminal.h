// SPDX-License-Identifier: Apache-2.0
// The reader of the output: a terminal or not, with UTF-8 or without, with colours or without.
#ifndef HPVMD_CLIENT_CTL_TEXT_TERMINAL_H_
#define HPVMD_CLIENT_CTL_TEXT_TERMINAL_H_

#include <string>
#include <string_view>

namespace hpvm::ctl {

enum class Colours : uint8_t { kAuto, kAlways, kNever };

struct Terminal {
  bool is_utf8 = true;
  bool output_colours = false, error_colours = false;
};

// For the whole process, before its first output and from one thread; UTF-8 without colours until then.
void SetTerminal(const Terminal& terminal);
// As the locale ($LC_ALL, $LC_CTYPE, $LANG) and the open files say. kAuto: colours where a terminal is, unless
// $NO_COLOR is set or $TERM is "dumb".
Terminal FindTerminal(Colours colours);

// The text where UTF-8 is shown; else in ASCII: "..." for an ellipsis, "\u00fc" for what has no likeness.
std::string Shown(std::string text);

// `text` with its first word in green when that is a state in which all is well, in red when it is not, in yellow
// between. Other texts, and every text where standard output shows no colours, stay as they are.
std::string ColouredState(std::string_view text);
// "hpvmctl:", in red where standard error shows colours: what an error begins with.
std::string ErrorHead();

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_TERMINAL_H_
