// SPDX-License-Identifier: Apache-2.0
#include "graph/faults.h"

#include <algorithm>
#include <array>

#include "base/text_marks.h"

namespace hpvm::graph {
namespace {

constexpr size_t kQuotedBytesMax = 80;
constexpr size_t kNearMissBytesMax = 64;

void AppendHex(std::string& text, uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  text += "\\x";
  text += kDigits[byte >> 4];
  text += kDigits[byte & 15];
}

// Edits between two short words; two neighbours swapped count as one (optimal string alignment).
uint32_t Distance(std::string_view a, std::string_view b) {
  std::array<std::array<uint32_t, kNearMissBytesMax + 1>, 3> rows{};
  for (size_t j = 0; j <= b.size(); ++j) {
    rows[0][j] = static_cast<uint32_t>(j);
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& above = rows[(i + 2) % 3];
    const auto& above_that = rows[(i + 1) % 3];
    row[0] = static_cast<uint32_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1), above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], above_that[j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

}  // namespace

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  bool cut = false;
  for (size_t i = 0; i < text.size();) {
    if (out.size() >= kQuotedBytesMax) {
      cut = true;
      break;
    }
    const auto byte = static_cast<uint8_t>(text[i]);
    const size_t length = Utf8Bytes(text.substr(i));
    if (length == 0 || byte < 0x20 || byte == 0x7f || MarkAt(text.substr(i)).bytes != 0) {
      AppendHex(out, byte);
      ++i;
      continue;
    }
    if (byte == '"' || byte == '\\') {
      out += '\\';
    }
    out += text.substr(i, length);
    i += length;
  }
  return out + (cut ? "...\"" : "\"");
}

void AppendPointerToken(std::string& pointer, std::string_view token) {
  for (const char c : token) {
    if (c == '~') {
      pointer += "~0";
    } else if (c == '/') {
      pointer += "~1";
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) {
      AppendHex(pointer, static_cast<uint8_t>(c));
    } else {
      pointer += c;
    }
  }
}

Diagnostics Faults::Take() {
  const auto rest = [&](uint64_t count, Severity severity, std::string_view noun) {
    if (count > listed_max_) {
      listed_.push_back({severity, "", std::nullopt, Cat("... and ", count - listed_max_, " more ", noun, ".")});
    }
  };
  rest(errors_, Severity::kError, "errors");
  rest(warnings_, Severity::kWarning, "warnings");
  return std::exchange(listed_, {});
}

void NearMiss::Offer(std::string_view candidate) {
  if (offers_left_ == 0 || word_.size() > kNearMissBytesMax || candidate.size() > kNearMissBytesMax) {
    return;
  }
  --offers_left_;
  const uint32_t distance = Distance(word_, candidate);
  // "in" is no misspelling of "of": at least half of the word must survive.
  if (distance < best_distance_ && 2 * distance <= std::max(word_.size(), candidate.size())) {
    best_distance_ = distance;
    best_ = candidate;
  }
}

std::string NearMiss::Ending() const { return best_.empty() ? "." : Cat("; did you mean ", Quoted(best_), "?"); }

}  // namespace hpvm::graph
