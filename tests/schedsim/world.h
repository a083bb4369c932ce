// SPDX-License-Identifier: Apache-2.0
// One simulated tenant: a random graph on random devices, run a few times. Everything follows from the seed.
//
// The code that decides is the product's: placement, memory plans, orders, cost histories, what is left after a loss.
// Simulated are the kernels (which bytes they touch, how long they take), the devices (lanes that work off what is
// submitted, in virtual time, with jitter) and what goes wrong. Each decision is checked by code that shares nothing
// with it (scheduler/testing), and each run is carried out in the order that its times give, with the contents of all
// memory by ranges of bytes.
#ifndef HPVMD_TESTS_SCHEDSIM_WORLD_H_
#define HPVMD_TESTS_SCHEDSIM_WORLD_H_

#include <cstdint>
#include <string>
#include <vector>

namespace hpvm::schedsim {

// What happened, for the distribution: sums over worlds.
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
  std::vector<std::string> faults;  // "property: sentence"; empty: all promises were kept.
  Counts counts;
};

Verdict RunWorld(uint64_t seed);

}  // namespace hpvm::schedsim

#endif  // HPVMD_TESTS_SCHEDSIM_WORLD_H_
