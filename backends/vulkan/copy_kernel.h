// SPDX-License-Identifier: Apache-2.0
// Copies within a device's memory by a dispatch: drivers' own copy commands may be optimised for the bus (measured on
// an H200: vkCmdCopyBuffer moves 0.1 to 0.2 TB/s within the memory, a kernel of 16-byte loads and stores 2).
#ifndef HPVMD_BACKENDS_VULKAN_COPY_KERNEL_H_
#define HPVMD_BACKENDS_VULKAN_COPY_KERNEL_H_

#include <cstdint>
#include <memory>

#include "backends/vulkan/executable.h"

namespace hpvm::vulkan {

// Each work item copies 16 bytes, from binding 0 to binding 1; groups of kCopyGroup along x.
inline constexpr uint32_t kCopyGroup = 256;
inline constexpr uint64_t kCopyUnit = 16;
// Below this size, a copy command is as fast and needs no pipeline.
inline constexpr uint64_t kCopyKernelFromBytes = 256 * 1024;

StatusOr<std::unique_ptr<Pipelines>> CreateCopyKernel(Context& context);

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_COPY_KERNEL_H_
