// SPDX-License-Identifier: Apache-2.0
#include "graph/diagnostic_sink.h"

#include <algorithm>

#include "base/text_marks.h"

namespace hpvm::graph {
namespace {

constexpr size_t kQuotedBytesMax = 80;

void AppendHex(std::string& text, uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  text += "\\x";
  text += kDigits[byte >> 4];
  text += kDigits[byte & 15];
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

Diagnostics DiagnosticSink::Take() {
  const auto rest = [&](uint64_t count, Severity severity, std::string_view noun) {
    if (count > listed_max_) {
      listed_.push_back({severity, "", std::nullopt, Cat("... and ", count - listed_max_, " more ", noun, ".")});
    }
  };
  rest(errors_, Severity::kError, "errors");
  rest(warnings_, Severity::kWarning, "warnings");
  return std::exchange(listed_, {});
}

std::string NearMiss::Ending() const { return best().empty() ? "." : Cat("; did you mean ", Quoted(best()), "?"); }

}  // namespace hpvm::graph
