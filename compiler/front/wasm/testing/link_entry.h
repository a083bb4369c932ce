// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_FRONT_WASM_TESTING_LINK_ENTRY_H_
#define HPVMD_COMPILER_FRONT_WASM_TESTING_LINK_ENTRY_H_

#include "compiler/front/wasm/lower/lower.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

// Appends a linked module's entry (link.h), which takes the selector, and the functions that its code needs. Call it
// when the module's own functions are lowered.
void AppendLinkedEntry(LowerContext& context, ir::Module& out);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_TESTING_LINK_ENTRY_H_
