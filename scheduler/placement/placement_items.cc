// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement/placement_items.h"

#include <algorithm>
#include <cstddef>

namespace hpvm::scheduler::placing {
namespace {

// A value with more ranges is moved as a whole.
constexpr size_t kRangesMax = 256;

struct Touch {
  uint32_t job;
  uint32_t port;
  ByteRange read, written;
};

class ItemCutter {
 public:
  ItemCutter(const PlacementInput& input, const std::vector<bool>& is_part, Problem& problem)
      : input_(input), flat_(input.flat), p_(problem), bounds_(flat_.values.size()), items_(flat_.values.size()) {
    FindTouches(is_part);
    FindBounds();
  }

  void Run() {
    for (uint32_t v = 0; v < flat_.values.size(); ++v) {
      if (!flat_.values[v].producer.valid()) {
        for (size_t r = 0; r + 1 < bounds_[v].size(); ++r) {
          items_[v].push_back(AddItem(v, r, kNone));
        }
      }
    }
    size_t next = 0;
    for (uint32_t job = 0; job < p_.jobs.size();) {
      // The parts of a node read before any of them writes: they are siblings.
      const uint32_t node = p_.jobs[job].node;
      uint32_t end = job;
      size_t touch = next;
      for (; end < p_.jobs.size() && p_.jobs[end].node == node; ++end) {
        for (; touch < touches_.size() && touches_[touch].job == end; ++touch) {
          AddReads(touches_[touch]);
        }
        p_.reads.Close();
      }
      AddWrites(next, touch, job, end);
      next = touch;
      job = end;
    }
    for (const graph::FlatValueId value : flat_.outputs) {
      if (value.valid()) {
        for (const uint32_t item : items_[value.index]) {
          p_.items[item].is_returned = true;
        }
      }
    }
  }

 private:
  uint64_t BytesOf(graph::FlatValueId value) const { return flat_.values[value.index].bytes; }

  void FindTouches(const std::vector<bool>& is_part) {
    for (uint32_t job = 0; job < p_.jobs.size(); ++job) {
      const auto [begin, end] = PortsOf(flat_, p_.jobs[job].node);
      for (uint32_t port = begin; port < end; ++port) {
        const graph::FlatPort& p = flat_.ports[port];
        const ByteRange whole{0, BytesOf(p.out.valid() ? p.out : p.in)};
        Touch touch{job, port, p.in.valid() ? whole : ByteRange(), p.out.valid() ? whole : ByteRange()};
        if (is_part[job]) {
          const Option& option = p_.OptionsOf(job)[0];
          const PortAccess access =
              input_.accesses->Of(graph::FlatNodeId(p_.jobs[job].node), option.choice, p_.boxes[job], port);
          touch.read = Clip(access.read, whole);
          touch.written = Clip(access.written, whole);
          // Bytes that the writer may leave unchanged are read, unless there was no earlier value.
          if (!access.overwrites && p.in.valid() && !touch.written.is_empty()) {
            touch.read = touch.read.is_empty() ? touch.written
                                               : ByteRange{std::min(touch.read.begin, touch.written.begin),
                                                           std::max(touch.read.end, touch.written.end)};
          }
        }
        touches_.push_back(touch);
      }
    }
  }

  static ByteRange Clip(const ByteRange& range, const ByteRange& whole) {
    return {std::min(range.begin, whole.end), std::min(range.end, whole.end)};
  }

