// SPDX-License-Identifier: Apache-2.0
// The target that `kernel explain --device` compiles for.
#ifndef HPVMD_CLIENT_CTL_KERNEL_DEVICE_TARGET_H_
#define HPVMD_CLIENT_CTL_KERNEL_DEVICE_TARGET_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "compiler/api/artifact.h"
#include "compiler/api/gpu_target.h"

namespace hpvm::ctl {

struct DeviceTarget {
  std::string label;  // Display name: "opencl:0 (pthread-...)".
  ArtifactKind kind = ArtifactKind::kOpenCl;
  GpuTarget gpu;
  std::string level;  // The compiler's name for the device; when empty, `gpu` describes it.
};

// `name` is a device of this machine ("opencl", "vulkan:1"), whose description comes from a sandboxed `hpvm-executor`
// as in the daemon, or one that need not be present ("h200-opencl", "h200-vulkan").
StatusOr<DeviceTarget> FindDeviceTarget(const std::string& name);
// Returns the accepted names: "opencl[:N]|vulkan[:N]|h200-opencl|h200-vulkan".
std::string DeviceTargetNames(std::string_view between);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_KERNEL_DEVICE_TARGET_H_
