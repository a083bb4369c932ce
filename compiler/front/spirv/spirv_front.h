// SPDX-License-Identifier: Apache-2.0
// Checks a tenant's SPIR-V before any driver sees it: applies our own limits, compares it with the lists of accepted
// items (allow.h), runs SPIRV-Tools' validator for the device's exact environment, and matches the entry with the
// graph's parameters.
//
// The driver gets the tenant's own instructions with two changes: constants that the document fixes are written in,
// and uniform blocks become storage buffers.
#ifndef HPVMD_COMPILER_FRONT_SPIRV_SPIRV_FRONT_H_
#define HPVMD_COMPILER_FRONT_SPIRV_SPIRV_FRONT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "compiler/api/gpu_code.h"
#include "compiler/api/service.h"

namespace hpvm::spirv {

struct FrontOptions {
  std::string module_name;
  std::string entry;
  std::span<const ParamSpec> params;
  std::span<const SpecialisationConstant> constants;
  const GpuTarget* target = nullptr;  // Not null.
  bool is_shader = false;             // True for a Vulkan device, false for an OpenCL device.
};

struct Program {
  std::vector<uint8_t> code;  // Little-endian words.
  GpuVariant variant;         // Entry, group and arguments.
  uint64_t private_bytes = 0;
};

// Accepts any bytes. Returns nothing when `diagnostics` has an error.
std::optional<Program> ReadSpirv(std::span<const uint8_t> bytes, const FrontOptions& options, Diagnostics& diagnostics);

// Returns SPIRV-Tools' assembly of a module that ReadSpirv or a back end made.
StatusOr<std::string> Disassemble(std::span<const uint8_t> code);

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_SPIRV_FRONT_H_
