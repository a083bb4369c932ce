// SPDX-License-Identifier: Apache-2.0
// Collects what is wrong with a document, up to a cap, and counts the rest. Texts are only built while there is
// room, so that a document with a million faults costs no more than one with a hundred.
#ifndef HPVMD_GRAPH_FAULTS_H_
#define HPVMD_GRAPH_FAULTS_H_

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/diagnostic.h"

namespace hpvm::graph {

inline void AppendPart(std::string& text, std::string_view part) { text += part; }
inline void AppendPart(std::string& text, std::integral auto part) { text += std::to_string(part); }

// Joins strings and integers.
template <typename... Parts>
std::string Cat(const Parts&... parts) {
  std::string text;
  (AppendPart(text, parts), ...);
  return text;
}

// `text` between double quotes, fit for a message: control characters and malformed UTF-8 escaped, at most 80 bytes
// shown.
std::string Quoted(std::string_view text);

// RFC 6901: "~" and "/" in one token of a JSON pointer.
void AppendPointerToken(std::string& pointer, std::string_view token);

class Faults {
 public:
  explicit Faults(uint32_t listed_max) : listed_max_(listed_max) {}

  // Counts one fault; true when there is room to list it with Add.
  bool AdmitError() { return Admit(errors_); }
  bool AdmitWarning() { return Admit(warnings_); }
  void Add(Diagnostic diagnostic) { listed_.push_back(std::move(diagnostic)); }

  bool has_errors() const { return errors_ > 0; }
  uint64_t errors() const { return errors_; }
  // The listed faults, then one line that counts the rest. Leaves nothing behind.
  Diagnostics Take();

 private:
  bool Admit(uint64_t& counter) { return ++counter <= listed_max_; }

  const uint32_t listed_max_;
  uint64_t errors_ = 0;
  uint64_t warnings_ = 0;
  Diagnostics listed_;
};

// The candidate nearest to a misspelt `word` (at most two edits, fewer for short words), or an empty view. Takes
// the next candidate through Offer, so that callers need not gather a list.
class NearMiss {
 public:
  explicit NearMiss(std::string_view word) : word_(word) {}
  void Offer(std::string_view candidate);
  // `; did you mean "x"?`, or a full stop.
  std::string Ending() const;
  const std::string& best() const { return best_; }

 private:
  std::string word_;
  std::string best_;
  uint32_t best_distance_ = 3;
  uint32_t offers_left_ = 1000;
};

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_FAULTS_H_
