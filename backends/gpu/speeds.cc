// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/speeds.h"

#include <algorithm>

#include "backends/gpu/staging_shape.h"

namespace hpvm::gpu {
namespace {

// One thread's memcpy between memory that was touched before, and a PCIe 5.0 x16 bus.
constexpr double kCopyBytesPerSecond = 7e9;
constexpr double kBusBytesPerSecond = 50e9;
// For a processor core under a driver that compiles for it: a few vector operations per cycle.
constexpr double kCoreHz = 2.5e9;
constexpr double kCoreLanes = 4;
constexpr double kCoreBytesPerSecond = 8e9;
constexpr double kGpuHz = 1.7e9;
// Operations that a GPU performs in the time of moving a byte.
constexpr double kOperationsPerStackedByte = 8;
constexpr double kOperationsPerByte = 40;

}  // namespace

void EstimateSpeeds(const SpeedFacts& facts, DeviceInfo* info) {
  const double units = info->compute_units;
  info->launch_ns = facts.launch_ns;
  info->upload_bytes_per_second = kCopyBytesPerSecond;
  if (info->is_emulated) {
    info->operations_per_second = units * kCoreLanes * (facts.clock_hz > 0 ? facts.clock_hz : kCoreHz);
    info->bytes_per_second = std::min(units * kCoreBytesPerSecond, 200e9);
  } else {
    info->operations_per_second = units * facts.lanes_per_unit * (facts.clock_hz > 0 ? facts.clock_hz : kGpuHz);
    info->bytes_per_second =
        info->operations_per_second / (facts.has_stacked_memory ? kOperationsPerStackedByte : kOperationsPerByte);
    if (!facts.shares_memory) {
      info->upload_bytes_per_second =
          std::min(kBusBytesPerSecond, kCopyBytesPerSecond * (1 + UsualHelpers()));
    }
  }
  info->download_bytes_per_second = info->upload_bytes_per_second;
}

}  // namespace hpvm::gpu
