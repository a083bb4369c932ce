// SPDX-License-Identifier: Apache-2.0
// Some drivers compile a kernel at its first dispatch (Mesa's llvmpipe; PhysicalDevice::compiles_at_dispatch). A
// dispatch of no groups makes them compile earlier: in the builder's process, where a compile may take too long or
// crash, and then in the device's own, while the graph is prepared and not while it runs.
#ifndef HPVMD_BACKENDS_VULKAN_EARLY_COMPILE_H_
#define HPVMD_BACKENDS_VULKAN_EARLY_COMPILE_H_

#include <span>

#include "backends/vulkan/executable.h"
#include "backends/vulkan/memory.h"
#include "base/status.h"
#include "compiler/api/gpu_code.h"

namespace hpvm::vulkan {

// Returns when the driver has compiled those of `variants` that launches on such a device use (of one instance per work
// item), in their usual group. Returns at once for other devices. No instance runs.
Status CompileEarly(Context& context, Memory& memory, std::span<const GpuVariant> variants, Pipelines& pipelines);

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_EARLY_COMPILE_H_
