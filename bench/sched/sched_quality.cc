// SPDX-License-Identifier: Apache-2.0
// quality/FAMILY/PLATFORM: quality of placements on simulated machines. One model and one evaluator for all: a peer's
// decisions (which processor, in which order) are executed with the same transfers, links and gaps as ours, and every
// schedule is checked by code that shares nothing with either.
//
// The metric is the mean over seeds of makespan over a lower bound. Peers: HEFT and PEFT as published, greedy
// earliest finish, and the rule of StarPU's dmda (StarPU itself runs on simulated costs only with SimGrid). Those
// assume that transfers do not interfere; `heft-links` and `greedy-links` are the same rules with knowledge of busy
// links and lanes.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bench/sched/sched.h"
#include "scheduler/placement/placement.h"
#include "scheduler/testing/families.h"
#include "scheduler/testing/follow.h"
#include "scheduler/testing/heft.h"
#include "scheduler/testing/peft.h"
#include "scheduler/testing/schedule_checker.h"

namespace hpvm::bench {
namespace {

using scheduler::Family;
using scheduler::FamilyCase;
using scheduler::Placement;
using scheduler::Platform;

constexpr uint64_t kSeeds = 20, kSeedsQuick = 2;

StatusOr<Duration> Checked(const scheduler::PlacementInput& input, const StatusOr<Placement>& placement) {
  HPVMD_RETURN_IF_ERROR(placement.status());
  HPVMD_ASSIGN_OR_RETURN(const Duration makespan, scheduler::CheckSchedule(input, *placement));
  if (makespan != placement->makespan) {
    return Internal("The plan says that it takes " + std::to_string(placement->makespan.count()) + " ns, the checker " +
                    std::to_string(makespan.count()) + ".");
  }
  return makespan;
}

// Returns the makespans keyed by contender; ours is "ours".
StatusOr<std::map<std::string, Duration>> MakespansOf(const FamilyCase& c) {
  const scheduler::PlacementInput input = c.Input();
  uint32_t unplaced = 0;
  std::map<std::string, Duration> out;
  HPVMD_ASSIGN_OR_RETURN(out["ours"], Checked(input, scheduler::Place(input, &unplaced)));
  const scheduler::PeerProblem problem = scheduler::PeerProblemOf(c);
  const std::pair<const char*, scheduler::PeerSchedule> peers[] = {{"heft", scheduler::Heft(problem)},
                                                                   {"peft", scheduler::Peft(problem)},
                                                                   {"greedy", scheduler::Greedy(problem)},
                                                                   {"dmda-rule", scheduler::DmdaRule(problem)}};
  for (const auto& [name, schedule] : peers) {
    const std::vector<scheduler::Task> tasks = scheduler::TasksOf(c, schedule);
    HPVMD_ASSIGN_OR_RETURN(out[name], Checked(input, scheduler::Follow(input, tasks, true, &unplaced)));
  }
  HPVMD_ASSIGN_OR_RETURN(out["heft-links"], Checked(input, scheduler::PlaceInOrder(c, scheduler::HeftRanks(problem))));
  HPVMD_ASSIGN_OR_RETURN(out["greedy-links"], Checked(input, scheduler::PlaceInOrder(c, {})));
  return out;
}

StatusOr<Measurement> Measure(Family family, Platform platform, uint64_t seeds) {
  Measurement m;
  double mean_to_best = 0, worst_to_best = 0, tasks = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const std::unique_ptr<FamilyCase> c = scheduler::MakeFamily(family, platform, seed);
    const double bound = static_cast<double>(scheduler::LowerBound(*c).count());
    using Makespans = std::map<std::string, Duration>;
    HPVMD_ASSIGN_OR_RETURN(const Makespans makespans, MakespansOf(*c));
    double ours = 0, best = 0;
    for (const auto& [name, makespan] : makespans) {
      const double ratio = static_cast<double>(makespan.count()) / bound;
      if (ratio < 1) {
        return Internal("The plan of \"" + name + "\" for seed " + std::to_string(seed) + " is below the bound.");
      }
      if (name == "ours") {
        ours = ratio;
      } else {
        best = best == 0 ? ratio : std::min(best, ratio);
        m.peers[name] += ratio / static_cast<double>(seeds);
      }
    }
    m.ours += ours / static_cast<double>(seeds);
    mean_to_best += ours / best / static_cast<double>(seeds);
    worst_to_best = std::max(worst_to_best, ours / best);
    tasks = static_cast<double>(c->flat.nodes.size());
  }
  m.figures = {{"mean_over_best_peer_ratio", mean_to_best},
               {"worst_over_best_peer_ratio", worst_to_best},
               {"tasks_count", tasks}};
  m.verified = true;
  return m;
}

}  // namespace

void AddSchedQualityCases(std::vector<Case>& cases, const SchedOptions& options) {
  for (const Family family : scheduler::kFamilies) {
    for (const Platform platform : scheduler::kPlatforms) {
      const uint64_t seeds = options.quick ? kSeedsQuick : kSeeds;
      cases.push_back({.suite = "sched",
                       .name = "quality/" + NameOf(family) + "/" + NameOf(platform),
                       .metric = "makespan_over_bound",
                       .better = Better::kLower,
                       .run = [=] { return Measure(family, platform, seeds); }});
    }
  }
}

}  // namespace hpvm::bench
