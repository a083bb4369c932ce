// SPDX-License-Identifier: Apache-2.0
#include "base/io/toml_text.h"

#include <cstdint>

namespace hpvm {
namespace {

// Where a string surely begins: as the value of a key that is its line's first. Elsewhere a quote may belong to what
// is no string, like 0'x', and then, as behind an array or a table in a line, nothing is sure any more.
class StringPlaces {
 public:
  void StartLine() { place_ = place_ == Place::kNowhere ? place_ : Place::kStart; }
  // True: the quote begins one.
  bool Begin() {
    const bool begins = place_ == Place::kValue;
    place_ = begins ? Place::kDone : Place::kNowhere;
    return begins;
  }
  bool MayComment() const { return place_ != Place::kNowhere; }
  // Outside of strings and comments.
  void Pass(char c) {
    const bool is_key =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
    if (c == ' ' || c == '\t' || c == '\r' || place_ == Place::kNowhere) {
      return;
    }
    if (is_key && place_ <= Place::kKey) {
      place_ = Place::kKey;
    } else if (c == '=' && place_ == Place::kKey) {
      place_ = Place::kValue;
    } else {
      place_ = place_ == Place::kValue && (c == '[' || c == '{') ? Place::kNowhere : Place::kOther;
    }
  }

 private:
  enum class Place : uint8_t { kStart, kKey, kValue, kDone, kOther, kNowhere };  // The last: in the whole file.
  Place place_ = Place::kStart;
};

}  // namespace

size_t FindBadTomlCharacter(std::string_view text) {
  char inside = 0;  // '"', '\'', '#' or nothing.
  StringPlaces places;
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
