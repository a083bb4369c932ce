// SPDX-License-Identifier: Apache-2.0
// The kinds of modules that graphs name: one row each. A new kind is a row here, a route in
// compiler/driver/compile.cc and the folder of its front end.
#ifndef HPVMD_BASE_MODULE_KIND_H_
#define HPVMD_BASE_MODULE_KIND_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace hpvm {

// Values are kept in caches and sent to compilers.
enum class ModuleKind : uint8_t { kWasm = 1, kSpirv = 2, kOpenCl = 3, kBitstream = 4 };

struct ModuleKindRow {
  ModuleKind kind;
  std::string_view name;    // In documents.
  std::string_view plural;  // For people.
  std::string_view runs;    // "SPIR-V runs", and where it does.
  std::string_view where;
};

inline constexpr std::array<ModuleKindRow, 4> kModuleKinds = {{
    {ModuleKind::kWasm, "wasm", "WebAssembly modules", "WebAssembly runs", "on every device"},
    {ModuleKind::kSpirv, "spirv", "SPIR-V modules", "SPIR-V runs",
     "on OpenCL devices (kernels) and Vulkan devices (compute shaders) only"},
    {ModuleKind::kOpenCl, "opencl", "OpenCL C modules", "OpenCL C runs", "on OpenCL devices only"},
    {ModuleKind::kBitstream, "bitstream", "bitstreams", "A bitstream runs", "on FPGA-class OpenCL devices only"},
}};

// Null for a value that is no kind.
constexpr const ModuleKindRow* Find(ModuleKind kind) {
  for (const ModuleKindRow& row : kModuleKinds) {
    if (row.kind == kind) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace hpvm

#endif  // HPVMD_BASE_MODULE_KIND_H_
