// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/terminal.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace hpvm::ctl {
namespace {

Terminal the_terminal;

constexpr std::string_view kRed = "\x1b[31m", kGreen = "\x1b[32m", kYellow = "\x1b[33m", kPlain = "\x1b[0m";

struct StateColour {
  std::string_view word, colour;
};
// Colours of the states of jobs, devices, hosts, tenants and tokens.
constexpr auto kStateColours = std::to_array<StateColour>({
    {"SUCCEEDED", kGreen},
    {"READY", kGreen},
    {"LIVE", kGreen},
    {"RUNNING", kYellow},
    {"CANCELLED", kYellow},
    {"DEGRADED", kYellow},
    {"FAILED", kRed},
    {"DEAD", kRed},
    {"EXPIRED", kRed},
    {"GONE", kRed},
    {"QUARANTINED", kRed},
    {"LOST", kRed},
    {"valid", kGreen},
    {"expired", kYellow},
    {"revoked", kRed},
    {"disabled", kYellow},
});

// Symbols that have an ASCII equivalent.
struct Likeness {
  std::string_view mark, ascii;
};
constexpr auto kLikenesses = std::to_array<Likeness>({
    {"\u2026", "..."},
    {"\u2192", "->"},
    {"\u2190", "<-"},
    {"\u2013", "-"},
    {"\u2014", "-"},
    {"\u2018", "'"},
    {"\u2019", "'"},
    {"\u201c", "\""},
    {"\u201d", "\""},
    {"\u00d7", "x"},
    {"\u00b5", "u"},
    {"\u00a0", " "},
    {"\u2264", "<="},
    {"\u2265", ">="},
    {"\u2212", "-"},
    {"\u2022", "*"},
    {"\u00b7", "."},
});

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

bool IsUtf8Locale() {
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    locale = locale.empty() ? Variable(name) : locale;
  }
  std::transform(locale.begin(), locale.end(), locale.begin(), [](unsigned char c) { return std::tolower(c); });
  return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
}

// Decodes the first character and returns its length in bytes; an invalid byte stands for itself.
size_t Decode(std::string_view text, uint32_t* code) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = first < 0x80 ? 1 : first >= 0xf0 && first < 0xf8 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (bytes == 0 || first >= 0xf8 || bytes > text.size()) {
    *code = first;
    return 1;
  }
  *code = bytes == 1 ? first : first & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0) != 0x80) {
      *code = first;
      return 1;
    }
    *code = (*code << 6) | (next & 0x3f);
  }
  return bytes;
}

}  // namespace

void SetTerminal(const Terminal& terminal) { the_terminal = terminal; }

Terminal FindTerminal(Colours colours) {
  Terminal terminal;
  terminal.is_utf8 = IsUtf8Locale();
  const bool may_be = Variable("NO_COLOR").empty() && Variable("TERM") != "dumb";
  const auto shows = [&](int file) {
    return colours == Colours::kAlways || (colours == Colours::kAuto && may_be && isatty(file) == 1);
  };
  terminal.output_colours = shows(STDOUT_FILENO);
  terminal.error_colours = shows(STDERR_FILENO);
  return terminal;
}

std::string Shown(std::string text) {
  const auto is_ascii = [](unsigned char c) { return c < 0x80; };
  if (the_terminal.is_utf8 || std::all_of(text.begin(), text.end(), is_ascii)) {
    return text;
  }
  std::string out;
  for (size_t i = 0; i < text.size();) {
    uint32_t code = 0;
    const size_t bytes = Decode(std::string_view(text).substr(i), &code);
    const std::string_view mark = std::string_view(text).substr(i, bytes);
    const auto alike = std::find_if(kLikenesses.begin(), kLikenesses.end(),
                                    [&](const Likeness& likeness) { return likeness.mark == mark; });
    if (code < 0x80) {
      out += mark;
    } else if (alike != kLikenesses.end()) {
      out += alike->ascii;
    } else {
      char escaped[16];
      snprintf(escaped, sizeof(escaped), bytes == 1 ? "\\x%02x" : code > 0xffff ? "\\U%08x" : "\\u%04x", code);
      out += escaped;
    }
    i += bytes;
  }
  return out;
}

std::string ColouredState(std::string_view text) {
  const std::string_view word = text.substr(0, text.find_first_of(" ,\n"));
  const auto found = std::find_if(kStateColours.begin(), kStateColours.end(),
                                  [&](const StateColour& state) { return state.word == word; });
  if (!the_terminal.output_colours || found == kStateColours.end()) {
    return std::string(text);
  }
  return std::string(found->colour) + std::string(word) + std::string(kPlain) + std::string(text.substr(word.size()));
}

std::string ErrorHead() {
  return the_terminal.error_colours ? std::string(kRed) + "hpvmctl:" + std::string(kPlain) : "hpvmctl:";
}

}  // namespace hpvm::ctl
