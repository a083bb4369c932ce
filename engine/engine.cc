// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <utility>

#include "engine/prepared_graph.h"

namespace hpvm {

Engine::Engine(EngineOptions options)
    : options_(std::move(options)),
      memory_(std::make_shared<DeviceMemory>(options_.devices, options_.device_limits)),
      costs_(CreateCostStore(options_.devices, options_.measures_transfers, *options_.compiler, *options_.clock)) {
  HPVMD_CHECK(options_.hub != nullptr && options_.compiler != nullptr && options_.clock != nullptr);
}

Engine::~Engine() = default;

bool Engine::ListCosts(const PreparedGraph& graph, size_t most, std::vector<KernelCostRecord>* kernels) const {
  return graph.costs->List(graph, most, kernels);
}

std::vector<DeviceInfo> Engine::devices() const {
  std::vector<DeviceInfo> infos;
  for (const Device* device : options_.devices) {
    infos.push_back(device->info());
  }
  return infos;
}

}  // namespace hpvm
