// SPDX-License-Identifier: Apache-2.0
// Measures copies between host memory and a device.
#ifndef HPVMD_ENGINE_TRANSFER_PROBE_H_
#define HPVMD_ENGINE_TRANSFER_PROBE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/contract/device.h"
#include "base/clock.h"
#include "scheduler/cost/cost_history.h"

namespace hpvm::engine {

struct DeviceTransfers {
  scheduler::TransferLine up, down;  // From and to host memory.
};

// Returns estimates from the device's facts: its speeds where known, else those of a usual link, and that link's
// start time.
DeviceTransfers EstimateTransfers(const DeviceInfo& info);

// Objects of a probe that did not end in time; a driver may still use them.
struct ProbeRemains {
  CommandList commands;
  std::vector<uint8_t> memory;
  std::unique_ptr<Timeline> timeline;
  std::unique_ptr<Buffer> host, device;
  std::array<Buffer*, 2> table{};
  TimelinePoint signal;
};

// Copies a little both ways, for at most about `most`; speeds in `info` are used as they are. Transfers that cannot
// be measured stay as EstimateTransfers returns them. The device must be granted; nothing is counted against its
// limits. `remains` must be kept until nothing of the device is in use any more; it is usually empty.
DeviceTransfers MeasureTransfers(Device& device, const Clock& clock, Duration most,
                                 std::vector<std::unique_ptr<ProbeRemains>>* remains);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_TRANSFER_PROBE_H_
