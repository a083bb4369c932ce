// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <utility>

#include "engine/prepared_graph.h"

namespace hpvm {

Engine::Engine(EngineOptions options)
    : options_(std::move(options)),
      memory_(std::make_shared<DeviceMemory>(options_.devices, options_.device_limits)) {
  HPVMD_CHECK(options_.hub != nullptr && options_.compiler != nullptr && options_.clock != nullptr);
}

Engine::~Engine() = default;

std::vector<DeviceInfo> Engine::devices() const {
  std::vector<DeviceInfo> infos;
  for (const Device* device : options_.devices) {
    infos.push_back(device->info());
  }
  return infos;
}

}  // namespace hpvm
