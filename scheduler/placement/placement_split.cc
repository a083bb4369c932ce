// SPDX-License-Identifier: Apache-2.0
// Method: makes sets of cuts, plans the whole graph with each by a short search, and keeps the best. Cuts follow
// the devices' speeds, or have the same places in all launches with weights corrected by when each silicon ended
// (at most four times), or are added greedily to the twelve longest launches, or are equal on one device.
// Invariants: parts of a launch are disjoint, in order, and cover its extent along one dimension; they begin at
// multiples of the launch's grain; SplitIsSafe holds. The kept plan takes at most 95 % of the time of the plan
// without cuts (75 % when parts rest on estimates).
// Bounded by 256 launches, 4000 jobs and 75 sets of cuts; the kept one gets half of the search's effort in
// addition.
#include "scheduler/placement/placement_split.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

namespace hpvm::scheduler::placing {
namespace {

// Largest ratio of the time with cuts to the time without. Estimates are wrong by factors, so a plan based on them has
// to promise more.
constexpr double kGain = 0.95, kGainEstimated = 0.75;
// Largest ratio for a plan with more pieces than the best so far: each piece costs a launch, a copy and an event.
constexpr double kGainPieces = 0.96;
// Shorter launches are not cut: a part costs a launch, and its results cost a synchronisation of devices.
constexpr int64_t kCutNsMin = 50'000;
constexpr int64_t kCutShareMin = 200;  // As a fraction of the makespan: 1 in kCutShareMin.
constexpr size_t kCutNodesMax = 256, kJobsMax = 4'000;
constexpr size_t kSinglesMax = 12;
constexpr int kRefinements = 4;
// Sets of devices that get parts, by speed relative to the fastest: those about as fast, those not far behind, and all.
// Each participating device costs copies, launches and a synchronisation that the model underestimates.
constexpr double kReaches[] = {1.5, 4, std::numeric_limits<double>::infinity()};
// Guesses compare devices of one kind, but not the processor with a GPU: there they are off by factors of ten and more,
// and all devices wait for one that gets a tenth too much. Until all have been measured, only one kind shares a launch,
// and one device of each other kind gets a probe: a part so small that it costs little however long it takes, and
// yields a measurement.
constexpr uint64_t kProbeParts = 256, kProbeTilesMin = 16;
constexpr int64_t kProbeSlowerMax = 16;  // Relative to the fastest, by the guess.
bool IsAlike(const DeviceFacts& a, const DeviceFacts& b) {
  return a.is_gpu == b.is_gpu && a.tier == b.tier && a.compute_units == b.compute_units &&
         a.bytes_per_second == b.bytes_per_second && a.operations_per_second == b.operations_per_second;
}

// Parts smaller than this share cost more than they save; with many devices the minimum is half of an equal share.
constexpr double kShareMin = 0.03;
// Instances that processors run together, by dimension: cuts inside a tile break vectors.
constexpr uint64_t kTile[3] = {64, 16, 1};
constexpr uint64_t kTilesMin = 8;

// A node that may be cut, and the options that may run its parts.
struct Cuttable {
  uint32_t node = 0;
  uint32_t dimension = 0;
  uint64_t grain = 1;
  std::vector<Option> options;  // One per silicon.
  std::vector<Option> probes;   // Options of other kinds, one each, whose times are guesses.
  // Index in `options` of the one in the plan without cuts; kNone when it is another.
  uint32_t planned = kNone;
};

struct Trial {
  std::vector<Cut> cuts;
  Problem problem;
  Best best;
};

struct TryOptions {
  std::map<uint32_t, double>* ends = nullptr;  // Receives the result of FindEnds.
  int64_t* limit_ns = nullptr;                 // Limit of the plan's time; lowered to the time it takes.
  double of_kept = 1;                          // Largest ratio to the time of the kept plan.
};

class Cutter {
 public:
  Cutter(const PlacementInput& input, const Resources& resources, Options& options, Problem& problem, Best& best)
      : input_(input), flat_(input.flat), resources_(resources), options_(options), problem_(problem), best_(best) {}

