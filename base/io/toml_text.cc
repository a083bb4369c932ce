// SPDX-License-Identifier: Apache-2.0
#include "base/io/toml_text.h"

#include <cstdint>

namespace hpvm {
namespace {

// Tracks where a quote surely begins a string: as the value of a key that is first in its line. Elsewhere a quote may
// belong to something else, like 0'x'; then, and after an array or a table in a line, nothing is certain any more.
class StringTracker {
 public:
  void StartLine() { state_ = state_ == State::kNowhere ? state_ : State::kStart; }
  // Returns true when the quote begins a string.
  bool Begin() {
    const bool begins = state_ == State::kValue;
    state_ = begins ? State::kDone : State::kNowhere;
    return begins;
  }
  bool MayComment() const { return state_ != State::kNowhere; }
  // Advances over a character outside strings and comments.
  void Pass(char c) {
    const bool is_key =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
    if (c == ' ' || c == '\t' || c == '\r' || state_ == State::kNowhere) {
      return;
    }
    if (is_key && state_ <= State::kKey) {
      state_ = State::kKey;
    } else if (c == '=' && state_ == State::kKey) {
      state_ = State::kValue;
    } else {
      state_ = state_ == State::kValue && (c == '[' || c == '{') ? State::kNowhere : State::kOther;
    }
  }

 private:
  // kNowhere holds for the rest of the file.
  enum class State : uint8_t { kStart, kKey, kValue, kDone, kOther, kNowhere };
  State state_ = State::kStart;
};

}  // namespace

size_t FindBadTomlCharacter(std::string_view text) {
  char inside = 0;  // The quote or '#' that began the current string or comment; 0 outside.
  StringTracker places;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<uint8_t>(c);
    if ((byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7f || (byte > 0x7f && inside == 0)) {
      return i;
    }
    if (c == '\n') {
      inside = 0;
      places.StartLine();
    } else if (inside == 0 && (c == '"' || c == '\'')) {
      inside = places.Begin() ? c : '\0';
    } else if (inside == 0) {
      inside = c == '#' && places.MayComment() ? c : '\0';
      places.Pass(c);
    } else if (inside == '"' && c == '\\' && i + 1 < text.size() && static_cast<uint8_t>(text[i + 1]) >= 0x20) {
      ++i;
    } else if (inside == c && c != '#') {
      inside = 0;
    }
  }
  return text.size();
}

}  // namespace hpvm
