// SPDX-License-Identifier: Apache-2.0
// Facts about devices for the scheduler.
#ifndef HPVMD_ENGINE_DEVICE_FACTS_H_
#define HPVMD_ENGINE_DEVICE_FACTS_H_

#include <span>
#include <vector>

#include "backends/contract/device.h"
#include "engine/prepared_graph.h"
#include "scheduler/cost/cost_model.h"

namespace hpvm::engine {

// Returns all facts except the spaces, which AssignSpaces sets.
std::vector<scheduler::DeviceFacts> FactsOfDevices(std::span<Device* const> devices);

// Sets the spaces in `facts`; returns true when any is shared. Devices of one silicon share the space of the device
// that exports memory when the others can import it and `may_share` is true.
bool AssignSpaces(PreparedGraph& graph, bool may_share);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_DEVICE_FACTS_H_