  std::vector<Whole> Run() {
    if (problem_.jobs.size() > kJobsMax) {
      return {};
    }
    single_ns_ = best_.plan.makespan;
    FindCuttables();
    if (!cuttables_.empty()) {
      TryAll();
    }
    if (kept_.has_value()) {
      for (const Cut& cut : kept_->cuts) {
        whole_[cut.node] = Whole::kNotAsked;
      }
      problem_ = std::move(kept_->problem);
      Best again;
      Search(problem_, {.effort = input_.effort / 2, .seed = input_.seed}, again);
      best_ = again.plan.makespan < kept_->best.plan.makespan ? std::move(again) : std::move(kept_->best);
    }
    return std::move(whole_);
  }

 private:
  void TryAll() {
    size_t before = 0;
    for (const double reach : kReaches) {
      reach_ = reach;
      size_t within = 0;
      for (const Cuttable& cuttable : cuttables_) {
        within += SpeedsOf(cuttable, false).size();
      }
      if (within > std::exchange(before, within)) {
        CutBySpeed();
        CutTogether();
        CutSingles();
      }
    }
    if (input_.pieces_max > 1) {
      CutEqually();
    }
  }

  void FindCuttables() {
    std::vector<std::pair<int64_t, uint32_t>> large;
    for (uint32_t job = 0; job < problem_.jobs.size(); ++job) {
      const int64_t ns = best_.plan.jobs[job].end - best_.plan.jobs[job].start;
      if (ns >= kCutNsMin && ns >= best_.plan.makespan / kCutShareMin) {
        large.emplace_back(-ns, job);
      }
    }
    std::sort(large.begin(), large.end());
    large.resize(std::min(large.size(), kCutNodesMax));
    for (const auto& [ns, job] : large) {
      Cuttable cuttable;
      cuttable.node = problem_.jobs[job].node;
      const Option& planned = problem_.OptionsOf(job)[best_.plan.jobs[job].option];
      Whole whole = Allow(cuttable, planned);
      if (!cuttable.options.empty()) {
        cuttable.planned = 0;
      }
      bool is_alone = true;
      for (const Option& option : problem_.OptionsOf(job)) {
        const Whole refused = Allow(cuttable, option);
        whole = refused == Whole::kNotAsked ? whole : refused;
        is_alone = is_alone && option.silicon == planned.silicon;
      }
      if (!is_alone) {
        const bool has_several = cuttable.options.size() > 1;
        KeepAlike(cuttable);
        whole_[cuttable.node] = cuttable.options.size() > 1 ? Whole::kNoGain
                                : has_several               ? Whole::kNotMeasured
                                                            : whole;
      }
      if (!cuttable.options.empty()) {
        Align(cuttable);
        cuttables_.push_back(std::move(cuttable));
      }
    }
  }

  // Adds the option if it can be cut like the others and runs concurrently with them. A launch whose extent is known
  // only when it starts cannot be divided in advance. Returns the reason if it is not added.
  Whole Allow(Cuttable& cuttable, const Option& option) const {
    const std::array<int32_t, 3>& from = flat_.nodes[cuttable.node].extent_port;
    if (std::any_of(from.begin(), from.end(), [](int32_t port) { return port >= 0; })) {
      return Whole::kSizeUnknown;
    }
    uint32_t dimension = 0;
    uint64_t grain = 1;
    if (!input_.accesses->MayCut(graph::FlatNodeId(cuttable.node), option.choice, &dimension, &grain) ||
        dimension >= 3 || grain == 0 || (!cuttable.options.empty() && dimension != cuttable.dimension)) {
      return Whole::kBytesUnknown;
    }
    const uint64_t extent = flat_.nodes[cuttable.node].extent[dimension];
    const uint64_t both = std::lcm(grain, cuttable.grain);
    if (both == 0 || both > extent / 2) {
      return Whole::kNoGain;
    }
    cuttable.dimension = dimension;
    cuttable.grain = both;
    // If a silicon has several drivers, the one in the plan is kept, otherwise the faster.
    const auto same = std::find_if(cuttable.options.begin(), cuttable.options.end(),
                                   [&](const Option& other) { return other.silicon == option.silicon; });
    if (same == cuttable.options.end()) {
      cuttable.options.push_back(option);
    } else if (static_cast<uint32_t>(same - cuttable.options.begin()) != cuttable.planned &&
               option.best_ns() < same->best_ns()) {
      *same = option;
    }
    return Whole::kNotAsked;
  }

