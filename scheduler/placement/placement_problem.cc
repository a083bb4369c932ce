// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement/placement_problem.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "scheduler/placement/placement_items.h"

namespace hpvm::scheduler::placing {
namespace {

class ProblemBuilder {
 public:
  ProblemBuilder(const PlacementInput& input, const Resources& resources, const Options& options,
                 std::span<const Cut> cuts)
      : input_(input), flat_(input.flat), cuts_(cuts) {
    p_.resources = &resources;
    p_.options = &options;
    std::set<SpaceIndex> spaces;
    for (const Cut& cut : cuts) {
      for (const Part& part : cut.parts) {
        const SpaceIndex space = options.List(part.options)[0].space;
        if (space != kHostSpace && resources.TakesHostCopies(space)) {
          spaces.insert(space);
        }
      }
    }
    p_.links_at_once = std::max<uint32_t>(static_cast<uint32_t>(spaces.size()), 1);
  }

  Problem Build() {
    if (cuts_.empty()) {
      AddWholeNodes();
    } else {
      AddCutNodes();
    }
    AddReaders();
    AddUpdates();
    return std::move(p_);
  }

 private:
  void AddWholeNodes() {
    p_.items.resize(flat_.values.size());
    for (uint32_t v = 0; v < flat_.values.size(); ++v) {
      const graph::FlatValue& value = flat_.values[v];
      p_.items[v] = {.value = graph::FlatValueId(v),
                     .range = {0, value.bytes},
                     .producer = value.producer.valid() ? value.producer.index : kNone};
    }
    MarkReturned();
    FindClasses();
    p_.jobs.resize(flat_.nodes.size());
    p_.reads.begin.reserve(flat_.nodes.size() + 1);
    p_.writes.begin.reserve(flat_.nodes.size() + 1);
    p_.reads.all.reserve(flat_.ports.size());
    p_.writes.all.reserve(flat_.ports.size());
    for (uint32_t node = 0; node < flat_.nodes.size(); ++node) {
      p_.jobs[node] = {.node = node, .options = p_.options->Of(node)};
      const auto [begin, end] = PortsOf(flat_, node);
      for (uint32_t port = begin; port < end; ++port) {
        const graph::FlatPort& p = flat_.ports[port];
        if (p.in.valid()) {
          p_.reads.all.push_back(p.in.index);
        }
        if (p.out.valid()) {
          p_.writes.all.push_back(p.out.index);
        }
      }
      p_.reads.Close();
      p_.writes.Close();
    }
  }

  void AddCutNodes() {
    std::vector<bool> is_part;
    size_t cut = 0;
    for (uint32_t node = 0; node < flat_.nodes.size(); ++node) {
      if (cut < cuts_.size() && cuts_[cut].node == node) {
        for (const Part& part : cuts_[cut].parts) {
          p_.jobs.push_back({.node = node, .options = part.options});
          p_.boxes.push_back(part.box);
          is_part.push_back(cuts_[cut].parts.size() > 1);
        }
        ++cut;
      } else {
        p_.jobs.push_back({.node = node, .options = p_.options->Of(node)});
        p_.boxes.push_back({.count = flat_.nodes[node].extent});
        is_part.push_back(false);
      }
    }
    CutItems(input_, is_part, p_);
    FindClasses();
  }

  void FindClasses() {
    for (Item& item : p_.items) {
      item.size_class = ClassOf(item.range.bytes(), item.producer == kNone ? input_.repeat : 1);
      item.returned_class = item.is_returned ? ClassOf(item.range.bytes(), input_.repeat) : item.size_class;
    }
  }

  void MarkReturned() {
    std::vector<bool> is_output(flat_.values.size());
    for (const graph::FlatValueId value : flat_.outputs) {
      if (value.valid()) {
        is_output[value.index] = true;
      }
    }
    for (Item& item : p_.items) {
      item.is_returned = is_output[item.value.index];
    }
  }

  void AddReaders() {
    std::vector<uint32_t>& begin = p_.readers.begin;
    begin.assign(p_.items.size() + 1, 0);
    for (const uint32_t item : p_.reads.all) {
      ++begin[item + 1];
    }
    for (size_t i = 0; i < p_.items.size(); ++i) {
      begin[i + 1] += begin[i];
    }
    p_.readers.all.resize(p_.reads.all.size());
    std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
    for (uint32_t job = 0; job < p_.jobs.size(); ++job) {
      for (const uint32_t item : p_.reads[job]) {
        p_.readers.all[next[item]++] = job;
      }
    }
  }

