// SPDX-License-Identifier: Apache-2.0
// Faults collects the faults of a document, up to a limit, and counts the rest. Messages are built only while there is
// room, so that a document with a million faults costs little more than one with a hundred.
#ifndef HPVMD_GRAPH_DIAGNOSTIC_SINK_H_
#define HPVMD_GRAPH_DIAGNOSTIC_SINK_H_

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/diagnostic.h"
#include "base/edit_distance.h"

namespace hpvm::graph {

inline void AppendPart(std::string& text, std::string_view part) { text += part; }
inline void AppendPart(std::string& text, std::integral auto part) { text += std::to_string(part); }

// Concatenates strings and integers.
template <typename... Parts>
std::string Cat(const Parts&... parts) {
  std::string text;
  (AppendPart(text, parts), ...);
  return text;
}

// Returns `text` between double quotes for a message: control characters and malformed UTF-8 are escaped, and at most
// 80 bytes shown.
std::string Quoted(std::string_view text);

// Escapes "~" and "/" in one token of a JSON pointer (RFC 6901).
void AppendPointerToken(std::string& pointer, std::string_view token);

class DiagnosticSink {
 public:
  explicit DiagnosticSink(uint32_t listed_max) : listed_max_(listed_max) {}

  // Counts one fault; returns true when there is room to list it with Add.
  bool AdmitError() { return Admit(errors_); }
  bool AdmitWarning() { return Admit(warnings_); }
  void Add(Diagnostic diagnostic) { listed_.push_back(std::move(diagnostic)); }

  // Number of listed diagnostics.
  size_t listed() const { return listed_.size(); }
  // Replaces each place by `place_of(place)`, in all listed diagnostics but the first `count`.
  template <typename F>
  void Translate(size_t count, F place_of) {
    for (; count < listed_.size(); ++count) {
      listed_[count].place = place_of(listed_[count].place);
    }
  }

  // Removes duplicates that follow each other in the list.
  void Unite() {
    const auto is_same = [](const Diagnostic& a, const Diagnostic& b) {
      return a.place == b.place && a.message == b.message;
    };
    listed_.erase(std::unique(listed_.begin(), listed_.end(), is_same), listed_.end());
  }

  bool has_errors() const { return errors_ > 0; }
  uint64_t errors() const { return errors_; }
  // Returns the listed faults, followed by one line that counts the rest, and clears the list.
  Diagnostics Take();

 private:
  bool Admit(uint64_t& counter) { return ++counter <= listed_max_; }

  const uint32_t listed_max_;
  uint64_t errors_ = 0;
  uint64_t warnings_ = 0;
  Diagnostics listed_;
};

class NearMiss : public hpvm::NearMiss {
 public:
  using hpvm::NearMiss::NearMiss;
  // Returns `; did you mean "x"?`, or a full stop.
  std::string Ending() const;
};

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_DIAGNOSTIC_SINK_H_
