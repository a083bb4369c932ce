// SPDX-License-Identifier: Apache-2.0
// Method: one pass over the jobs from the last to the first, and one over the edges of each.
// Invariants: jobs are in an order that respects dependencies, so the ranks of a job's readers are final when the
// job is reached. Rests and PathBound take each job's least time and no transfers; they never exceed the true
// values, so a search that stops at them loses nothing. Upward ranks are capped at kForever, so sums do not
// overflow.
// An edge costs at most the product of the numbers of options of its two jobs; consecutive readers with one set of
// options share the mean transfer time.
// Source: HEFT's upward rank and PEFT's optimistic cost table (see placement.h).
#include "scheduler/placement/placement_rank.h"

#include <algorithm>

namespace hpvm::scheduler::placing {
namespace {

int64_t TimeOf(std::span<const Option> options, Take take) {
  int64_t sum = 0, least = kForever;
  for (const Option& option : options) {
    sum += option.best_ns();
    least = std::min(least, option.best_ns());
  }
  return take == Take::kMean ? sum / static_cast<int64_t>(options.size()) : least;
}

int64_t MeanMove(const Problem& p, uint32_t size_class, std::span<const Option> from, std::span<const Option> to) {
  if (from.size() == 1 && to.size() == 1) {
    return p.MoveNs(size_class, from[0].space, to[0].space);
  }
  int64_t sum = 0;
  for (const Option& a : from) {
    for (const Option& b : to) {
      sum += p.MoveNs(size_class, a.space, b.space);
    }
  }
  return sum / static_cast<int64_t>(from.size() * to.size());
}

int64_t Capped(int64_t ns) { return std::min(ns, kForever); }

}  // namespace

std::vector<int64_t> UpwardRanks(const Problem& p, Take take, bool with_transfers) {
  std::vector<int64_t> ranks(p.jobs.size());
  for (uint32_t job = static_cast<uint32_t>(p.jobs.size()); job-- > 0;) {
    int64_t after = 0;
    for (const uint32_t item : p.writes[job]) {
      const uint32_t size = p.items[item].size_class;
      OptionSet last{kNone, 0};
      int64_t move = 0;
      for (const uint32_t reader : p.readers[item]) {
        if (with_transfers && p.jobs[reader].options.first != last.first) {
          last = p.jobs[reader].options;
          move = MeanMove(p, size, p.OptionsOf(job), p.OptionsOf(reader));
        }
        after = std::max(after, ranks[reader] + move);
      }
    }
    for (const uint32_t next : p.after[job]) {
      after = std::max(after, ranks[next]);
    }
    ranks[job] = Capped(after + TimeOf(p.OptionsOf(job), take));
  }
  return ranks;
}

std::vector<int64_t> OptimisticCosts(const Problem& p) {
  const uint32_t spaces = p.resources->spaces;
  std::vector<int64_t> costs(p.jobs.size() * spaces);
  for (uint32_t job = static_cast<uint32_t>(p.jobs.size()); job-- > 0;) {
    int64_t* row = &costs[size_t{job} * spaces];
    for (const uint32_t item : p.writes[job]) {
      const uint32_t size = p.items[item].size_class;
      for (const Option& own : p.OptionsOf(job)) {
        const SpaceIndex space = own.space;
        if (p.items[item].is_returned) {
          row[space] = std::max(row[space], p.down_ns[p.items[item].returned_class][space]);
        }
        for (const uint32_t reader : p.readers[item]) {
          int64_t best = kForever;
          for (const Option& option : p.OptionsOf(reader)) {
            best = std::min(best, costs[size_t{reader} * spaces + option.space] + option.best_ns() +
                                      p.MoveNs(size, space, option.space));
          }
          row[space] = std::max(row[space], best);
        }
      }
    }
  }
  return costs;
}

std::vector<int64_t> OptimisticRanks(const Problem& p, const std::vector<int64_t>& costs, bool own) {
  std::vector<int64_t> ranks(p.jobs.size());
  for (uint32_t job = 0; job < p.jobs.size(); ++job) {
    const std::span<const Option> options = p.OptionsOf(job);
    for (const Option& option : options) {
      ranks[job] += costs[size_t{job} * p.resources->spaces + option.space] + (own ? option.best_ns() : 0);
    }
    ranks[job] /= static_cast<int64_t>(options.size());
  }
  return ranks;
}

std::vector<int64_t> Rests(const Problem& p) {
  std::vector<int64_t> rests = UpwardRanks(p, Take::kLeast, false);
  for (uint32_t job = 0; job < p.jobs.size(); ++job) {
    rests[job] -= TimeOf(p.OptionsOf(job), Take::kLeast);
  }
  return rests;
}

int64_t PathBound(const Problem& p) {
  int64_t bound = 0;
  for (const int64_t rank : UpwardRanks(p, Take::kLeast, false)) {
    bound = std::max(bound, rank);
  }
  return bound;
}

}  // namespace hpvm::scheduler::placing
