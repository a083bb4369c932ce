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
#include "base/edit_distance.h"

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

class NearMiss : public hpvm::NearMiss {
 public:
  using hpvm::NearMiss::NearMiss;
  // `; did you mean "x"?`, or a full stop.
  std::string Ending() const;
};

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_FAULTS_H_