  bool AreAlike(const Option& a, const Option& b) const {
    return IsAlike(input_.devices[a.device], input_.devices[b.device]);
  }

  // If some options are guesses, keeps the kind that is fastest in total, and one probe for each other kind.
  void KeepAlike(Cuttable& cuttable) const {
    std::vector<Option>& options = cuttable.options;
    if (std::ranges::none_of(options, &Option::is_guess)) {
      return;
    }
    const auto speed_of = [&](const Option& kind) {
      double speed = 0;
      for (const Option& option : options) {
        speed += AreAlike(option, kind) ? 1 / static_cast<double>(option.best_ns()) : 0;
      }
      return speed;
    };
    const Option best = *std::ranges::max_element(options, {}, speed_of);
    const uint32_t planned = cuttable.planned;
    cuttable.planned = kNone;
    std::vector<Option> kept;
    for (uint32_t i = 0; i < options.size(); ++i) {
      const Option& option = options[i];
      if (AreAlike(option, best)) {
        cuttable.planned = i == planned ? static_cast<uint32_t>(kept.size()) : cuttable.planned;
        kept.push_back(option);
      } else if (option.is_guess && option.best_ns() <= kProbeSlowerMax * best.best_ns() &&
                 std::ranges::none_of(cuttable.probes, [&](const Option& probe) { return AreAlike(probe, option); })) {
        cuttable.probes.push_back(option);
      }
    }
    options = std::move(kept);
  }

  void Align(Cuttable& cuttable) const {
    const uint64_t tiles = std::lcm(cuttable.grain, kTile[cuttable.dimension]);
    if (tiles != 0 && tiles <= flat_.nodes[cuttable.node].extent[cuttable.dimension] / kTilesMin) {
      cuttable.grain = tiles;
    }
  }

