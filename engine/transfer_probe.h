// SPDX-License-Identifier: Apache-2.0
// How long copies between host memory and a device take, measured.
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

// What the device's facts say: speeds where it knows them, else those of a usual link; the start is that of one.
DeviceTransfers EstimateTransfers(const DeviceInfo& info);

// What a probe that did not end in time left behind: a driver may still use it.
struct ProbeRemains {
  CommandList commands;
  std::vector<uint8_t> memory;
  std::unique_ptr<Timeline> timeline;
  std::unique_ptr<Buffer> host, device;
  std::array<Buffer*, 2> table{};
  TimelinePoint signal;
};

// Copies a little both ways, for about `most` at the longest; speeds that `info` has are taken from there. What cannot
// be measured stays as EstimateTransfers says. The device must be granted; nothing is counted against its limits.
// `remains` is kept until nothing of the device is in use any more; empty as a rule.
DeviceTransfers MeasureTransfers(Device& device, const Clock& clock, Duration most,
                                 std::vector<std::unique_ptr<ProbeRemains>>* remains);

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_TRANSFER_PROBE_H_
