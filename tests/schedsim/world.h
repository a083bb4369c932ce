// SPDX-License-Identifier: Apache-2.0
// One simulated tenant: a random graph on random devices, run a few times. The seed determines everything.
//
// The deciding code is the product's: placement, memory plans, orders, cost histories, the remainder after a loss.
// The simulation provides the kernels (which bytes they access, their durations), the devices (lanes that process
// submissions in virtual time, with jitter) and the faults. Each decision is checked by code that shares nothing with
// it (scheduler/testing), and each run is executed in the order of its times, with the contents of all memory by
// ranges of bytes.
#ifndef HPVMD_TESTS_SCHEDSIM_WORLD_H_
#define HPVMD_TESTS_SCHEDSIM_WORLD_H_

#include <cstdint>
#include <string>
#include <vector>

namespace hpvm::schedsim {

// Statistics of the distribution: sums over worlds.
struct Counts {
  uint64_t worlds = 0, nodes = 0, tasks = 0, parts = 0, runs = 0, plans = 0;
  uint64_t losses = 0, losses_again = 0, kept_values = 0, failures = 0, cancels = 0, no_device = 0;
  uint64_t evictions = 0, spills = 0, refusals = 0, with_carries = 0, with_budgets = 0;
  uint64_t iterations = 0, late_extents = 0;
  uint64_t by_nodes[6] = {};    // Up to 4, 16, 64, 256, 1,024, more.
  uint64_t by_devices[7] = {};  // 1 to 6; more.
  void Add(const Counts& other);
  std::string ToString() const;
};

struct Verdict {
  std::vector<std::string> faults;  // "property: sentence"; empty when all promises were kept.
  Counts counts;
};

Verdict RunWorld(uint64_t seed);

}  // namespace hpvm::schedsim

#endif  // HPVMD_TESTS_SCHEDSIM_WORLD_H_
