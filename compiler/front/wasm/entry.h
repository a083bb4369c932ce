// SPDX-License-Identifier: Apache-2.0
// The entry: found, checked against what the graph passes, and for HPVM-web's convention wrapped.
#ifndef HPVMD_COMPILER_FRONT_WASM_ENTRY_H_
#define HPVMD_COMPILER_FRONT_WASM_ENTRY_H_

#include <optional>
#include <string>

#include "base/diagnostic.h"
#include "compiler/front/wasm/read/decoded.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

// The index of the exported function, if its signature fits `options`.
std::optional<uint32_t> FindEntry(const Module& module, const WasmOptions& options, const std::string& place,
                                  Diagnostics& diagnostics);

// The kernel's parameters in their standard form.
std::vector<ir::KernelParam> EntryParams(const Module& module, const WasmOptions& options);

// HPVM-web: a function with the standard parameters that calls `inner` with sizes, indices and extents added. Appended
// to the module.
ir::FunctionId WrapHpvmWeb(ir::FunctionId inner, ir::Module& out);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_ENTRY_H_
