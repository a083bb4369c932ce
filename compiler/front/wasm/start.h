// SPDX-License-Identifier: Apache-2.0
// Runs start functions once, in the interpreter, while a kernel is compiled. The state after that is the kernel's
// initial state.
#ifndef HPVMD_COMPILER_FRONT_WASM_START_H_
#define HPVMD_COMPILER_FRONT_WASM_START_H_

#include <string>

#include "base/diagnostic.h"
#include "compiler/front/wasm/read/decoded.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

// Runs `start`, whose entry is the start function of `module`, and writes the resulting memory, globals and state to
// `out`, whose state is a prefix of that of `start`. Returns false after a diagnostic.
bool RunStart(const Module& module, ir::Module start, const std::string& place, ir::Module& out,
              Diagnostics& diagnostics);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_START_H_
