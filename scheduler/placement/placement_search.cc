// SPDX-License-Identifier: Apache-2.0
// Method: every device that can run all jobs gives a plan in the graph's order; then list schedules by four ranks
// (two of HEFT, two of PEFT) are decoded with and without the optimistic cost table and with each preference of
// width; then hill climbing changes one to three options or priorities at a time, three times in four on the
// critical chain.
// Invariants: best_ is the shortest complete plan so far. The climber's position never gets longer: Adopt takes
// equal or shorter plans, Undo restores the rest. A plan of several devices must beat the best of one device by 2 %
// (15 % when its options include estimates).
// The search ends at the lower bound of the longest path, when the effort is spent (after at least four attempts),
// or after 20 changes per job without a better plan. An attempt is abandoned as soon as it cannot be the best.
// Source: placement.h names the papers of the ranks.
#include "scheduler/placement/placement_search.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "scheduler/placement/placement_rank.h"

namespace hpvm::scheduler::placing {
namespace {

// Above this many jobs only a few attempts are made, and few gaps are remembered.
constexpr size_t kLargeJobs = 20'000;
constexpr size_t kLargeGaps = 8;
constexpr uint64_t kAttemptsMin = 4;
// The search ends after this many changes per job without a better plan.
constexpr uint64_t kPatience = 20;
// Largest ratio of a multi-device plan's time to a single-device plan's: each change of device has costs that the model
// does not include, and estimates are wrong by factors.
constexpr double kSeveralGain = 0.98, kSeveralGainEstimated = 0.85;

class Searcher {
 public:
  Searcher(const Problem& problem, const SearchLimits& limits, Best& best)
      : p_(problem), best_(best), decoder_(problem), rng_(limits.seed), effort_(limits.effort) {
    is_large_ = p_.jobs.size() > kLargeJobs;
    best_.plan.makespan = kForever;
  }

  void Run() {
    TryOneDevice();
    const int64_t alone = best_.plan.makespan;
    if (!HasChoice()) {
      if (alone == kForever) {
        Try({.priority = {}});
      }
      return;
    }
    const Best one = alone == kForever ? Best() : best_;
    bound_ = PathBound(p_);
    TryRanks();
    if (!is_large_ && !IsDone()) {
      LookAround();
    }
    const double gain = HasEstimates() ? kSeveralGainEstimated : kSeveralGain;
    if (alone != kForever && static_cast<double>(best_.plan.makespan) > gain * static_cast<double>(alone)) {
      best_ = one;
    }
  }

 private:
  bool HasChoice() const {
    return std::any_of(p_.jobs.begin(), p_.jobs.end(), [&](const PlacedTask& job) {
      return job.options.count > 1 || p_.options->List(job.options)[0].lane_ns != kForever ||
             p_.options->List(job.options)[0].silicon != p_.OptionsOf(0)[0].silicon;
    });
  }
  bool HasEstimates() const {
    for (uint32_t job = 0; job < p_.jobs.size(); ++job) {
      if (p_.OptionsOf(job)[best_.plan.jobs[job].option].is_estimate) {
        return true;
      }
    }
    return false;
  }
  bool IsDone() const { return best_.plan.makespan <= bound_; }
  bool IsSpent() const { return spent_ >= effort_ && attempts_ >= kAttemptsMin; }

  // Returns true when the guide makes a better plan than any before.
  bool Try(const Guide& guide) { return Try(guide, best_.plan.makespan); }

  // Returns true when it makes a plan, plan_, that takes less than `below`, which is at least the best makespan.
  bool Try(Guide guide, int64_t below) {
    guide.gaps_max = is_large_ ? kLargeGaps : guide.gaps_max;
    guide.stop_ns = below;
    guide.rest = rests_;
    decoder_.Decode(guide, plan_);
    spent_ += plan_.planned;
    ++attempts_;
    if (plan_.makespan < best_.plan.makespan) {
      best_.plan = plan_;
      best_.priority.assign(guide.priority.begin(), guide.priority.end());
      best_.width = guide.width;
      best_.gaps_max = guide.gaps_max;
    }
    return plan_.makespan < below;
  }

  // Tries each device that could run everything, in the graph's own order.
  void TryOneDevice() {
    std::vector<uint32_t> pinned(p_.jobs.size());
    for (DeviceIndex device = 0; device < p_.resources->of_device.size(); ++device) {
      bool runs_all = true;
      for (uint32_t job = 0; job < p_.jobs.size() && runs_all; ++job) {
        const std::span<const Option> options = p_.OptionsOf(job);
        const auto at =
            std::find_if(options.begin(), options.end(), [&](const Option& o) { return o.device == device; });
        runs_all = at != options.end();
        pinned[job] = static_cast<uint32_t>(at - options.begin());
      }
      if (runs_all) {
        Try({.priority = {}, .pinned = pinned});
      }
    }
  }

  void TryRanks() {
    rests_ = Rests(p_);
    const std::vector<int64_t> table = OptimisticCosts(p_);
    const bool has_widths = std::any_of(p_.jobs.begin(), p_.jobs.end(), [&](const PlacedTask& job) {
      const std::span<const Option> options = p_.options->List(job.options);
      return std::any_of(options.begin(), options.end(),
                         [](const Option& o) { return o.all_ns != kForever && o.lane_ns != kForever; });
    });
    constexpr int kRanks = 4;
    for (int rank = 0; rank < kRanks && !IsDone(); ++rank) {
      const std::vector<int64_t> priority = Rank(rank, table);
      for (const bool looks_ahead : {false, true}) {
        for (const Width width : {Width::kEither, Width::kLane, Width::kAll}) {
          if ((width == Width::kEither || has_widths) && !IsSpent()) {
            const std::span<const int64_t> ahead = std::span(table).first(looks_ahead ? table.size() : 0);
            Try({.priority = priority, .ahead = ahead, .width = width});
          }
        }
      }
      if (is_large_ || IsSpent()) {
        break;
      }
    }
  }

