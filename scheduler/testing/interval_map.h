// SPDX-License-Identifier: Apache-2.0
// IntervalMap stores a value for each byte of a memory, by ranges.
#ifndef HPVMD_SCHEDULER_TESTING_INTERVAL_MAP_H_
#define HPVMD_SCHEDULER_TESTING_INTERVAL_MAP_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "scheduler/task.h"

namespace hpvm::scheduler {

// Bytes that were never assigned have T().
template <typename T>
class IntervalMap {
 public:
  // Calls `change(T&)` for the pieces of `range`, each of which has one value before the call.
  template <typename F>
  void Change(ByteRange range, F change) {
    if (range.is_empty()) {
      return;
    }
    Split(range.begin);
    Split(range.end);
    uint64_t at = range.begin;
    auto it = pieces_.lower_bound(at);
    while (at < range.end) {
      if (it == pieces_.end() || it->first > at) {
        const uint64_t end = it == pieces_.end() ? range.end : std::min(it->first, range.end);
        it = pieces_.emplace_hint(it, at, std::pair(end, T()));
      }
      change(it->second.second);
      at = it->second.first;
      ++it;
    }
  }

  void Assign(ByteRange range, const T& value) {
    if (range.is_empty()) {
      return;
    }
    Split(range.begin);
    Split(range.end);
    pieces_.erase(pieces_.lower_bound(range.begin), pieces_.lower_bound(range.end));
    pieces_.emplace(range.begin, std::pair(range.end, value));
  }

  // Calls `visit(ByteRange, const T&)` in order, for all of `range`.
  template <typename F>
  void Visit(ByteRange range, F visit) const {
    const T unknown{};
    uint64_t at = range.begin;
    auto it = pieces_.upper_bound(at);
    if (it != pieces_.begin() && std::prev(it)->second.first > at) {
      --it;
    }
    while (at < range.end) {
      if (it == pieces_.end() || it->first > at) {
        const uint64_t end = it == pieces_.end() ? range.end : std::min(it->first, range.end);
        visit(ByteRange{at, end}, unknown);
        at = end;
        continue;
      }
      const uint64_t end = std::min(it->second.first, range.end);
      visit(ByteRange{at, end}, it->second.second);
      at = end;
      ++it;
    }
  }

 private:
  void Split(uint64_t at) {
    auto it = pieces_.lower_bound(at);
    if (it == pieces_.begin()) {
      return;
    }
    --it;
    if (it->second.first > at) {
      const std::pair<uint64_t, T> tail = it->second;
      it->second.first = at;
      pieces_.emplace(at, tail);
    }
  }

  std::map<uint64_t, std::pair<uint64_t, T>> pieces_;  // Keyed by first byte: end and value.
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_INTERVAL_MAP_H_
