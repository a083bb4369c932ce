// SPDX-License-Identifier: Apache-2.0
// Limits of each memory space of a plan, and the overflow: a device's own memory overflows to host memory, host
// memory to the spill file.
#ifndef HPVMD_ENGINE_PLAN_SPACES_H_
#define HPVMD_ENGINE_PLAN_SPACES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/plan.h"
#include "engine/prepared_graph.h"
#include "scheduler/cost/cost_model.h"
#include "scheduler/residency/residency.h"

namespace hpvm::engine {

// Several spaces with one common limit: those of drivers for the same hardware, or all spaces of a tenant.
struct CommonLimit {
  std::vector<scheduler::SpaceIndex> spaces;
  uint64_t bytes_max = 0;
  std::string name;  // For example "device opencl:0 and others of its memory".
};

struct PlanSpaces {
  std::vector<scheduler::DeviceFacts> devices;  // As Plan::devices: those of the graph, and the device of the spill
                                                // file.
  std::vector<scheduler::SpaceFacts> spaces;    // Indexed by space.
  std::vector<CommonLimit> common;
};

enum class Grants : uint8_t { kHeeded, kIgnored };

// Computes the spaces from the devices' memory, the engine's options and the present grants.
PlanSpaces SpacesOf(const PreparedGraph& prepared, Grants grants);
// For a plan whose spaces exceed a common limit although no single one is too large: gives each space in which `plan`
// runs something an equal share of the limit.
void ShareSpaces(const Plan& plan, PlanSpaces& spaces);
// Checks the arenas against their limits, single and common; fails with kResourceExhausted and the sizes.
Status CheckSpaces(const PlanSpaces& spaces, const scheduler::Residency& residency);
// Explains that a plan's task found no room: returns `why`, or the sizes when the task's own buffers are too large.
Status ExplainNoRoom(const PreparedGraph& prepared, const Plan& plan, const PlanSpaces& spaces, uint32_t task,
                     Status why);
// Fails with kResourceExhausted, the sizes and the node when the buffers of one launch fit no device that may run it,
// even when the device is otherwise empty.
Status CheckFits(const PreparedGraph& prepared, const graph::FlatGraph& flat);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PLAN_SPACES_H_
