// SPDX-License-Identifier: Apache-2.0
// Distance between two short words, for "did you mean" suggestions.
#ifndef HPVMD_BASE_EDIT_DISTANCE_H_
#define HPVMD_BASE_EDIT_DISTANCE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hpvm {

// Returns the number of insertions, deletions and replacements of bytes that turn `a` into `b`; swapping two neighbours
// counts as one (optimal string alignment). Time and memory are proportional to the product of the lengths, which
// callers bound.
size_t EditDistance(std::string_view a, std::string_view b);

// NearMiss finds the candidate nearest to a misspelt word: at most `edits_max` edits, and half of the word must survive
// ("in" is no misspelling of "of"). It examines at most 1,000 candidates of at most 64 bytes. Candidates are passed one
// at a time to Offer, so that callers need not build a list.
class NearMiss {
 public:
  explicit NearMiss(std::string_view word, size_t edits_max = 2) : word_(word), best_distance_(edits_max + 1) {}
  void Offer(std::string_view candidate);
  const std::string& best() const { return best_; }  // Empty when no candidate is near.

 private:
  std::string word_, best_;
  size_t best_distance_;
  uint32_t offers_left_ = 1000;
};

}  // namespace hpvm

#endif  // HPVMD_BASE_EDIT_DISTANCE_H_
