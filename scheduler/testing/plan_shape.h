// SPDX-License-Identifier: Apache-2.0
// Static checks of a memory plan: indices, sizes, budgets, reach of devices.
#ifndef HPVMD_SCHEDULER_TESTING_PLAN_SHAPE_H_
#define HPVMD_SCHEDULER_TESTING_PLAN_SHAPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/residency/residency.h"

namespace hpvm::scheduler {

uint32_t PortsEnd(const graph::FlatGraph& flat, graph::FlatNodeId node);

struct StepAccess {
  StorageId storage;
  ByteRange range;  // Not empty.
  bool writes = false;
};
// Returns the accesses of the step, from the graph and the access model alone.
std::vector<StepAccess> AccessesOf(const ResidencyInput& input, const Residency& plan, uint32_t step);

// Returns a sentence for each fault.
std::vector<std::string> CheckShape(const ResidencyInput& input, const Residency& plan);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TESTING_PLAN_SHAPE_H_