  // A value's bounds are those of its readers and writers, and those of the values it is updated from and to, so that a
  // range is one item from one update to the next.
  void FindBounds() {
    for (uint32_t v = 0; v < flat_.values.size(); ++v) {
      bounds_[v] = {0, flat_.values[v].bytes};
    }
    const auto add = [&](graph::FlatValueId value, const ByteRange& range) {
      if (value.valid() && !range.is_empty()) {
        bounds_[value.index].insert(bounds_[value.index].end(), {range.begin, range.end});
      }
    };
    for (const Touch& touch : touches_) {
      add(flat_.ports[touch.port].in, touch.read);
      add(flat_.ports[touch.port].out, touch.written);
    }
    for (const bool backwards : {true, false}) {
      for (size_t i = 0; i < touches_.size(); ++i) {
        const graph::FlatPort& p = flat_.ports[touches_[backwards ? touches_.size() - 1 - i : i].port];
        if (p.in.valid() && p.out.valid()) {
          Tidy(bounds_[p.in.index]);
          Tidy(bounds_[p.out.index]);
          const std::vector<uint64_t> more = backwards ? bounds_[p.out.index] : bounds_[p.in.index];
          std::vector<uint64_t>& target = backwards ? bounds_[p.in.index] : bounds_[p.out.index];
          target.insert(target.end(), more.begin(), more.end());
          Tidy(target);
        }
      }
    }
    for (std::vector<uint64_t>& bounds : bounds_) {
      Tidy(bounds);
    }
  }

  static void Tidy(std::vector<uint64_t>& bounds) {
    std::sort(bounds.begin(), bounds.end());
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    if (bounds.size() > kRangesMax) {
      bounds = {bounds.front(), bounds.back()};
    }
    if (bounds.size() == 1) {
      bounds.push_back(bounds[0]);  // A value without bytes is one item.
    }
  }

  uint32_t AddItem(uint32_t value, size_t range, uint32_t producer) {
    p_.items.push_back({.value = graph::FlatValueId(value),
                        .range = {bounds_[value][range], bounds_[value][range + 1]},
                        .producer = producer});
    return static_cast<uint32_t>(p_.items.size()) - 1;
  }

  static bool Overlap(const ByteRange& a, const ByteRange& b) { return (a.begin < b.end && b.begin < a.end) || a == b; }

  void AddReads(const Touch& touch) {
    const graph::FlatValueId in = flat_.ports[touch.port].in;
    if (!in.valid()) {
      return;
    }
    for (const uint32_t item : items_[in.index]) {
      if (Overlap(p_.items[item].range, touch.read)) {
        p_.reads.all.push_back(item);
      }
    }
  }

  void AddWrites(size_t first, size_t end, uint32_t first_job, uint32_t end_job) {
    std::vector<std::vector<uint32_t>> written(end_job - first_job);
    for (size_t t = first; t < end; ++t) {
      const graph::FlatPort& p = flat_.ports[touches_[t].port];
      if (!p.out.valid() || !items_[p.out.index].empty()) {
        continue;
      }
      const uint32_t value = p.out.index;
      for (size_t r = 0; r + 1 < bounds_[value].size(); ++r) {
        const ByteRange range{bounds_[value][r], bounds_[value][r + 1]};
        uint32_t item = kNone;
        for (size_t o = first; o < end && item == kNone; ++o) {
          if (flat_.ports[touches_[o].port].out == p.out && Overlap(range, touches_[o].written)) {
            item = AddItem(value, r, touches_[o].job);
            written[touches_[o].job - first_job].push_back(item);
          }
        }
        if (item == kNone) {
          item = Old(p.in, range);
        }
        items_[value].push_back(item == kNone ? AddItem(value, r, kNone) : item);
      }
    }
    for (const std::vector<uint32_t>& list : written) {
      p_.writes.all.insert(p_.writes.all.end(), list.begin(), list.end());
      p_.writes.Close();
    }
  }

  // Returns the item that occupied the range before.
  uint32_t Old(graph::FlatValueId value, const ByteRange& range) const {
    if (value.valid()) {
      for (const uint32_t item : items_[value.index]) {
        if (p_.items[item].range.begin <= range.begin && range.end <= p_.items[item].range.end) {
          return item;
        }
      }
    }
    return kNone;
  }

  const PlacementInput& input_;
  const graph::FlatGraph& flat_;
  Problem& p_;
  std::vector<Touch> touches_;                 // Indexed by job.
  std::vector<std::vector<uint64_t>> bounds_;  // Indexed by value: the boundaries of ranges.
  std::vector<std::vector<uint32_t>> items_;   // Indexed by value, by range.
};

}  // namespace

void CutItems(const PlacementInput& input, const std::vector<bool>& is_part, Problem& problem) {
  ItemCutter(input, is_part, problem).Run();
}

}  // namespace hpvm::scheduler::placing
