// SPDX-License-Identifier: Apache-2.0
// The one place that names every backend.
#ifndef HPVMD_BACKENDS_REGISTRY_H_
#define HPVMD_BACKENDS_REGISTRY_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/device.h"
#include "backends/grant.h"
#include "compiler/learnt.h"

namespace hpvm {

struct DeviceOptions {
  uint32_t cpu_threads = 0;               // Including the submitting one; 0 = as many as this process may run on.
  const GrantEntry* cpu_grant = nullptr;  // Obeyed at chunk boundaries when given; borrowed for the device's life.
  LearntStore* learnt = nullptr;          // Keeps what devices measure of kernels; borrowed for the device's life.
  uint32_t cpu_variant = kAutoVariant;    // For tests: CpuDeviceOptions::variant.
};

// Names: "null", "interp", "cpu". kNotFound for others, with the list.
StatusOr<std::unique_ptr<Device>> CreateDevice(std::string_view backend, Hub& hub, const DeviceOptions& options);
std::vector<std::string_view> BackendNames();

}  // namespace hpvm

#endif  // HPVMD_BACKENDS_REGISTRY_H_
