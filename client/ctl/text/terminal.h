// SPDX-License-Identifier: Apache-2.0
// Properties of the terminal: whether output goes to one, UTF-8, colours.
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

// Sets the process-wide terminal. Called before the first output, from one thread; the initial value is UTF-8 without
// colours.
void SetTerminal(const Terminal& terminal);
// Detects the terminal from the locale ($LC_ALL, $LC_CTYPE, $LANG) and the open files. kAuto uses colours on a
// terminal, unless $NO_COLOR is set or $TERM is "dumb".
Terminal FindTerminal(Colours colours);

// Returns the text unchanged when UTF-8 is shown; otherwise in ASCII, with "..." for an ellipsis and "\u00fc" for
// characters without an equivalent.
std::string Shown(std::string text);

// Colours the first word of `text` when it is a state: green for good states, red for bad ones, yellow for those in
// between. Other texts stay as they are, and so do all texts when standard output shows no colours.
std::string ColouredState(std::string_view text);
// Returns "hpvmctl:", the beginning of errors, in red when standard error shows colours.
std::string ErrorHead();

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_TERMINAL_H_
