// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <utility>

#include "engine/memory/host_memory.h"
#include "engine/memory/spill_device.h"
#include "engine/prepared_graph.h"

namespace hpvm::engine {

namespace {

// Memory of dropped plans, pooled for the next ones; the system may take the pages back.
constexpr uint64_t kHostPoolBytesMax = uint64_t{1} << 30;

StatusOr<std::shared_ptr<Device>> OpenSpill(const EngineOptions& options) {
  if (options.spill_fd < 0 || options.spill_bytes_max == 0) {
    return std::shared_ptr<Device>();
  }
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                         CreateSpillDevice(*options.hub, options.spill_fd, options.spill_bytes_max));
  return std::shared_ptr<Device>(std::move(device));
}

}  // namespace

Engine::Engine(EngineOptions options)
    : options_(std::move(options)),
      memory_(std::make_shared<DeviceMemory>(options_.devices, options_.device_limits)),
      costs_(CreateCostStore(options_.devices, options_.measures_transfers, *options_.compiler, *options_.clock)),
      host_pool_(std::make_shared<HostPool>(kHostPoolBytesMax)),
      spill_(OpenSpill(options_)) {
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

}  // namespace hpvm::engine
