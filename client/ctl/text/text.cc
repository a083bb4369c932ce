// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/text.h"

#include <stdio.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>

#include "client/ctl/text/terminal.h"

#include "base/text_marks.h"

namespace hpvm::ctl {
namespace {

std::string Number(double value, const char* unit) {
  char text[64];
  snprintf(text, sizeof(text), value < 10 ? "%.2f %s" : value < 100 ? "%.1f %s" : "%.0f %s", value, unit);
  return text;
}

std::string TimeTextWith(int64_t unix_ns, const std::string& fraction) {
  if (unix_ns == 0) {
    return "-";
  }
  time_t seconds = unix_ns / 1'000'000'000;
  tm local;
  localtime_r(&seconds, &local);
  char text[32], zone[16];
  strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &local);
  strftime(zone, sizeof(zone), "%z", &local);
  return text + fraction + zone;
}

// Counts characters; a terminal shows each in one column, except East Asian ones.
size_t Columns(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  // The second byte of a control character that UTF-8 writes as two bytes; terminals obey those too.
  bool is_second = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (const TextMark mark = MarkAt(text.substr(i)); mark.bytes != 0) {
      char escaped[12];
      snprintf(escaped, sizeof(escaped), "\\u%04x", mark.code);
      out += escaped;
      i += mark.bytes - 1;
      is_second = false;
      continue;
    }
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    const bool is_first = c == 0xc2 && next >= 0x80 && next < 0xa0;
    if ((c < 0x20 && c != '\n') || c == 0x7f || is_first || is_second) {
      char escaped[8];
      snprintf(escaped, sizeof(escaped), "\\x%02x", c);
      out += escaped;
    } else {
      out += static_cast<char>(c);
    }
    is_second = is_first;
  }
  return Shown(std::move(out));
}

std::string DurationText(uint64_t ns) {
  double value = static_cast<double>(ns);
  if (ns < 1000) {
    return std::to_string(ns) + " ns";
  }
  if (ns < 1'000'000) {
    return Number(value / 1e3, "us");
  }
  return ns < 1'000'000'000 ? Number(value / 1e6, "ms") : Number(value / 1e9, "s");
}

std::string BytesText(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) {
    return std::to_string(bytes) + " B";
  }
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return Number(value, kUnits[unit]);
}

std::string TimeText(int64_t unix_ns) { return TimeTextWith(unix_ns, ""); }

std::string PreciseTimeText(int64_t unix_ns) {
  char fraction[16];
  snprintf(fraction, sizeof(fraction), ".%03d", static_cast<int>(std::abs(unix_ns / 1'000'000 % 1000)));
  return TimeTextWith(unix_ns, fraction);
}

std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> cells(rows.size());
  std::vector<size_t> widths;
  for (size_t row = 0; row < rows.size(); ++row) {
    for (const std::string& cell : rows[row]) {
      cells[row].push_back(Printable(cell));
      const size_t column = cells[row].size() - 1;
      widths.resize(std::max(widths.size(), column + 1));
      widths[column] = std::max(widths[column], Columns(cells[row].back()));
    }
  }
  std::string text;
  for (size_t row = 0; row < cells.size(); ++row) {
    for (size_t i = 0; i < cells[row].size(); ++i) {
      const std::string& cell = cells[row][i];
      text += row > 0 && i < cells.front().size() && cells.front()[i] == "STATE" ? ColouredState(cell) : cell;
      text.append(i + 1 < cells[row].size() ? widths[i] - Columns(cell) + 2 : 0, ' ');
    }
    text += "\n";
  }
  return text;
}

}  // namespace hpvm::ctl
