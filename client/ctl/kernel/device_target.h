// SPDX-License-Identifier: Apache-2.0
// What `kernel explain --device` compiles for.
#ifndef HPVMD_CLIENT_CTL_KERNEL_DEVICE_TARGET_H_
#define HPVMD_CLIENT_CTL_KERNEL_DEVICE_TARGET_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "compiler/api/artifact.h"
#include "compiler/api/gpu_target.h"

namespace hpvm::ctl {

struct DeviceTarget {
  std::string label;  // For people: "opencl:0 (pthread-...)".
  ArtifactKind kind = ArtifactKind::kOpenCl;
  GpuTarget gpu;
  std::string level;  // The compiler knows the device by this name; empty: `gpu` describes it.
};

// `name`: a device of this machine ("opencl", "vulkan:1"), which a sandboxed `hpvm-executor` is asked about as the
// daemon does; or one that need not be here ("h200-opencl", "h200-vulkan").
StatusOr<DeviceTarget> FindDeviceTarget(const std::string& name);
// What it takes: "opencl[:N]|vulkan[:N]|h200-opencl|h200-vulkan".
std::string DeviceTargetNames(std::string_view between);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_KERNEL_DEVICE_TARGET_H_
