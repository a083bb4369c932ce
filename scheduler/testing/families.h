// SPDX-License-Identifier: Apache-2.0
// The families of graphs used in papers on scheduling, on three machine shapes, from seeds: for benchmarks and tests.
#ifndef HPVMD_SCHEDULER_TESTING_FAMILIES_H_
#define HPVMD_SCHEDULER_TESTING_FAMILIES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "graph/flatten.h"
#include "scheduler/placement/placement.h"
#include "scheduler/testing/peers.h"

namespace hpvm::scheduler {

enum class Family : uint8_t { kCholesky, kLu, kQr, kFft, kStencil, kForkJoin, kMontage, kLayered };
inline constexpr Family kFamilies[] = {Family::kCholesky, Family::kLu,       Family::kQr,      Family::kFft,
                                       Family::kStencil,  Family::kForkJoin, Family::kMontage, Family::kLayered};
std::string NameOf(Family family);

// Sixteen cores and a GPU; four cores and two GPUs; four cores, a GPU and an accelerator behind a slow link.
enum class Platform : uint8_t { kManyCores, kTwoGpus, kSlowLink };
inline constexpr Platform kPlatforms[] = {Platform::kManyCores, Platform::kTwoGpus, Platform::kSlowLink};
std::string NameOf(Platform platform);

// Times by node and device; links by space.
class TableCosts final : public CostModel {
 public:
  struct Link {
    double latency_ns = 0, ns_per_byte = 0;
  };
  Cost Run(const Work& work, DeviceIndex index, const DeviceFacts& device) const override;
  Duration Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const override;

  std::vector<std::vector<int64_t>> ns;  // Indexed by leaf, which equals the node here, and device.
  std::vector<Link> links;               // Indexed by space, each way.
};

// Tasks of one instance each, so that each uses one core, as in the papers' model. Every device can run every task.
struct FamilyCase {
  graph::FlatGraph flat;
  std::vector<DeviceFacts> devices;
  std::vector<std::vector<Candidate>> candidates;
  TableCosts costs;
  PlacementInput Input() const {
    return {.flat = flat, .devices = devices, .candidates = candidates, .costs = costs, .wants_transfers = true};
  }
};

// `size` scales the number of tasks: 1 gives about 100 to 200.
std::unique_ptr<FamilyCase> MakeFamily(Family family, Platform platform, uint64_t seed, uint32_t size = 1);

// Returns the same problem for schedulers that know only processors and edges: each lane of each device is a processor.
PeerProblem PeerProblemOf(const FamilyCase& c);
// Converts their decisions to tasks, as input of Follow.
std::vector<Task> TasksOf(const FamilyCase& c, const PeerSchedule& schedule);

// The rule of greedy (no ranks) or HEFT (its ranks), with knowledge of the machine's links and lanes: places each task,
// in that order, where it ends first in the model by which all are evaluated.
StatusOr<Placement> PlaceInOrder(const FamilyCase& c, const std::vector<double>& ranks);

// Returns a lower bound of every schedule: the maximum of the longest path at its fastest times, and the work spread
// over all devices optimally, computed as the dual of the fractional assignment (any weights of devices give a bound).
Duration LowerBound(const FamilyCase& c);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_FAMILIES_H_
