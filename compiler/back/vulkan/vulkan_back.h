// SPDX-License-Identifier: Apache-2.0
// Kernel IR → a SPIR-V shader module for one Vulkan device, written word by word: the kernel IR is structured, which is
// what the SPIR-V validation rules ask for, so no control-flow graph is restructured on the way.
//
// Buffers are storage buffers, one binding a parameter, seen through aliased arrays of bytes, words and vectors; values
// come as push constants. NoContraction on every float operation; denormals, signed zeros, infinities and NaNs kept
// where the device can. Each module is run through spirv-val in tests and in the compile child.
#ifndef HPVMD_COMPILER_BACK_VULKAN_VULKAN_BACK_H_
#define HPVMD_COMPILER_BACK_VULKAN_VULKAN_BACK_H_

#include <optional>
#include <span>
#include <string>

#include "compiler/back/gpu/back_end.h"

namespace hpvm::vulkan {

// `module` must be verified and have gone through RunGpuPipeline. Nothing when `diagnostics` has an error.
std::optional<Artifact> EmitVulkan(const ir::Module& module, const GpuTarget& target, const gpu::GpuOptions& options,
                                   Diagnostics& diagnostics);
extern const gpu::BackEnd kVulkanBack;

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_VULKAN_BACK_H_
