// SPDX-License-Identifier: Apache-2.0
// Finds the entry function, checks it against what the graph passes, and wraps it for HPVM-web's convention.
#ifndef HPVMD_COMPILER_FRONT_WASM_ENTRY_H_
#define HPVMD_COMPILER_FRONT_WASM_ENTRY_H_

#include <optional>
#include <string>

#include "base/diagnostic.h"
#include "compiler/front/wasm/read/decoded.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

// Returns the index of the exported function when its signature fits `options`.
std::optional<uint32_t> FindEntry(const Module& module, const WasmOptions& options, const std::string& place,
                                  Diagnostics& diagnostics);

// Returns the kernel's parameters in their standard form.
std::vector<ir::KernelParam> EntryParams(const Module& module, const WasmOptions& options);

// Appends a function for HPVM-web to the module: it takes the standard parameters and calls `inner` with sizes,
// indices and extents added.
ir::FunctionId WrapHpvmWeb(ir::FunctionId inner, ir::Module& out);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_ENTRY_H_