  // Makes parts with these weights, each by one of the options; nullopt when there are fewer than two, or they are not
  // safe.
  std::optional<Cut> MakeCut(const Cuttable& cuttable, std::vector<std::pair<uint32_t, double>> weights) {
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0,
                                       [](double before, const auto& weight) { return before + weight.second; });
    const double least = all * std::min(kShareMin, 0.5 / static_cast<double>(weights.size()));
    std::erase_if(weights, [&](const auto& weight) { return weight.second <= 0 || weight.second < least; });
    // A cut that only divides a launch into pieces on one device leaves out the other devices as well.
    const bool has_several = std::ranges::any_of(weights, [&](const auto& w) { return w.first != weights[0].first; });
    const std::array<uint64_t, 3>& extent = flat_.nodes[cuttable.node].extent;
    const uint64_t all_units = extent[cuttable.dimension] / cuttable.grain;
    const uint64_t probe_units = std::max<uint64_t>(all_units / kProbeParts, 1);
    const auto shared = static_cast<uint32_t>(weights.size());
    for (uint32_t i = 0; i < cuttable.probes.size() && has_several && all_units >= kProbeTilesMin; ++i) {
      weights.emplace_back(i, 0.0);
    }
    const uint64_t units = all_units - probe_units * (weights.size() - shared);
    double sum = 0, before = 0;
    for (const auto& [option, weight] : weights) {
      sum += weight;
    }
    Cut cut{.node = cuttable.node, .parts = {}};
    std::vector<Task> tasks;
    uint64_t first = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const bool is_probe = i >= shared;
      before += weights[i].second;
      const double until = before / sum * static_cast<double>(units) + 0.5;
      const uint64_t last = i + 1 == weights.size() ? extent[cuttable.dimension]
                            : is_probe              ? first + probe_units * cuttable.grain
                            : i + 1 == shared       ? units * cuttable.grain
                                                    : std::min(static_cast<uint64_t>(until), units) * cuttable.grain;
      if (last <= first) {
        continue;
      }
      Part part{.options = {}, .box = {.count = extent}};
      part.box.first[cuttable.dimension] = first;
      part.box.count[cuttable.dimension] = last - first;
      const Option& option = (is_probe ? cuttable.probes : cuttable.options)[weights[i].first];
      part.options = options_.Add(options_.Part(cuttable.node, option, part.box));
      tasks.push_back({.node = graph::FlatNodeId(cuttable.node), .choice = option.choice, .box = part.box});
      cut.parts.push_back(part);
      first = last;
    }
    if (cut.parts.size() < 2) {
      return std::nullopt;
    }
    if (!SplitIsSafe(flat_, *input_.accesses, tasks)) {
      if (whole_[cuttable.node] == Whole::kNoGain) {
        whole_[cuttable.node] = Whole::kPartsMeet;
      }
      return std::nullopt;
    }
    return cut;
  }

  // Cuts each launch by its own speeds; data movements slow a device down. Each device's share is one piece or several,
  // so that copies overlap with launches.
  void CutBySpeed() {
    for (const bool counts_moves : {false, true}) {
      for (const uint32_t pieces : {1, 2, 4}) {
        std::vector<Cut> cuts;
        const size_t options = options_.all().size();
        for (const Cuttable& cuttable : cuttables_) {
          std::vector<std::pair<uint32_t, double>> weights;
          for (const auto& [option, weight] : SpeedsOf(cuttable, counts_moves)) {
            weights.insert(weights.end(), pieces, {option, weight / pieces});
          }
          AddCut(cuttable, std::move(weights), cuts);
        }
        if (pieces == 1 || (pieces <= input_.pieces_max && 2 * pieces * cuts.size() <= kJobsMax)) {
          Try(std::move(cuts), options, {.of_kept = pieces == 1 ? 1 : kGainPieces});
        }
      }
    }
  }

  // Speeds of the options within reach.
  std::vector<std::pair<uint32_t, double>> SpeedsOf(const Cuttable& cuttable, bool counts_moves) const {
    std::vector<std::pair<uint32_t, double>> weights;
    const auto quickest = std::min_element(cuttable.options.begin(), cuttable.options.end(),
                                           [](const Option& a, const Option& b) { return a.best_ns() < b.best_ns(); });
    const double ns_max = reach_ * static_cast<double>(quickest->best_ns());
    for (uint32_t i = 0; i < cuttable.options.size(); ++i) {
      if (static_cast<double>(cuttable.options[i].best_ns()) > ns_max) {
        continue;
      }
      int64_t ns = cuttable.options[i].best_ns(), moves = 0;
      if (counts_moves && cuttable.options[i].space != kHostSpace) {
        const auto [begin, end] = PortsOf(flat_, cuttable.node);
        for (uint32_t port = begin; port < end; ++port) {
          const graph::FlatPort& p = flat_.ports[port];
          const uint64_t bytes = flat_.values[(p.out.valid() ? p.out : p.in).index].bytes;
          moves += p.in.valid() ? input_.costs.Transfer(bytes, kHostSpace, cuttable.options[i].space).count() : 0;
          moves += p.out.valid() ? input_.costs.Transfer(bytes, cuttable.options[i].space, kHostSpace).count() : 0;
        }
      }
      ns += moves / input_.repeat;
      weights.emplace_back(i, 1.0 / static_cast<double>(std::max<int64_t>(ns, 1)));
    }
    return weights;
  }

