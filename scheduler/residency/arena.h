// SPDX-License-Identifier: Apache-2.0
// Arena allocates offsets in the memory of one space, in the order of the plan, by best fit.
//
// Freed memory can be held back for a while, so that launches planned concurrently with its last user do not have to
// wait for it. It is used anyway before the arena refuses.
#ifndef HPVMD_SCHEDULER_RESIDENCY_ARENA_H_
#define HPVMD_SCHEDULER_RESIDENCY_ARENA_H_

#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "base/clock.h"

namespace hpvm::scheduler {

class Arena {
 public:
  static constexpr uint64_t kAlignment = 512;
  // No allocation lies beyond `bytes_max` or crosses a multiple of `piece_bytes_max`.
  explicit Arena(uint64_t bytes_max = ~uint64_t{0}, uint64_t piece_bytes_max = ~uint64_t{0});

  // Returns a multiple of kAlignment, or nullopt when there is no room. `start` is when the new user begins; memory in
  // use until later is taken only when there is no other. `bytes` is at least one.
  std::optional<uint64_t> Allocate(uint64_t bytes, Duration start);
  // `until` is when its last user ends.
  void Free(uint64_t offset, uint64_t bytes, Duration until);
  // Makes all held-back memory available for allocation.
  void ReleaseHeld();
  // Highest offset that was ever in use.
  uint64_t bytes_high() const { return high_; }
  uint64_t bytes_max() const { return bytes_max_; }
  // The largest allocation that could ever fit.
  uint64_t storage_bytes_max() const { return bytes_max_ < piece_bytes_ ? bytes_max_ : piece_bytes_; }
  static uint64_t Round(uint64_t bytes);
  // Bounds of the piece that contains an offset.
  uint64_t PieceBegin(uint64_t offset) const { return offset / piece_bytes_ * piece_bytes_; }
  uint64_t PieceEnd(uint64_t offset) const { return PieceBegin(offset) + piece_bytes_; }

 private:
  struct Held {
    Duration until;
    uint64_t offset, bytes;
    friend bool operator<(const Held& a, const Held& b) { return a.until > b.until; }
  };
  std::optional<uint64_t> FromHoles(uint64_t bytes);
  std::optional<uint64_t> Grow(uint64_t bytes);
  void AddHole(uint64_t offset, uint64_t bytes);
  void EraseHole(std::map<uint64_t, uint64_t>::iterator hole);

  uint64_t bytes_max_, piece_bytes_;
  uint64_t high_ = 0;
  std::map<uint64_t, uint64_t> holes_;               // Keyed by offset; no hole crosses a piece's end.
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // (bytes, offset).
  std::priority_queue<Held> held_;                   // Earliest first.
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_ARENA_H_
