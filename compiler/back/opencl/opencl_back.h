// SPDX-License-Identifier: Apache-2.0
// Kernel IR → OpenCL C for one device: structured control, each buffer bound by itself, range checks where
// no launch proves them away, traps recorded (compiler/api/gpu_code.h).
//
// Exactness: FP_CONTRACT is off; division and square root of f32 are correctly rounded where the device offers it, else
// computed so (each operation's bound stands in docs/GPU.md). The text is meant to be read: `hpvmctl kernel explain
// --device` shows it.
#ifndef HPVMD_COMPILER_BACK_OPENCL_OPENCL_BACK_H_
#define HPVMD_COMPILER_BACK_OPENCL_OPENCL_BACK_H_

#include <optional>

#include "compiler/back/gpu/back_end.h"

namespace hpvm::opencl {

// `module` must be verified and have gone through RunGpuPipeline. Nothing when `diagnostics` has an error.
std::optional<Artifact> EmitOpenCl(const ir::Module& module, const GpuTarget& target, const gpu::GpuOptions& options,
                                   Diagnostics& diagnostics);
extern const gpu::BackEnd kOpenClBack;

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_BACK_OPENCL_OPENCL_BACK_H_
