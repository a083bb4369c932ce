// SPDX-License-Identifier: Apache-2.0
// Translates kernel IR to OpenCL C for one device: structured control, one binding per buffer, range checks where no
// launch proves them needless, recorded traps (compiler/api/gpu_code.h).
//
// Accuracy: FP_CONTRACT is off; division and square root of f32 are correctly rounded, by the device where it offers
// it, otherwise by emitted code (docs/GPU.md gives each operation's bound). The text is meant to be read: `hpvmctl
// kernel explain --device` shows it.
#ifndef HPVMD_COMPILER_BACK_OPENCL_OPENCL_BACK_H_
#define HPVMD_COMPILER_BACK_OPENCL_OPENCL_BACK_H_

#include <optional>

#include "compiler/back/gpu/back_end.h"

namespace hpvm::opencl {

// `module` must be verified and have been through RunGpuPipeline. Returns nothing when `diagnostics` has an error.
std::optional<Artifact> EmitOpenCl(const ir::Module& module, const GpuTarget& target, const gpu::GpuOptions& options,
                                   Diagnostics& diagnostics);
extern const gpu::BackEnd kOpenClBack;

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_BACK_OPENCL_OPENCL_BACK_H_