  std::vector<int64_t> Rank(int which, const std::vector<int64_t>& table) const {
    switch (which) {
      case 0:
        return UpwardRanks(p_, Take::kMean);
      case 1:
        return OptimisticRanks(p_, table, true);
      case 2:
        return UpwardRanks(p_, Take::kLeast);
      default:
        return OptimisticRanks(p_, table, false);
    }
  }

  // Local search: changes options and priorities near the best plan, preferring jobs on its critical chain. The search
  // continues from a change that makes nothing worse.
  void LookAround() {
    priority_ = best_.priority.empty() ? UpwardRanks(p_, Take::kMean) : best_.priority;
    pinned_.resize(p_.jobs.size());
    plan_ = best_.plan;
    Adopt();
    const int64_t reach = *std::max_element(priority_.begin(), priority_.end());
    const uint64_t patience = kPatience + kPatience * p_.jobs.size();
    const Width width = best_.width;
    for (uint64_t since = 0; since < patience && !IsSpent() && !IsDone(); ++since) {
      Change(reach);
      const int64_t before = best_.plan.makespan;
      if (Try({.priority = priority_, .pinned = pinned_, .width = width}, before + 1)) {
        since = plan_.makespan < before ? 0 : since;
        Adopt();
      } else {
        Undo();
      }
    }
  }

  void Change(int64_t reach) {
    old_pins_.clear();
    old_priorities_.clear();
    for (uint64_t change = 1 + rng_.Below(3); change-- > 0;) {
      const uint32_t job = rng_.Below(4) != 0 && !chain_.empty() ? chain_[rng_.Below(chain_.size())]
                                                                 : static_cast<uint32_t>(rng_.Below(p_.jobs.size()));
      const uint32_t options = p_.jobs[job].options.count;
      if (options > 1 && rng_.Below(2) == 0) {
        old_pins_.emplace_back(job, pinned_[job]);
        const uint32_t option = static_cast<uint32_t>(rng_.Below(options + 1));
        pinned_[job] = option == options ? kNone : option;
      } else {
        old_priorities_.emplace_back(job, priority_[job]);
        const int64_t by = static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(reach / 4 + 2)));
        priority_[job] += rng_.Below(3) == 0 ? -by : by;
      }
    }
  }

  void Undo() {
    for (size_t i = old_pins_.size(); i-- > 0;) {
      pinned_[old_pins_[i].first] = old_pins_[i].second;
    }
    for (size_t i = old_priorities_.size(); i-- > 0;) {
      priority_[old_priorities_[i].first] = old_priorities_[i].second;
    }
  }

  // Continues the search from plan_.
  void Adopt() {
    for (uint32_t job = 0; job < p_.jobs.size(); ++job) {
      pinned_[job] = plan_.jobs[job].option;
    }
    FindChain();
  }

  // Finds the critical chain: goes back from the job that ends last, at each job to the one it waited for, which is the
  // preceding job on its silicon or the last job whose results it reads.
  void FindChain() {
    chain_.clear();
    const std::vector<Planned>& jobs = plan_.jobs;
    by_end_.clear();
    uint32_t last = 0;
    for (uint32_t job = 0; job < jobs.size(); ++job) {
      by_end_.emplace_back(jobs[job].end, job);
      last = jobs[job].end > jobs[last].end ? job : last;
    }
    std::sort(by_end_.begin(), by_end_.end());
    while (last != kNone) {
      chain_.push_back(last);
      const uint32_t silicon = p_.OptionsOf(last)[jobs[last].option].silicon;
      uint32_t before = kNone;
      for (const uint32_t item : p_.reads[last]) {
        const uint32_t producer = p_.items[item].producer;
        if (producer != kNone && (before == kNone || jobs[producer].end > jobs[before].end)) {
          before = producer;
        }
      }
      if (before == kNone || jobs[before].end < jobs[last].start) {
        for (auto at = std::lower_bound(by_end_.begin(), by_end_.end(), std::pair(jobs[last].start, uint32_t{0}));
             at != by_end_.end() && at->first == jobs[last].start; ++at) {
          if (p_.OptionsOf(at->second)[jobs[at->second].option].silicon == silicon) {
            before = at->second;
          }
        }
      }
      last = before;
    }
  }

  const Problem& p_;
  Best& best_;
  Decoder decoder_;
  DecodedPlan plan_;
  SeededRng rng_;
  const uint64_t effort_;
  uint64_t spent_ = 0, attempts_ = 0;
  int64_t bound_ = 0;
  bool is_large_ = false;
  std::vector<int64_t> rests_;
  // State of the local search: the current position, and the latest changes.
  std::vector<int64_t> priority_;
  std::vector<uint32_t> pinned_;
  std::vector<std::pair<uint32_t, uint32_t>> old_pins_;
  std::vector<std::pair<uint32_t, int64_t>> old_priorities_;
  std::vector<uint32_t> chain_;
  std::vector<std::pair<int64_t, uint32_t>> by_end_;
};

}  // namespace

void Search(const Problem& problem, const SearchLimits& limits, Best& best) { Searcher(problem, limits, best).Run(); }

}  // namespace hpvm::scheduler::placing