  void AddCut(const Cuttable& cuttable, std::vector<std::pair<uint32_t, double>> weights, std::vector<Cut>& cuts) {
    if (std::optional<Cut> cut = MakeCut(cuttable, std::move(weights))) {
      cuts.push_back(std::move(*cut));
    }
  }

  // Cuts all launches at the same places, so that a part's data stays with the corresponding part of the next launch,
  // with weights that make all devices end together.
  void CutTogether() {
    std::map<uint32_t, double> ns;  // Keyed by silicon.
    for (const Cuttable& cuttable : cuttables_) {
      for (const Option& option : cuttable.options) {
        ns[option.silicon] += static_cast<double>(option.best_ns());
      }
    }
    std::map<uint32_t, double> weight;
    const double ns_min = std::min_element(ns.begin(), ns.end(), [](const auto& a, const auto& b) {
                            return a.second < b.second;
                          })->second;
    for (const auto& [silicon, sum] : ns) {
      weight[silicon] = sum <= reach_ * ns_min ? 1 / sum : 0;
    }
    for (int round = 0; round <= kRefinements; ++round) {
      std::vector<Cut> cuts;
      const size_t options = options_.all().size();
      for (const Cuttable& cuttable : cuttables_) {
        std::vector<std::pair<uint32_t, double>> weights;
        for (uint32_t i = 0; i < cuttable.options.size(); ++i) {
          weights.emplace_back(i, weight[cuttable.options[i].silicon]);
        }
        // Use the same order for every launch.
        std::sort(weights.begin(), weights.end(), [&](const auto& a, const auto& b) {
          return cuttable.options[a.first].silicon < cuttable.options[b.first].silicon;
        });
        AddCut(cuttable, weights, cuts);
      }
      std::map<uint32_t, double> ends;
      if (!Try(std::move(cuts), options, {.ends = &ends})) {
        return;
      }
      for (auto& [silicon, w] : weight) {
        w = ends.contains(silicon) ? w / std::max(ends[silicon], 1.0) : 0;
      }
    }
  }

  // Cuts the longest launches one at a time, keeping cuts that gained before.
  void CutSingles() {
    std::vector<Cut> cuts;
    for (size_t i = 0; i < std::min(cuttables_.size(), kSinglesMax) && cuttables_.size() > 1; ++i) {
      const size_t options = options_.all().size();
      std::vector<Cut> more = cuts;
      AddCut(cuttables_[i], SpeedsOf(cuttables_[i], true), more);
      if (more.size() > cuts.size() && Try(more, options, {.limit_ns = &single_ns_})) {
        cuts = std::move(more);
      }
    }
  }

  // Makes equal parts on the launch's planned device: either of launches that pass instances one to one to another
  // device, or of all launches that may be cut.
  void CutEqually() {
    std::vector<bool> passes(flat_.nodes.size());
    std::vector<uint32_t> silicon_of(flat_.nodes.size(), kNone);
    for (const Cuttable& cuttable : cuttables_) {
      silicon_of[cuttable.node] = cuttable.planned == kNone ? kNone : cuttable.options[cuttable.planned].silicon;
    }
    for (const Cuttable& cuttable : cuttables_) {
      const auto [begin, end] = PortsOf(flat_, cuttable.node);
      for (uint32_t port = begin; port < end; ++port) {
        const graph::FlatPort& p = flat_.ports[port];
        const graph::FlatNodeId from = p.in.valid() ? flat_.values[p.in.index].producer : graph::FlatNodeId();
        if (p.is_one_to_one && from.valid() && silicon_of[from.index] != kNone && silicon_of[cuttable.node] != kNone &&
            silicon_of[from.index] != silicon_of[cuttable.node]) {
          passes[from.index] = passes[cuttable.node] = true;
        }
      }
    }
    for (const bool all : {false, true}) {
      for (const uint32_t parts : {2, 4, 8}) {
        std::vector<Cut> cuts;
        const size_t options = options_.all().size();
        for (const Cuttable& cuttable : cuttables_) {
          if (cuttable.planned != kNone && (all || passes[cuttable.node])) {
            AddCut(cuttable, std::vector<std::pair<uint32_t, double>>(parts, {cuttable.planned, 1.0}), cuts);
          }
        }
        Try(std::move(cuts), options);
      }
    }
  }

