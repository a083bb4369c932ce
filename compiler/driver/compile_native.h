// SPDX-License-Identifier: Apache-2.0
// Modules that are written for a device: they are vetted and described, never rewritten into something else than what
// the device's driver takes.
#ifndef HPVMD_COMPILER_DRIVER_COMPILE_NATIVE_H_
#define HPVMD_COMPILER_DRIVER_COMPILE_NATIVE_H_

#include <span>

#include "compiler/driver/compile.h"

namespace hpvm::compile {

// Each for one row of CompileModule's table; the processor is not looked at.
CompileResult CompileSpirvKernel(const CompileRequest& request, std::span<const uint8_t> bytes, const cpu::CpuTarget&);
CompileResult CompileSpirvShader(const CompileRequest& request, std::span<const uint8_t> bytes, const cpu::CpuTarget&);
CompileResult CompileOpenClC(const CompileRequest& request, std::span<const uint8_t> bytes, const cpu::CpuTarget&);
CompileResult CompileBitstream(const CompileRequest& request, std::span<const uint8_t> bytes, const cpu::CpuTarget&);

// Of the module as a whole.
void AddError(const CompileRequest& request, std::string message, Diagnostics& diagnostics);

// What the device's driver gets, as people read it, in artifact.listing if the request asks for it.
Status AddDeviceListing(const CompileRequest& request, Artifact& artifact);

}  // namespace hpvm::compile

#endif  // HPVMD_COMPILER_DRIVER_COMPILE_NATIVE_H_
