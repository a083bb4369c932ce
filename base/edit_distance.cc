// SPDX-License-Identifier: Apache-2.0
#include "base/edit_distance.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace hpvm {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::array<std::vector<size_t>, 3> rows;
  rows.fill(std::vector<size_t>(b.size() + 1));
  std::iota(rows[0].begin(), rows[0].end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    std::vector<size_t>& row = rows[i % 3];
    const std::vector<size_t>& above = rows[(i + 2) % 3];
    const std::vector<size_t>& above_that = rows[(i + 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1), above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], above_that[j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

void NearMiss::Offer(std::string_view candidate) {
  constexpr size_t kBytesMax = 64;
  if (offers_left_ == 0 || word_.size() > kBytesMax || candidate.size() > kBytesMax) {
    return;
  }
  --offers_left_;
  const size_t distance = EditDistance(word_, candidate);
  if (distance < best_distance_ && 2 * distance <= std::max(word_.size(), candidate.size())) {
    best_distance_ = distance;
    best_ = candidate;
  }
}

}  // namespace hpvm
