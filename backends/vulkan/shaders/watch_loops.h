// SPDX-License-Identifier: Apache-2.0
// Shaders that a tenant wrote, on a driver that ends loops early (compiler/ir/loops_cut.h): what they computed then
// is wrong, and must not pass for a result. (Code of ours watches its own loops.)
//
// The driver counts the rounds of all loops of a vector of instances together. So does the shader: every loop adds one
// to its vector's word in group memory, and a function around the entry point looks at it when the entry has returned.
// Instances of a vector run in lockstep on such a driver, so that they all load and store the same number.
#ifndef HPVMD_BACKENDS_VULKAN_SHADERS_WATCH_LOOPS_H_
#define HPVMD_BACKENDS_VULKAN_SHADERS_WATCH_LOOPS_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "compiler/api/gpu_code.h"
#include "compiler/api/gpu_target.h"

namespace hpvm::vulkan {

// Rewrites the module `code`, and adds to `variant`, its entry, a binding at which each dispatch finds its
// GpuTrapRecord (32 bytes), which it fills in with kLoopsCut. Leaves modules without loops as they are.
// kInvalidArgument for what is no SPIR-V module; kFailedPrecondition where group memory has no room.
Status WatchLoops(const GpuTarget& target, std::vector<uint8_t>& code, GpuVariant& variant);

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_SHADERS_WATCH_LOOPS_H_
