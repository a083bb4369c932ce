// SPDX-License-Identifier: Apache-2.0
// Translates kernel IR to a SPIR-V shader module for one Vulkan device, word by word: the kernel IR is structured, as
// the SPIR-V validation rules require, so no control-flow graph is restructured.
//
// Buffers are storage buffers, one binding per parameter, accessed through aliased arrays of bytes, words and vectors;
// values are push constants. Every float operation has NoContraction; denormals, signed zeros, infinities and NaNs are
// kept where the device can. spirv-val checks each module in tests and in the compile child.
#ifndef HPVMD_COMPILER_BACK_VULKAN_VULKAN_BACK_H_
#define HPVMD_COMPILER_BACK_VULKAN_VULKAN_BACK_H_

#include <optional>
#include <span>
#include <string>

#include "compiler/back/gpu/back_end.h"

namespace hpvm::vulkan {

// `module` must be verified and have been through RunGpuPipeline. Returns nothing when `diagnostics` has an error.
std::optional<Artifact> EmitVulkan(const ir::Module& module, const GpuTarget& target, const gpu::GpuOptions& options,
                                   Diagnostics& diagnostics);
extern const gpu::BackEnd kVulkanBack;

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_VULKAN_BACK_H_
