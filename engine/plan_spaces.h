// SPDX-License-Identifier: Apache-2.0
// What each memory space of a plan may hold, and where what does not fit goes: a device's own memory overflows to the
// host's, the host's to the spill file.
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

// Several spaces with one limit: those of drivers for the same hardware, or all that a tenant has.
struct CommonLimit {
  std::vector<scheduler::SpaceIndex> spaces;
  uint64_t bytes_max = 0;
  std::string name;  // "device opencl:0 and others of its memory".
};

struct PlanSpaces {
  std::vector<scheduler::DeviceFacts> devices;  // By Plan::devices: those of the graph, and of the spill file.
  std::vector<scheduler::SpaceFacts> spaces;    // By space.
  std::vector<CommonLimit> common;
};

enum class Grants : uint8_t { kHeeded, kIgnored };

// From what the devices have, what the engine's options say, and what the grants allow now.
PlanSpaces SpacesOf(const PreparedGraph& prepared, Grants grants);
// For a plan whose spaces are too large together, though none is alone: of those in which `plan` runs something, each
// gets an equal share of what they have in common.
void ShareSpaces(const Plan& plan, PlanSpaces& spaces);
// Whether the arenas keep to their limits, alone and together; kResourceExhausted with the sizes.
Status CheckSpaces(const PlanSpaces& spaces, const scheduler::Residency& residency);
// `why` a plan's task found no room, in sizes where its own buffers are too large.
Status ExplainNoRoom(const PreparedGraph& prepared, const Plan& plan, const PlanSpaces& spaces, uint32_t task,
                     Status why);
// kResourceExhausted with the sizes and the node when the buffers of one launch fit no device that may run it, whatever
// else is there.
Status CheckFits(const PreparedGraph& prepared, const graph::FlatGraph& flat);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PLAN_SPACES_H_
