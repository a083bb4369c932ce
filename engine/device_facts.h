// SPDX-License-Identifier: Apache-2.0
// What the scheduler is told of devices.
#ifndef HPVMD_ENGINE_DEVICE_FACTS_H_
#define HPVMD_ENGINE_DEVICE_FACTS_H_

#include <span>
#include <vector>

#include "backends/contract/device.h"
#include "engine/prepared_graph.h"
#include "scheduler/cost/cost_model.h"

namespace hpvm::engine {

// All but the spaces, which AssignSpaces sets.
std::vector<scheduler::DeviceFacts> FactsOfDevices(std::span<Device* const> devices);

// Sets the spaces in `facts`; whether any is shared: devices of one silicon, of which one exports memory and the others
// import it, share the exporter's, unless they may not.
bool AssignSpaces(PreparedGraph& graph, bool may_share);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_DEVICE_FACTS_H_
