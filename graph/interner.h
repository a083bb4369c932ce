// SPDX-License-Identifier: Apache-2.0
// Maps strings to small dense numbers, in order of first appearance. The hash is keyed by the process's secret, so
// that a tenant cannot choose colliding names.
#ifndef HPVMD_GRAPH_INTERNER_H_
#define HPVMD_GRAPH_INTERNER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hpvm::graph {

class Interner {
 public:
  Interner();
  uint32_t Intern(std::string_view text);
  std::optional<uint32_t> Find(std::string_view text) const;
  // Valid until the next Intern.
  std::string_view Text(uint32_t id) const { return {chars_.data() + entries_[id].offset, entries_[id].bytes}; }
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }
  // Returns the number of slots examined so far, for tests of linear time.
  uint64_t probes() const { return probes_; }

 private:
  struct Entry {
    uint64_t offset;
    uint32_t bytes;
    uint32_t hash;
  };
  // Returns the slot that holds `text`, or the free slot for it.
  size_t SlotOf(std::string_view text, uint32_t hash) const;
  void Grow();

  uint64_t seed_;
  std::string chars_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // Entry index + 1; 0 when free. The size is a power of two, and at most half is
                                 // used.
  mutable uint64_t probes_ = 0;
};

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_INTERNER_H_
