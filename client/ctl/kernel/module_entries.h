// SPDX-License-Identifier: Apache-2.0
// Finds the kernels of a module file without compiling it: the functions that a WebAssembly module exports, the entry
// points of a SPIR-V module, and the kernels of an OpenCL C source.
#ifndef HPVMD_CLIENT_CTL_KERNEL_MODULE_ENTRIES_H_
#define HPVMD_CLIENT_CTL_KERNEL_MODULE_ENTRIES_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hpvm::ctl {

// Returns the names in the file's order, without names that belong to a language runtime ("_initialize"). Returns
// kInvalidArgument for bytes that are not a WebAssembly module.
StatusOr<std::vector<std::string>> EntriesOfWasm(std::string_view bytes);

// A kernel of an OpenCL C source or a SPIR-V module, as it is declared.
struct DeclaredKernel {
  struct Param {
    std::string name;
    std::string type;  // The element type's name in documents ("f32"); empty when documents have no such type.
    bool is_buffer = false;
    bool is_const = false;
    bool is_signless = false;  // The module has one type for signed and unsigned integers of this width.
  };
  std::string name;
  std::vector<Param> params;
  // Shaders declare buffers and push constants for the whole module; an entry point may use fewer.
  bool may_leave_out = false;
};
// Reads only the declarations of kernels, and does not expand macros.
std::vector<DeclaredKernel> KernelsOfOpenCl(std::string_view source);
// Reads the entry points of kernels and compute shaders; shaders list buffers by set and binding, then push constants
// by offset. Returns kInvalidArgument for bytes that are not a SPIR-V module (spirv_kernels.cc).
StatusOr<std::vector<DeclaredKernel>> KernelsOfSpirv(std::string_view bytes);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_KERNEL_MODULE_ENTRIES_H_
