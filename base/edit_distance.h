// SPDX-License-Identifier: Apache-2.0
// The distance between two short words, for "did you mean".
#ifndef HPVMD_BASE_EDIT_DISTANCE_H_
#define HPVMD_BASE_EDIT_DISTANCE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hpvm {

// Insertions, deletions and replacements of bytes that make `b` of `a`; two neighbours swapped count as one (optimal
// string alignment). Takes time and memory in proportion to the product of the lengths: callers bound them.
size_t EditDistance(std::string_view a, std::string_view b);

// The candidate nearest to a misspelt word: at most so many edits, and half of the word must survive ("in" is no
// misspelling of "of"). Looks at 1,000 candidates of 64 bytes at most. Takes the next one through Offer, so that
// callers need not gather a list.
class NearMiss {
 public:
  explicit NearMiss(std::string_view word, size_t edits_max = 2) : word_(word), best_distance_(edits_max + 1) {}
  void Offer(std::string_view candidate);
  const std::string& best() const { return best_; }  // Empty: none is near.

 private:
  std::string word_, best_;
  size_t best_distance_;
  uint32_t offers_left_ = 1000;
};

}  // namespace hpvm

#endif  // HPVMD_BASE_EDIT_DISTANCE_H_
