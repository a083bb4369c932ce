// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/text.h"

#include <stdio.h>
#include <time.h>

#include <algorithm>

#include "base/text_marks.h"

namespace hpvm::ctl {
namespace {

std::string Number(double value, const char* unit) {
  char text[64];
  snprintf(text, sizeof(text), value < 10 ? "%.2f %s" : value < 100 ? "%.1f %s" : "%.0f %s", value, unit);
  return text;
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool is_second = false;  // Of a control character that UTF-8 writes as two bytes; terminals obey those too.
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
  return out;
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

std::string TimeText(int64_t unix_ns) {
  if (unix_ns == 0) {
    return "-";
  }
  time_t seconds = unix_ns / 1'000'000'000;
  tm local;
  localtime_r(&seconds, &local);
  char text[64];
  strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S%z", &local);
  return text;
}

std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) {
        line.append(widths[i] - row[i].size() + 2, ' ');
      }
    }
    text += Printable(line) + "\n";
  }
  return text;
}

}  // namespace hpvm::ctl