  // Plans with these cuts; keeps the plan if it is the best with cuts and sufficiently better than the plan without.
  // Returns false when there are no cuts or, with `limit_ns`, when the plan is not shorter; options from `options` on
  // are then dropped.
  bool Try(std::vector<Cut> cuts, size_t options, const TryOptions& how = {}) {
    if (cuts.empty()) {
      return false;
    }
    std::sort(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) { return a.node < b.node; });
    Trial trial{.cuts = std::move(cuts), .problem = {}, .best = {}};
    trial.problem = MakeProblem(input_, resources_, options_, trial.cuts);
    Search(trial.problem, {.effort = 0, .seed = input_.seed}, trial.best);
    if (how.ends != nullptr) {
      FindEnds(trial, *how.ends);
    }
    const int64_t makespan = trial.best.plan.makespan;
    const double gain = HasEstimates(trial) ? kGainEstimated : kGain;
    const bool is_better = static_cast<double>(makespan) <= gain * static_cast<double>(best_.plan.makespan);
    const bool is_shorter = how.limit_ns == nullptr || makespan < *how.limit_ns;
    if (how.limit_ns != nullptr) {
      *how.limit_ns = std::min(*how.limit_ns, makespan);
    }
    const auto ns = static_cast<double>(makespan);
    if (is_better && (!kept_.has_value() || ns < how.of_kept * static_cast<double>(kept_->best.plan.makespan))) {
      kept_ = std::move(trial);
    } else if (!is_shorter) {
      options_.Shrink(options);
    }
    return is_shorter;
  }

  bool HasEstimates(const Trial& trial) const {
    return std::any_of(trial.cuts.begin(), trial.cuts.end(), [&](const Cut& cut) {
      return std::any_of(cut.parts.begin(), cut.parts.end(),
                         [&](const Part& part) { return options_.List(part.options)[0].is_estimate; });
    });
  }

  // Finds when each silicon's last part has ended and, if it is an output, has been returned.
  static void FindEnds(const Trial& trial, std::map<uint32_t, double>& ends) {
    const Problem& p = trial.problem;
    for (uint32_t job = 0; job < p.jobs.size(); ++job) {
      const Option& option = p.OptionsOf(job)[trial.best.plan.jobs[job].option];
      int64_t end = trial.best.plan.jobs[job].end;
      for (const uint32_t item : p.writes[job]) {
        end += p.items[item].is_returned ? p.down_ns[p.items[item].returned_class][option.space] : 0;
      }
      ends[option.silicon] = std::max(ends[option.silicon], static_cast<double>(end));
    }
  }

  const PlacementInput& input_;
  const graph::FlatGraph& flat_;
  const Resources& resources_;
  Options& options_;
  Problem& problem_;
  Best& best_;
  std::vector<Cuttable> cuttables_;  // Longest first.
  std::optional<Trial> kept_;
  std::vector<Whole> whole_{flat_.nodes.size()};  // Indexed by node.
  double reach_ = 1;                              // Devices at most this many times slower than the fastest get parts.
  int64_t single_ns_ = kForever;
};

}  // namespace

std::vector<Whole> ImproveByCuts(const PlacementInput& input, const Resources& resources, Options& options,
                                 Problem& problem, Best& best) {
  return Cutter(input, resources, options, problem, best).Run();
}

}  // namespace hpvm::scheduler::placing