  // Memory is updated in place by the last job that touches its value, when that job is a writer; other writers get
  // copies. There is therefore at most one wait per port.
  void AddUpdates() {
    std::vector<std::pair<uint32_t, uint32_t>> pairs;  // The replacing job, and an earlier reader.
    for (uint32_t item = 0; item < p_.items.size(); ++item) {
      const std::span<const uint32_t> readers = p_.readers[item];
      if (readers.size() < 2 || !Replaces(readers.back(), item)) {
        continue;
      }
      for (const uint32_t reader : readers.first(readers.size() - 1)) {
        if (p_.jobs[reader].node != p_.jobs[readers.back()].node) {
          pairs.emplace_back(readers.back(), reader);
        }
      }
    }
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    Fill(pairs, p_.before);
    for (auto& [writer, reader] : pairs) {
      std::swap(writer, reader);
    }
    std::sort(pairs.begin(), pairs.end());
    Fill(pairs, p_.after);
  }

  void Fill(const std::vector<std::pair<uint32_t, uint32_t>>& pairs, Lists& lists) {
    lists.begin.reserve(p_.jobs.size() + 1);
    size_t next = 0;
    for (uint32_t job = 0; job < p_.jobs.size(); ++job) {
      for (; next < pairs.size() && pairs[next].first == job; ++next) {
        lists.all.push_back(pairs[next].second);
      }
      lists.Close();
    }
  }

  bool Replaces(uint32_t job, uint32_t item) const {
    const auto [begin, end] = PortsOf(flat_, p_.jobs[job].node);
    for (uint32_t port = begin; port < end; ++port) {
      const graph::FlatPort& p = flat_.ports[port];
      if (p.in == p_.items[item].value && p.out.valid()) {
        return true;
      }
    }
    return false;
  }

  // Returns the size class of a transfer whose bytes are moved once in `runs` runs.
  uint32_t ClassOf(uint64_t bytes, uint32_t runs) {
    if (last_ != kNone && bytes == last_bytes_ && runs == last_runs_) {
      return last_;
    }
    last_bytes_ = bytes;
    last_runs_ = runs;
    const auto [at, is_new] = classes_[runs == 1].try_emplace(bytes, static_cast<uint32_t>(p_.up_ns.size()));
    last_ = at->second;
    if (is_new) {
      const double host_ns =
          p_.resources->host_ns_per_byte * static_cast<double>(bytes) * static_cast<double>(p_.links_at_once) / runs;
      std::vector<int64_t> up(p_.resources->spaces), down(p_.resources->spaces);
      for (SpaceIndex space = 0; space < p_.resources->spaces && bytes > 0; ++space) {
        if (space != kHostSpace) {
          const int64_t worst_ns = p_.options->worst_ns();
          const int64_t by_host = p_.resources->TakesHostCopies(space) && p_.links_at_once > 1
                                      ? static_cast<int64_t>(std::min(host_ns, 1e18))
                                      : 0;
          const auto of_link = [&](SpaceIndex from, SpaceIndex to) {
            const int64_t ns = input_.costs.Transfer(bytes, from, to).count() / runs;
            return std::clamp<int64_t>(std::max(ns, by_host), 1, worst_ns);
          };
          up[space] = of_link(kHostSpace, space);
          down[space] = of_link(space, kHostSpace);
        }
      }
      p_.host_ns.push_back(static_cast<int64_t>(std::min(host_ns, static_cast<double>(p_.options->worst_ns()))));
      p_.up_ns.push_back(std::move(up));
      p_.down_ns.push_back(std::move(down));
    }
    return last_;
  }

  const PlacementInput& input_;
  const graph::FlatGraph& flat_;
  const std::span<const Cut> cuts_;
  Problem p_;
  std::array<std::unordered_map<uint64_t, uint32_t>, 2>
      classes_;  // Keyed by bytes: for data moved once for all runs, and for all other data.
  uint64_t last_bytes_ = 0;
  uint32_t last_runs_ = 1, last_ = kNone;
};

}  // namespace

Problem MakeProblem(const PlacementInput& input, const Resources& resources, const Options& options,
                    std::span<const Cut> cuts) {
  return ProblemBuilder(input, resources, options, cuts).Build();
}

}  // namespace hpvm::scheduler::placing
