// SPDX-License-Identifier: Apache-2.0
// For shaders written by a tenant, on a driver that ends loops early (compiler/ir/loops_cut.h): their results are then
// wrong, and must not be returned. (Emitted code watches its own loops.)
//
// The driver counts the rounds of all loops of a vector of instances together. So does the rewritten shader: every loop
// adds one to its vector's word in group memory, and a function around the entry point checks it when the entry has
// returned. Instances of a vector run in lockstep on such a driver, so they all load and store the same number.
#ifndef HPVMD_BACKENDS_VULKAN_SHADERS_WATCH_LOOPS_H_
#define HPVMD_BACKENDS_VULKAN_SHADERS_WATCH_LOOPS_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "compiler/api/gpu_code.h"
#include "compiler/api/gpu_target.h"

namespace hpvm::vulkan {

// Rewrites the module `code`, and adds to `variant`, its entry, a binding at which each dispatch finds its
// GpuTrapRecord (32 bytes), which the code fills in with kLoopsCut. Leaves modules without loops unchanged. Returns
// kInvalidArgument for input that is not a SPIR-V module; kFailedPrecondition when group memory has no room.
Status WatchLoops(const GpuTarget& target, std::vector<uint8_t>& code, GpuVariant& variant);

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_SHADERS_WATCH_LOOPS_H_
