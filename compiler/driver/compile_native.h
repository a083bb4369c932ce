// SPDX-License-Identifier: Apache-2.0
// Compiles modules that are written for a device: they are validated and described, and only translated into the form
// that the device's driver takes.
#ifndef HPVMD_COMPILER_DRIVER_COMPILE_NATIVE_H_
#define HPVMD_COMPILER_DRIVER_COMPILE_NATIVE_H_

#include <span>

#include "compiler/driver/compile.h"

namespace hpvm::compile {

// Each is one row of CompileModule's table; the processor is not used.
CompileResult CompileSpirvKernel(const CompileRequest& request, std::span<const uint8_t> bytes, const cpu::CpuTarget&);
CompileResult CompileSpirvShader(const CompileRequest& request, std::span<const uint8_t> bytes, const cpu::CpuTarget&);
CompileResult CompileOpenClC(const CompileRequest& request, std::span<const uint8_t> bytes, const cpu::CpuTarget&);
CompileResult CompileBitstream(const CompileRequest& request, std::span<const uint8_t> bytes, const cpu::CpuTarget&);

// Adds an error about the module as a whole.
void AddError(const CompileRequest& request, std::string message, Diagnostics& diagnostics);

// Puts the text that the device's driver gets, in readable form, into artifact.listing if the request asks for it.
Status AddDeviceListing(const CompileRequest& request, Artifact& artifact);

}  // namespace hpvm::compile

#endif  // HPVMD_COMPILER_DRIVER_COMPILE_NATIVE_H_
